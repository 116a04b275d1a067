"""Java's own stores, JKS and JCEKS, by the package `pyjks`, which the extra `jks` installs."""

from __future__ import annotations

import hashlib
import importlib
import struct
from types import ModuleType

_DIGEST_BYTES = 20
_WHITENING = b"Mighty Aphrodite"


def read_jks_keys(content: bytes, password: str, key_password: str) -> list[tuple[bytes, list[bytes]]]:
    """The private keys (PKCS8) with their chains, in DER.  ValueError with the reason."""
    jks = _pyjks()
    found = []
    for entry in _load(jks, content, password).private_keys.values():
        try:
            if not entry.is_decrypted():
                entry.decrypt(key_password)
        except jks.util.DecryptionFailureException:
            raise ValueError("the password of the private key is wrong (ssl.key.password)") from None
        found.append((entry.pkey_pkcs8, [certificate for _, certificate in entry.cert_chain]))
    return found


def read_jks_trusted(content: bytes, password: str | None) -> list[bytes]:
    """The trusted certificates, in DER.  Without a password the store's checksum counts for nothing, as in Java."""
    if password is None:
        # A checksum without a password in the place of the one that cannot be looked at.
        body = content[:-_DIGEST_BYTES]
        content, password = body + hashlib.sha1(_WHITENING + body, usedforsecurity=False).digest(), ""
    return [entry.cert for entry in _load(_pyjks(), content, password).certs.values()]


def _pyjks() -> ModuleType:
    try:
        return importlib.import_module("jks")
    except ImportError:
        raise ValueError(
            "a store in JKS needs the package pyjks (the extra jks), or convert it to PKCS12 "
            "(keytool -importkeystore -deststoretype pkcs12)"
        ) from None


def _load(jks: ModuleType, content: bytes, password: str) -> ModuleType:
    try:
        return jks.KeyStore.loads(content, password, try_decrypt_keys=False)  # type: ignore[no-any-return]
    except jks.util.KeystoreSignatureException:
        raise ValueError("the password is wrong, or the store is damaged") from None
    except (jks.util.KeystoreException, ValueError, IndexError, TypeError, struct.error) as error:
        raise ValueError(f"the store is damaged ({type(error).__name__})") from None
