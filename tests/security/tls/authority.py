"""An authority that issues certificates for tests, and stores of every kind that hold them."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jks
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
DAY = datetime.timedelta(days=1)
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
PKCS8 = serialization.PrivateFormat.PKCS8


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    """One for all, as it takes long to make."""
    return rsa.generate_private_key(65537, 2048)


def name(*parts: tuple[str, str]) -> x509.Name:
    """Of `("CN", "x")` and so on, in the order of the encoding."""
    kinds = {
        "C": NameOID.COUNTRY_NAME,
        "CN": NameOID.COMMON_NAME,
        "E": NameOID.EMAIL_ADDRESS,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    }
    return x509.Name([x509.NameAttribute(kinds[kind], text) for kind, text in parts])


def _encryption(password: str | None) -> serialization.KeySerializationEncryption:
    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())


@dataclass(frozen=True)
class Issued:
    """A key with its certificate and those of its issuers."""

    key: Key
    chain: tuple[x509.Certificate, ...]

    def key_pem(self, password: str | None = None) -> str:
        """PKCS8, encrypted where there is a password."""
        return self.key.private_bytes(PEM, PKCS8, _encryption(password)).decode()

    def chain_pem(self) -> str:
        return "".join(each.public_bytes(PEM).decode() for each in self.chain)

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        path.write_text(self.key_pem(password) + self.chain_pem())
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        others = list(self.chain[1:])
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"broker", self.key, self.chain[0], others, _encryption(password))
        )
        return path

    def write_jks(self, path: Path, password: str, key_password: str | None = None) -> Path:
        encoded = self.key.private_bytes(DER, PKCS8, serialization.NoEncryption())
        entry = jks.PrivateKeyEntry.new("broker", [each.public_bytes(DER) for each in self.chain], encoded, "pkcs8")
        if key_password is not None:
            entry.encrypt(key_password)
        jks.KeyStore.new("jks", [entry]).save(str(path), password)
        return path


class Authority:
    """Signs with a key of its own."""

    def __init__(self, subject: str = "authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        named = name(("CN", subject))
        self.certificate = _sign(named, self.key.public_key(), named, self.key, is_authority=True)

    def issue(
        self,
        subject: x509.Name | str = "localhost",
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        key: Key | None = None,
        days: float = 30,
    ) -> Issued:
        """A certificate for these hosts; one that has expired with `days` below 0."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        named = name(("CN", subject)) if isinstance(subject, str) else subject
        issuer = self.certificate.subject
        certificate = _sign(named, key.public_key(), issuer, self.key, hosts=hosts, days=days)
        return Issued(key, (certificate, self.certificate))

    def pem(self) -> str:
        return self.certificate.public_bytes(PEM).decode()

    def write_pem(self, path: Path) -> Path:
        path.write_text(self.pem())
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        entries = [pkcs12.PKCS12Certificate(self.certificate, b"ca")]
        path.write_bytes(pkcs12.serialize_java_truststore(entries, _encryption(password)))
        return path

    def write_jks(self, path: Path, password: str) -> Path:
        entry = jks.TrustedCertEntry.new("ca", self.certificate.public_bytes(DER))
        jks.KeyStore.new("jks", [entry]).save(str(path), password)
        return path


def _sign(
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    issuer: x509.Name,
    key: Key,
    *,
    hosts: Sequence[str] = (),
    days: float = 30,
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + (min(0, days) - 1) * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
    return builder.sign(key, hashes.SHA256())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
