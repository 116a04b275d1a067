"""Contexts of listeners, `kbroker.security.tls.server_context` and `kbroker.security.tls.server_rules`."""

from __future__ import annotations

import ssl
from pathlib import Path

import jks
import pytest
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL

from kbroker.authorities import trusting
from kbroker.security.tls.server_context import ServerContext
from kbroker.security.tls.settings import TlsError, tls_settings
from tests.security.tls.authority import DER, PKCS8, Authority, rsa_key

SECRET = "the-secret"
AUTHORITY = Authority()
IN_PEM = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": AUTHORITY.issue().key_pem(),
    "ssl.keystore.certificate.chain": AUTHORITY.issue().chain_pem(),
}


def with_two_keys(path: Path) -> dict[str, str]:
    """A store with a key of each kind."""
    plain = serialization.NoEncryption()
    entries = [
        jks.PrivateKeyEntry.new(
            name,
            [certificate.public_bytes(DER) for certificate in each.chain],
            each.key.private_bytes(DER, PKCS8, plain),
            "pkcs8",
        )
        for name, each in (("rsa", AUTHORITY.issue(key=rsa_key())), ("ec", AUTHORITY.issue()))
    ]
    jks.KeyStore.new("jks", entries).save(str(path), SECRET)
    return {"ssl.keystore.location": str(path), "ssl.keystore.password": SECRET}


@pytest.mark.parametrize(
    ("suites", "kind"), [("ECDHE-RSA-AES128-GCM-SHA256", "RSA"), ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDSA")]
)
def test_a_client_gets_the_certificate_of_the_kind_that_it_can_verify(tmp_path: Path, suites: str, kind: str) -> None:
    """Of a store with several keys only one would ever be shown, and clients without its kind be turned away."""
    made = ServerContext(tls_settings(with_two_keys(tmp_path / "store").get))
    assert len(made.rules.keys) == 2
    client = trusting()
    client.load_verify_locations(cadata=AUTHORITY.pem())
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(suites)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client.wrap_bio(back, there, server_hostname="localhost")
    server = SSL.Connection(made.context)
    server.set_accept_state()
    for _ in range(4):
        try:
            end.do_handshake()
            break
        except ssl.SSLWantReadError:
            server.bio_write(there.read())
        try:
            server.do_handshake()
        except SSL.WantReadError:
            pass
        back.write(server.bio_read(65536))
    assert end.cipher()[0] == suites  # type: ignore[index]
    assert kind in suites


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"ssl.keystore.key": "", "ssl.keystore.certificate.chain": ""}, "none is set"),
        ({"ssl.keystore.key": Authority().issue().key_pem()}, "the certificate is not that of the private key"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"}, "has none of TLS 1.2"),
        ({"ssl.cipher.suites": "AES128-SHA", "ssl.enabled.protocols": "TLSv1.3"}, "has none of TLS 1.3"),
        ({"ssl.cipher.suites": "ECDHE-NOTHING-SHA"}, "OpenSSL has not all of"),
    ],
)
def test_settings_that_give_no_context_are_refused(others: dict[str, str], reason: str) -> None:
    """The broker would start with a listener that no client can speak to."""
    issued = AUTHORITY.issue()
    own = {**IN_PEM, "ssl.keystore.key": issued.key_pem(), "ssl.keystore.certificate.chain": issued.chain_pem()}
    with pytest.raises(TlsError, match=reason):
        ServerContext(tls_settings({**own, **others}.get))
