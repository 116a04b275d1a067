"""Certificates made for a test: an authority, servers and clients under it, in the kinds of stores that people have."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

PASSWORD = "store-secret"
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certified:
    """A key with its certificate and its issuer's."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @cached_property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @cached_property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def pkcs12(self) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"key",
            self.key,
            self.certificate,
            [self.issuer],
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "kbroker tests") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            self._begun(subject, subject, self.key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @staticmethod
    def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def certify(self, name: str = "localhost", address: str | None = "127.0.0.1") -> Certified:
        """A server's certificate, for that name and address, or a client's."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [x509.DNSName(name)] if " " not in name else []
        if address is not None:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        begun = self._begun(subject, self.certificate.subject, key.public_key())
        certificate = begun.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(
            self.key, hashes.SHA256()
        )
        return Certified(key, certificate, self.certificate)

    def trust_store(self) -> bytes:
        """In PKCS12."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.certificate, b"ca")],
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )

    def write(self, folder: Path) -> dict[str, str]:
        """A key store and a trust store in files: a broker's settings of TLS, and a client's."""
        (folder / "trust.p12").write_bytes(self.trust_store())
        (folder / "keys.p12").write_bytes(self.certify().pkcs12())
        (folder / "ca.pem").write_text(self.pem)
        return {
            "ssl.keystore.location": str(folder / "keys.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.location": str(folder / "trust.p12"),
            "ssl.truststore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
        }
