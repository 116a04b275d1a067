"""Key and trust stores of every kind: what is read of them, and why one is refused.

Also of `kbroker.security.tls.jks_store`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kbroker.security.tls.settings import StoreSettings, TlsError
from kbroker.security.tls.stores import read_keys, read_trusted
from tests.security.tls.authority import Authority, Issued, rsa_key

SECRET = "the-secret"
AUTHORITY = Authority()
ISSUED = AUTHORITY.issue()


def key_store(kind: str, path: Path | None = None, **others: str | None) -> StoreSettings:
    return StoreSettings("ssl.keystore", kind, None if path is None else str(path), **others)


def trust_store(kind: str, path: Path | None = None, **others: str | None) -> StoreSettings:
    return StoreSettings("ssl.truststore", kind, None if path is None else str(path), **others)


def _pem(issued: Issued, path: Path) -> StoreSettings:
    return key_store("PEM", issued.write_pem(path))


def _encrypted_pem(issued: Issued, path: Path) -> StoreSettings:
    return key_store("PEM", issued.write_pem(path, SECRET), key_password=SECRET)


def _inline(issued: Issued, _path: Path) -> StoreSettings:
    return key_store("PEM", key=issued.key_pem(SECRET), certificates=issued.chain_pem(), key_password=SECRET)


def _inline_in_one_line(issued: Issued, _path: Path) -> StoreSettings:
    """As continued lines of a properties file arrive."""
    key, chain = (text.replace("\n", " ") for text in (issued.key_pem(), issued.chain_pem()))
    return key_store("PEM", key=key, certificates=chain)


def _pkcs12(issued: Issued, path: Path) -> StoreSettings:
    return key_store("PKCS12", issued.write_pkcs12(path, SECRET), password=SECRET)


def _pkcs12_called_jks(issued: Issued, path: Path) -> StoreSettings:
    return key_store("JKS", issued.write_pkcs12(path, SECRET), password=SECRET)


def _jks(issued: Issued, path: Path) -> StoreSettings:
    return key_store("JKS", issued.write_jks(path, SECRET), password=SECRET)


def _jks_with_a_key_password(issued: Issued, path: Path) -> StoreSettings:
    return key_store("JKS", issued.write_jks(path, SECRET, "other"), password=SECRET, key_password="other")


KINDS = [
    _pem,
    _encrypted_pem,
    _inline,
    _inline_in_one_line,
    _pkcs12,
    _pkcs12_called_jks,
    _jks,
    _jks_with_a_key_password,
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("kind", ["EC", "RSA"])
def test_a_key_store_has_its_key_and_the_chain_in_order(
    tmp_path: Path, make: Callable[[Issued, Path], StoreSettings], kind: str
) -> None:
    """A broker would show a certificate without its issuers, which clients refuse, or none."""
    issued = ISSUED if kind == "EC" else AUTHORITY.issue(key=rsa_key())
    (entry,) = read_keys(make(issued, tmp_path / "store"))
    assert entry.key.public_key() == issued.key.public_key()
    assert entry.chain == issued.chain


@pytest.mark.parametrize(
    "make",
    [
        lambda path: trust_store("PEM", AUTHORITY.write_pem(path)),
        lambda path: trust_store("PEM", certificates=AUTHORITY.pem()),
        lambda path: trust_store("PKCS12", AUTHORITY.write_pkcs12(path, SECRET), password=SECRET),
        lambda path: trust_store("JKS", AUTHORITY.write_jks(path, SECRET), password=SECRET),
        lambda path: trust_store("JKS", AUTHORITY.write_jks(path, SECRET)),
    ],
)
def test_a_trust_store_has_its_certificates(tmp_path: Path, make: Callable[[Path], StoreSettings]) -> None:
    """Clients with good certificates would be refused.  A store in JKS needs no password, as in Java."""
    assert read_trusted(make(tmp_path / "store")) == (AUTHORITY.certificate,)


def test_without_stores_there_is_no_key_and_the_systems_trust() -> None:
    """No store would be taken for an empty one."""
    assert read_keys(key_store("JKS")) == ()
    assert read_trusted(trust_store("JKS")) is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: key_store("PEM", path), "cannot be read: No such file or directory"),
        (lambda path: key_store("JKS", path.parent, password=SECRET), "cannot be read: Is a directory"),
        (lambda path: key_store("PEM", _write(path, "\n")), "is empty"),
        (lambda path: key_store("PEM", _write(path, "rubbish")), "has no certificate"),
        (lambda path: key_store("PEM", _write(path, ISSUED.chain_pem())), "has no private keys, and one is needed"),
        (lambda path: key_store("PEM", ISSUED.write_pem(path, SECRET)), "ssl.key.password is not set"),
        (lambda path: key_store("PEM", ISSUED.write_pem(path, SECRET), key_password="x"), "is ssl.key.password right"),
        (lambda path: key_store("JKS", ISSUED.write_jks(path, SECRET), password="x"), "the password is wrong"),
        (
            lambda path: key_store("JKS", ISSUED.write_jks(path, SECRET, "other"), password=SECRET),
            "the password of the private key is wrong",
        ),
        (lambda path: key_store("PKCS12", ISSUED.write_pkcs12(path, SECRET), password="x"), "the password is wrong"),
        (lambda path: key_store("PKCS12", _write(path, "rubbish"), password=SECRET), "is neither PKCS12 nor JKS"),
        (lambda path: key_store("JKS", _write(path, "\xfe\xed\xfe\xedxx"), password=SECRET), "the store is damaged"),
        (
            lambda path: key_store("PKCS12", AUTHORITY.write_pkcs12(path, SECRET), password=SECRET),
            "has no private key with a certificate",
        ),
        (
            lambda path: key_store("JKS", AUTHORITY.write_jks(path, SECRET), password=SECRET),
            "has no private key with a certificate",
        ),
        (
            lambda path: key_store("PEM", key=ISSUED.key_pem(), certificates=AUTHORITY.pem()),
            "the certificate is not that of the private key",
        ),
    ],
)
def test_a_key_store_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, make: Callable[[Path], StoreSettings], reason: str
) -> None:
    """The broker would start without a key, or its owner would not know why it does not."""
    with pytest.raises(TlsError, match=reason) as caught:
        read_keys(make(tmp_path / "store"))
    assert "ssl.keystore" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: trust_store("PEM", _write(path, "rubbish")), "has no certificates"),
        (lambda path: trust_store("PEM", certificates=AUTHORITY.pem().replace("MII", "AAA")), "cannot be read"),
        (lambda path: trust_store("JKS", AUTHORITY.write_jks(path, SECRET), password="x"), "the password is wrong"),
        (lambda path: trust_store("JKS", ISSUED.write_jks(path, SECRET), password=SECRET), "has no certificates"),
    ],
)
def test_a_trust_store_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, make: Callable[[Path], StoreSettings], reason: str
) -> None:
    """Without its certificates either all clients would be refused, or the system's authorities trusted."""
    with pytest.raises(TlsError, match=reason) as caught:
        read_trusted(make(tmp_path / "store"))
    assert "ssl.truststore" in str(caught.value)


def test_a_chain_leads_from_the_key_to_the_root_whatever_its_order_in_the_store(tmp_path: Path) -> None:
    """Clients that build no chains of their own would find none."""
    stranger = Authority("stranger").certificate
    issued = Issued(ISSUED.key, (ISSUED.chain[0], stranger, ISSUED.chain[1]))
    (entry,) = read_keys(_pem(issued, tmp_path / "store"))
    assert entry.chain == ISSUED.chain


def test_stores_keep_their_secrets_to_themselves(tmp_path: Path) -> None:
    """A key in a log is everybody's."""
    store = _inline(ISSUED, tmp_path)
    (entry,) = read_keys(store)
    shown = repr(store) + repr(entry)
    assert "PRIVATE" not in shown
    assert SECRET not in shown
    assert isinstance(entry.key, ec.EllipticCurvePrivateKey)


def _write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("latin-1"))
    return path
