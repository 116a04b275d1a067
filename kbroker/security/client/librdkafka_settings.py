"""The security settings of librdkafka's clients, both ways: what a profile and `-X` have, and what the client is given.

librdkafka takes keys and certificates as PEM in its settings, so that stores of any kind can be handed to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kbroker.security.client.client_security import (
    MECHANISMS,
    PROTOCOLS,
    ClientSecurity,
    ClientSecurityError,
)
from kbroker.security.client.java_settings import token_source
from kbroker.security.client.oauth_tokens import TokenEndpoint
from kbroker.security.protocols import has_sasl, has_tls
from kbroker.security.sasl.mechanism import Login
from kbroker.security.sasl.oauthbearer import OAUTHBEARER
from kbroker.security.tls.settings import StoreSettings, TlsSettings

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_FALSE = frozenset({"false", "0", "f", "n", "no"})


def librdkafka_security(settings: Mapping[str, str]) -> ClientSecurity:
    """The security that settings in librdkafka's names ask for.  ClientSecurityError."""
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol not in PROTOCOLS:
        raise ClientSecurityError(f"security.protocol {protocol.lower()} is none of librdkafka's")
    tls = _tls(settings) if has_tls(protocol) else None
    verifies = settings.get("enable.ssl.certificate.verification", "true").lower() not in _FALSE
    if not has_sasl(protocol):
        return ClientSecurity(protocol, tls, verifies=verifies)
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in MECHANISMS:
        raise ClientSecurityError(f"sasl.mechanism {mechanism}: kbroker logs in with {', '.join(MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        tokens = token_source(
            settings.get("sasl.oauthbearer.token.endpoint.url", ""),
            settings.get("sasl.oauthbearer.client.id", ""),
            settings.get("sasl.oauthbearer.client.secret", ""),
            settings.get("sasl.oauthbearer.scope", ""),
        )
        return ClientSecurity(protocol, tls, mechanism, tokens=tokens, verifies=verifies)
    try:
        login = Login(settings["sasl.username"], settings["sasl.password"])
    except KeyError as error:
        raise ClientSecurityError(f"{error.args[0]} is not set") from None
    return ClientSecurity(protocol, tls, mechanism, login, verifies=verifies)


def _tls(settings: Mapping[str, str]) -> TlsSettings:
    trust = StoreSettings("ssl.ca")
    if location := settings.get("ssl.ca.location"):
        trust = StoreSettings("ssl.ca", "PEM", location)
    elif pem := settings.get("ssl.ca.pem"):
        trust = StoreSettings("ssl.ca", "PEM", certificates=pem)
    return TlsSettings(
        _key_store(settings),
        trust,
        identifies_endpoints=settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
    )


def _key_store(settings: Mapping[str, str]) -> StoreSettings:
    if location := settings.get("ssl.keystore.location"):
        return StoreSettings("ssl.keystore", "PKCS12", location, settings.get("ssl.keystore.password"))
    certificate = settings.get("ssl.certificate.pem") or _blocks(settings, "ssl.certificate.location", "CERTIFICATE")
    key = settings.get("ssl.key.pem") or _blocks(settings, "ssl.key.location", "PRIVATE KEY")
    if certificate is None and key is None:
        return StoreSettings("ssl.keystore")
    if certificate is None or key is None:
        raise ClientSecurityError("ssl.certificate and ssl.key go together")
    return StoreSettings(
        "ssl.key", "PEM", key_password=settings.get("ssl.key.password"), key=key, certificates=certificate
    )


def _blocks(settings: Mapping[str, str], name: str, kind: str) -> str | None:
    """The blocks of one kind in a file of PEM: key and certificates may lie in the same one."""
    location = settings.get(name)
    if location is None:
        return None
    try:
        text = Path(location).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientSecurityError(f"{name} {location} cannot be read: {error}") from None
    return "\n".join(match[0] for match in _PEM.finditer(text) if match[1].endswith(kind))


def to_librdkafka(security: ClientSecurity) -> dict[str, str]:
    """What librdkafka has to be given for the same.  TlsError for stores; ClientSecurityError for tokens in files."""
    settings = {"security.protocol": security.protocol.lower()}
    if security.tls is not None:
        settings |= _tls_to_librdkafka(security.tls)
        if not security.verifies:
            settings["enable.ssl.certificate.verification"] = "false"
    if security.authenticates:
        settings["sasl.mechanism"] = security.mechanism
    if security.login is not None:
        if security.login.by_token:
            raise ClientSecurityError("librdkafka does not log in by delegation tokens")
        settings |= {"sasl.username": security.login.name, "sasl.password": security.login.password}
    if security.mechanism == OAUTHBEARER:
        if not isinstance(security.tokens, TokenEndpoint):
            raise ClientSecurityError("librdkafka takes bearer tokens from a token endpoint alone")
        settings |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": security.tokens.url,
            "sasl.oauthbearer.client.id": security.tokens.client_id,
            "sasl.oauthbearer.client.secret": security.tokens.client_secret,
        }
        if security.tokens.scope:
            settings["sasl.oauthbearer.scope"] = security.tokens.scope
        if security.extensions:
            pairs = ",".join(f"{key}={value}" for key, value in security.extensions.items())
            settings["sasl.oauthbearer.extensions"] = pairs
    return settings


def _tls_to_librdkafka(tls: TlsSettings) -> dict[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding

    from kbroker.security.tls.stores import read_keys, read_trusted

    settings = {"ssl.endpoint.identification.algorithm": "https" if tls.identifies_endpoints else "none"}
    trusted = read_trusted(tls.trust_store)
    if trusted is not None:
        settings["ssl.ca.pem"] = b"".join(each.public_bytes(Encoding.PEM) for each in trusted).decode()
    for entry in read_keys(tls.key_store):
        settings |= {"ssl.certificate.pem": entry.chain_pem().decode(), "ssl.key.pem": entry.key_pem().decode()}
    return settings
