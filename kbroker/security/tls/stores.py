"""Key and trust stores: PEM as text or in files, PKCS12, and Java's own JKS.

What a file is its first bytes say, as in Java, where `JKS` in the settings may name a file in PKCS12.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kbroker.security.tls.settings import StoreSettings, TlsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

JKS_MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"
# Properties lose the ends of lines; the text between the marks says all.
_PEM = re.compile(rb"-+BEGIN\s+([A-Z0-9 ]+?)\s*-+\s*((?:[A-Za-z-]+:[^\n]*\n\s*)*)([A-Za-z0-9/+=\s]*)-+END")
_PRIVATE_KEY = b"PRIVATE KEY"


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key with its certificates, the key's own first."""

    key: PrivateKeyTypes = field(repr=False)
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        """The key's own."""
        return self.chain[0]

    def key_pem(self) -> bytes:
        """The key in clear."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def chain_pem(self) -> bytes:
        """The certificates."""
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in self.chain)


def read_keys(store: StoreSettings) -> tuple[KeyEntry, ...]:
    """The keys of a key store, none where there is no store.  TlsError."""
    if not store.is_set:
        return ()
    content = _content(store, f"{store.key or ''}\n{store.certificates or ''}")
    entries: tuple[KeyEntry, ...]
    if store.is_pem:
        entries = (_keys_of_pem(store, content),)
    elif content.startswith((JKS_MAGIC, JCEKS_MAGIC)):
        entries = _keys_of_jks(store, content)
    else:
        entries = _keys_of_pkcs12(store, content)
    for entry in entries:
        if entry.key.public_key() != entry.certificate.public_key():
            raise _wrong(store, "the certificate is not that of the private key")
    return entries


def read_trusted(store: StoreSettings) -> tuple[x509.Certificate, ...] | None:
    """The certificates of a trust store; None where there is no store, so that the system's count.  TlsError."""
    if not store.is_set:
        return None
    content = _content(store, store.certificates or "")
    if store.is_pem:
        found = _certificates_of_pem(store, content)
    elif content.startswith((JKS_MAGIC, JCEKS_MAGIC)):
        found = _trusted_of_jks(store, content)
    else:
        loaded = _load_pkcs12(store, content)
        found = tuple(each.certificate for each in loaded.additional_certs)
        if not found and loaded.cert is not None:
            found = (loaded.cert.certificate,)
    if not found:
        raise _wrong(store, "has no certificates")
    return found


def files_of(*stores: StoreSettings) -> tuple[Path, ...]:
    """The files that they are read from."""
    return tuple(Path(each.location) for each in stores if each.location is not None)


def _wrong(store: StoreSettings, reason: str) -> TlsError:
    return TlsError(f"{store.name}{f'.location {store.location}' if store.location else ''}: {reason}")


def _content(store: StoreSettings, text: str) -> bytes:
    if store.location is None:
        return text.encode()
    try:
        content = Path(store.location).read_bytes()
    except OSError as error:
        raise _wrong(store, f"cannot be read: {error.strerror}") from None
    if not content.strip():
        raise _wrong(store, "is empty")
    return content


# PEM


def _certificates_of_pem(store: StoreSettings, content: bytes) -> tuple[x509.Certificate, ...]:
    found = []
    for kind, _, body in _PEM.findall(content):
        if kind.endswith(b"CERTIFICATE"):
            try:
                found.append(x509.load_der_x509_certificate(base64.b64decode(b"".join(body.split()), validate=True)))
            except (ValueError, binascii.Error):
                raise _wrong(store, "has a certificate that cannot be read") from None
    return tuple(found)


def _keys_of_pem(store: StoreSettings, content: bytes) -> KeyEntry:
    chain = _certificates_of_pem(store, content)
    keys = [match for match in _PEM.findall(content) if match[0].endswith(_PRIVATE_KEY)]
    if not chain:
        raise _wrong(store, "has no certificate")
    if len(keys) != 1:
        raise _wrong(store, f"has {len(keys) or 'no'} private keys, and one is needed")
    kind, head, body = keys[0]
    encoded = b"".join(body.split())
    lines = b"\n".join(encoded[at : at + 64] for at in range(0, len(encoded), 64))
    pem = b"-----BEGIN %b-----\n%b%b\n-----END %b-----\n" % (kind, head and head.strip() + b"\n\n", lines, kind)
    is_encrypted = kind.startswith(b"ENCRYPTED") or b"ENCRYPTED" in head
    password = store.key_password.encode() if store.key_password is not None and is_encrypted else None
    try:
        return KeyEntry(serialization.load_pem_private_key(pem, password), _in_order(chain))
    except TypeError:
        raise _wrong(store, "the private key is encrypted, and ssl.key.password is not set") from None
    except (ValueError, UnsupportedAlgorithm):
        why = "cannot be read: is ssl.key.password right?" if is_encrypted else "cannot be read"
        raise _wrong(store, f"the private key {why}") from None


def _in_order(chain: Sequence[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The first certificate and those that lead from it to the root; the others are left out."""
    ordered, left = [chain[0]], list(chain[1:])
    while left:
        issuer = next((each for each in left if _has_issued(each, ordered[-1])), None)
        if issuer is None:
            break
        left.remove(issuer)
        ordered.append(issuer)
    return tuple(ordered)


def _has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


# PKCS12


def _load_pkcs12(store: StoreSettings, content: bytes) -> pkcs12.PKCS12KeyAndCertificates:
    password = None if store.password is None else store.password.encode()
    try:
        return pkcs12.load_pkcs12(content, password)
    except (ValueError, UnsupportedAlgorithm) as error:
        if "password" in str(error).lower():
            raise _wrong(store, f"the password is wrong ({store.name}.password)") from None
        raise _wrong(store, "is neither PKCS12 nor JKS") from None


def _keys_of_pkcs12(store: StoreSettings, content: bytes) -> tuple[KeyEntry, ...]:
    loaded = _load_pkcs12(store, content)
    if loaded.key is None or loaded.cert is None:
        raise _wrong(store, "has no private key with a certificate")
    others = [each.certificate for each in loaded.additional_certs]
    return (KeyEntry(loaded.key, _in_order([loaded.cert.certificate, *others])),)


# JKS


def _keys_of_jks(store: StoreSettings, content: bytes) -> tuple[KeyEntry, ...]:
    from kbroker.security.tls.jks_store import read_jks_keys

    try:
        found = read_jks_keys(content, store.password or "", store.key_password or store.password or "")
        entries = tuple(
            KeyEntry(serialization.load_der_private_key(key, None), tuple(map(x509.load_der_x509_certificate, chain)))
            for key, chain in found
        )
    except ValueError as error:
        raise _wrong(store, str(error)) from None
    if not entries:
        raise _wrong(store, "has no private key with a certificate")
    return entries


def _trusted_of_jks(store: StoreSettings, content: bytes) -> tuple[x509.Certificate, ...]:
    from kbroker.security.tls.jks_store import read_jks_trusted

    try:
        return tuple(map(x509.load_der_x509_certificate, read_jks_trusted(content, store.password)))
    except ValueError as error:
        raise _wrong(store, str(error)) from None
