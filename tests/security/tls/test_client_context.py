"""The contexts by which a broker reaches others, `kbroker.security.tls.client_context`."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.security.tls.client_context import client_ssl_context, in_memory
from kbroker.security.tls.settings import TlsError
from tests.descriptors import open_names
from tests.security.tls.authority import Authority, Issued

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue()


def files_in_memory() -> list[str]:
    """Those that are open in this process for keys and certificates."""
    return [name for name in open_names() if "kbroker-pem" in name]


def settings(folder: Path, **others: str) -> BrokerConfig:
    prefix = "listener.name.inside.ssl."
    return BrokerConfig.from_mapping(
        {
            "listeners": "INSIDE://:9093",
            "listener.security.protocol.map": "INSIDE:SSL",
            f"{prefix}keystore.type": "PKCS12",
            f"{prefix}keystore.location": str(ISSUED.write_pkcs12(folder / "k.p12", "secret")),
            f"{prefix}keystore.password": "secret",
            f"{prefix}truststore.type": "PEM",
            f"{prefix}truststore.certificates": AUTHORITY.pem(),
            **{f"{prefix}{key.replace('_', '.')}": value for key, value in others.items()},
        }
    )


def shake_hands(client: ssl.SSLContext, shown: Issued, host: str, *, asks: bool = True) -> ssl.SSLObject:
    """A handshake with a server that shows this certificate; the server's end of it."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with in_memory(shown.chain_pem().encode()) as chain, in_memory(shown.key_pem().encode()) as key:
        served.load_cert_chain(chain, key)
    served.load_verify_locations(cadata=AUTHORITY.pem())
    served.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [served.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there, server_hostname=host)]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    assert ends[1].version() is not None
    return ends[0]


def test_a_broker_shows_the_listeners_certificate_and_trusts_its_authorities(tmp_path: Path) -> None:
    """Brokers of a cluster could not reach each other, or would believe anybody."""
    with in_memory(b"pem"):
        assert len(files_in_memory()) == 1
    context = client_ssl_context(settings(tmp_path), "INSIDE")
    assert files_in_memory() == []
    end = shake_hands(context, AUTHORITY.issue(), "localhost")
    shown = end.getpeercert()
    assert shown is not None
    assert shown["subject"] == ((("commonName", "localhost"),),)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        shake_hands(context, Authority("other").issue(), "localhost", asks=False)


def test_a_broker_looks_for_the_host_in_the_certificate_unless_told_not_to(tmp_path: Path) -> None:
    """Whoever has a certificate of the same authority could take the place of a broker."""
    elsewhere = AUTHORITY.issue(hosts=["elsewhere.example"])
    with pytest.raises(ssl.SSLCertVerificationError, match="ostname mismatch"):
        shake_hands(client_ssl_context(settings(tmp_path), "INSIDE"), elsewhere, "localhost")
    context = client_ssl_context(settings(tmp_path, endpoint_identification_algorithm=""), "INSIDE")
    shake_hands(context, elsewhere, "localhost")


def test_a_certificate_in_the_trust_store_is_trusted_without_its_issuer(tmp_path: Path) -> None:
    """As Java has it, so that a store of Java's would not do here."""
    leaf = Issued(ISSUED.key, ISSUED.chain[:1])
    config = settings(tmp_path, truststore_certificates=leaf.chain_pem())
    shake_hands(client_ssl_context(config, "INSIDE"), leaf, "localhost")


def test_versions_and_suites_are_those_of_the_settings(tmp_path: Path) -> None:
    """A broker would speak what its owner rules out."""
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    config = settings(tmp_path, enabled_protocols="TLSv1.2", cipher_suites=suite)
    end = shake_hands(client_ssl_context(config, "INSIDE"), AUTHORITY.issue(), "localhost")
    assert end.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)
    with pytest.raises(TlsError, match="OpenSSL knows none"):
        client_ssl_context(settings(tmp_path, cipher_suites="ECDHE-NOTHING-SHA"), "INSIDE")
