"""The settings of TLS: what they say together, and what contradicts itself.

Also of `kbroker.security.tls.cipher_suites`.
"""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.security.tls.cipher_suites import openssl_name, split
from kbroker.security.tls.settings import ClientAuth, TlsError, tls_settings

DEFAULTS = BrokerConfig.from_mapping({})


def of(**values: str) -> object:
    given = {name.replace("_", "."): value for name, value in values.items()}
    return tls_settings(lambda name: given.get(name, DEFAULTS.value_of(name)))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"ssl_keystore_key": "x"}, "can be specified only for PEM, but key store type is JKS"),
        ({"ssl_keystore_type": "PEM", "ssl_keystore_key": "x"}, "certificate chain is not specified"),
        ({"ssl_keystore_certificate_chain": "x"}, "but private key is not specified"),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": "x",
                "ssl_keystore_certificate_chain": "x",
                "ssl_keystore_location": "/k",
            },
            "Both SSL key store location and separate private key",
        ),
        (
            {"ssl_keystore_type": "PEM", "ssl_keystore_location": "/k", "ssl_keystore_password": "x"},
            "only key password may be specified",
        ),
        ({"ssl_keystore_location": "/k"}, "key store is specified, but key store password is not"),
        ({"ssl_keystore_password": "x"}, "key store is not specified, but key store password is"),
        ({"ssl_truststore_certificates": "x"}, "only for PEM, but trust store type is JKS"),
        ({"ssl_truststore_password": "x"}, "trust store is not specified, but trust store password is"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "TLSv1.1 is not among the protocols that kbroker has"),
        ({"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": "TLSv1.3"}, "has none that ssl.protocol TLSv1.2 allows"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, str], reason: str) -> None:
    """One of them would be ignored, and which one nobody could tell."""
    with pytest.raises(TlsError, match=reason):
        of(**values)


def test_settings_say_what_kafkas_say() -> None:
    """A file of Kafka's would mean something else here."""
    made = tls_settings(DEFAULTS.value_of)
    assert made.protocols == ("TLSv1.2", "TLSv1.3")
    assert made.client_auth is ClientAuth.NONE
    assert made.identifies_endpoints
    assert not made.key_store.is_set
    assert tls_settings({"ssl.protocol": "TLSv1.2"}.get).protocols == ("TLSv1.2",)
    assert not tls_settings({"ssl.endpoint.identification.algorithm": ""}.get).identifies_endpoints
    assert tls_settings({"ssl.client.auth": "required"}.get).client_auth is ClientAuth.REQUIRED


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_have_java_s_names(java: str, openssl: str) -> None:
    """OpenSSL would not know what a file of Kafka's asks for."""
    assert openssl_name(java) == openssl


def test_suites_of_tls_1_3_are_set_by_themselves() -> None:
    """OpenSSL takes them in another list."""
    assert split(["TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"]) == ("TLS_AES_128_GCM_SHA256", "AES128-SHA")
    for name in ("TLS_KRB5_WITH_DES_CBC_SHA", "rubbish", "ALL:!aNULL"):
        with pytest.raises(TlsError, match="cipher"):
            split([name])
