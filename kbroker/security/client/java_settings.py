"""The security settings of Kafka's own clients, as `--command-config` of its tools has them.

A broker's settings for its connections to other brokers have the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kbroker.config.jaas import JaasError, single_module
from kbroker.security.client.client_security import MECHANISMS, PROTOCOLS, ClientSecurity, ClientSecurityError
from kbroker.security.client.oauth_tokens import SCHEMES, TokenEndpoint, TokenFile, TokenSource
from kbroker.security.protocols import has_sasl, has_tls
from kbroker.security.sasl.mechanism import Login
from kbroker.security.sasl.oauthbearer import OAUTHBEARER
from kbroker.security.tls.settings import TlsError, TlsSettings, tls_settings

DEFAULTS: Mapping[str, str] = {
    "security.protocol": "PLAINTEXT",
    "sasl.mechanism": "GSSAPI",
    "ssl.endpoint.identification.algorithm": "https",
}
PREFIXES = ("ssl.", "sasl.", "security.")
_MODULES = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")

Get = Callable[[str], str | None]


def java_security(settings: Mapping[str, str]) -> ClientSecurity:
    """The security that a client's settings ask for.  ClientSecurityError."""

    def get(name: str) -> str | None:
        return settings.get(name, DEFAULTS.get(name))

    return security_of(get, str(get("security.protocol")), str(get("sasl.mechanism")))


def security_of(get: Get, protocol: str, mechanism: str) -> ClientSecurity:
    """The same for settings that are looked up by `get`.  ClientSecurityError."""
    protocol = protocol.strip().upper()
    if protocol not in PROTOCOLS:
        raise ClientSecurityError(f"security.protocol {protocol} is none of {', '.join(PROTOCOLS)}")
    tls: TlsSettings | None = None
    if has_tls(protocol):
        try:
            tls = tls_settings(get)
        except TlsError as error:
            raise ClientSecurityError(str(error)) from None
    if not has_sasl(protocol):
        return ClientSecurity(protocol, tls)
    if mechanism not in MECHANISMS:
        raise ClientSecurityError(f"sasl.mechanism {mechanism}: kbroker logs in with {', '.join(MECHANISMS)}")
    options = _options(get)
    if mechanism == OAUTHBEARER:
        return ClientSecurity(protocol, tls, mechanism, tokens=_tokens(get, options), extensions=_extensions(options))
    try:
        by_token = options.get("tokenauth", "").lower() == "true"
        return ClientSecurity(protocol, tls, mechanism, Login(options["username"], options["password"], by_token))
    except KeyError as error:
        raise ClientSecurityError(f"sasl.jaas.config: the login module has no {error.args[0]}") from None


def _options(get: Get) -> Mapping[str, str]:
    text = get("sasl.jaas.config")
    if not text:
        raise ClientSecurityError("sasl.jaas.config is not set")
    try:
        module = single_module(text)
    except JaasError as error:
        raise ClientSecurityError(f"sasl.jaas.config: {error}") from None
    if module.short_name not in _MODULES:
        raise ClientSecurityError(f"sasl.jaas.config: the login module is none of {', '.join(_MODULES)}")
    return module.options


def _tokens(get: Get, options: Mapping[str, str]) -> TokenSource:
    url = get("sasl.oauthbearer.token.endpoint.url")
    if not url:
        raise ClientSecurityError("sasl.oauthbearer.token.endpoint.url is not set")
    return token_source(
        url,
        get("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId", ""),
        get("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret", ""),
        get("sasl.oauthbearer.scope") or options.get("scope", ""),
    )


def token_source(url: str, client_id: str, client_secret: str, scope: str) -> TokenSource:
    """Where a token comes from, by the URL's scheme.  ClientSecurityError."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ClientSecurityError(f"sasl.oauthbearer.token.endpoint.url: {url} is no {', '.join(SCHEMES)} URL")
    if parts.scheme == "file":
        return TokenFile(Path(unquote(parts.path)))
    if not client_id or not client_secret:
        raise ClientSecurityError(
            "OAUTHBEARER takes the client's id and secret (sasl.oauthbearer.client.credentials.*)"
        )
    return TokenEndpoint(url, client_id, client_secret, scope)


def _extensions(options: Mapping[str, str]) -> Mapping[str, str]:
    prefix = "extension_"
    return {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
