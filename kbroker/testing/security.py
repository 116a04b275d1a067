"""The security of a broker for tests: certificates made on the fly, users with passwords, ACLs.

with KafkaBroker(security=Security()) as broker:
    Producer(broker.client_settings("admin"))
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    _Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]

ADMIN = "admin"
PASSWORD = "admin-secret"
_DAYS = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Security:
    """What the broker asks of its clients.

    `protocol`: of its listener, SSL, SASL_PLAINTEXT or SASL_SSL; `users`: names with passwords, by PLAIN.  With `acls`
    only super users may do anything before ACLs are made: the user `admin` is one.  `client_certificates`: clients of
    SSL have to show the certificate that `client_settings` gives them; they are `User:CN=<name>`.  `directory`: where
    key and certificates lie, for brokers that share them.
    """

    protocol: str = "SASL_SSL"
    users: Mapping[str, str] = field(default_factory=lambda: {ADMIN: PASSWORD}, repr=False)
    acls: bool = True
    client_certificates: bool = False
    directory: Path | None = None

    @property
    def encrypts(self) -> bool:
        """Whether the listener is under TLS."""
        return self.protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        """Whether clients log in by SASL."""
        return self.protocol.startswith("SASL_")

    def settings(self, directory: Path, port: int) -> dict[str, str]:
        """The broker's settings; its key and certificates are made in the directory, where they are missing."""
        found = {
            "listeners": f"{self.protocol}://127.0.0.1:{port}",
            "security.inter.broker.protocol": self.protocol,
        }
        if self.encrypts:
            _make_certificates(directory)
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(directory / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(directory / "ca.pem"),
                "ssl.client.auth": "required" if self.client_certificates else "none",
            }
        if self.authenticates:
            users = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in self.users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            if ADMIN in self.users:  # As which brokers log in at each other.
                users = f'username="{ADMIN}" password="{_quoted(self.users[ADMIN])}" {users}'
            found |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": f"{module} required {users};",
            }
        if self.acls:
            found |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN};User:CN={ADMIN};User:CN=localhost"
                + ("" if self.authenticates or self.client_certificates else ";User:ANONYMOUS"),
            }
        return found

    def client_settings(self, directory: Path, user: str) -> dict[str, str]:
        """What a client of that user takes, in librdkafka's names.  KeyError for a user that there is not."""
        found = {"security.protocol": self.protocol.lower()}
        if self.encrypts:
            found["ssl.ca.location"] = str(directory / "ca.pem")
            if self.client_certificates:
                path = _make_client(directory, user)
                found |= {"ssl.certificate.location": str(path), "ssl.key.location": str(path)}
        if self.authenticates:
            found |= {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": self.users[user]}
        return found

    def context(self, directory: Path) -> ssl.SSLContext:
        """A client's context of Python's ssl."""
        context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        if self.client_certificates:
            context.load_cert_chain(_make_client(directory, ADMIN))
        return context


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _make_certificates(directory: Path) -> None:
    """An authority, and a broker's key with its certificate, as PEM."""
    if (directory / "broker.pem").exists():
        return
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    directory.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # It signs certificates.
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    authority = _certificate("kbroker testing", key, None, [constraints, usage])
    (directory / "ca.pem").write_bytes(_pem(authority))
    _write_secret(directory / "ca-key.pem", _key_pem(key))
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    _make_signed(directory, "broker", "localhost", [x509.SubjectAlternativeName(names)])


def _make_client(directory: Path, user: str) -> Path:
    path = directory / f"client-{user}.pem"
    if not path.exists():
        _make_signed(directory, f"client-{user}", user, [])
    return path


def _make_signed(directory: Path, file: str, name: str, extensions: list[x509.ExtensionType]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((directory / "ca-key.pem").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, (authority, signer), extensions)
    _write_secret(directory / f"{file}.pem", _key_pem(key) + _pem(certificate) + _pem(authority))


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: _Issuer | None, extensions: list[x509.ExtensionType]
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _DAYS)
    )
    signer = key if issuer is None else issuer[1]
    # Without these Python refuses a certificate since 3.13.
    identifiers = (
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    )
    for extension in (*extensions, *identifiers):
        is_critical = isinstance(extension, (x509.BasicConstraints, x509.KeyUsage))
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
