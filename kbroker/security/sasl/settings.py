"""The settings of SASL on a listener, checked before the broker starts.

A mechanism's login module is `listener.name.<listener>.<mechanism>.sasl.jaas.config`, as in Kafka; its other settings
may also be the listener's or the broker's.  SCRAM needs no login module here, since its credentials are in the
metadata.
"""

from __future__ import annotations

import importlib.util
import logging
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from kbroker.config.classes import OF_MECHANISMS, is_of_mechanism
from kbroker.config.jaas import JaasError, LoginModule, single_module
from kbroker.security.sasl.jwks import JwksPlan
from kbroker.security.sasl.kerberos_names import KerberosNames, KerberosRuleError
from kbroker.security.sasl.oauthbearer import OAUTHBEARER
from kbroker.security.sasl.plain import PLAIN
from kbroker.security.sasl.token_check import TokenRules
from kbroker.security.scram import BY_NAME

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.security")

GSSAPI = "GSSAPI"
JAAS = "sasl.jaas.config"
KERBEROS_RULES = "sasl.kerberos.principal.to.local.rules"
MODULES: Mapping[str, str] = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(BY_NAME, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
    GSSAPI: "Krb5LoginModule",
}
"""The login module of each mechanism, without its package."""
_SCHEMES = ("http", "https", "file")


class SaslSettingsError(ValueError):
    """Settings that the broker does not start with.  No value that may be secret is in the message."""


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """Of one mechanism of a listener.  `options` are those of its login module."""

    name: str
    max_reauth_ms: int
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    keys: JwksPlan | None = None
    rules: TokenRules = field(default_factory=TokenRules)
    kerberos_rules: tuple[str, ...] = ("DEFAULT",)


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Of one listener."""

    mechanisms: tuple[MechanismSettings, ...]
    first_frame_bytes: int
    failure_delay_ms: int


def sasl_settings(config: BrokerConfig, listener: str) -> SaslSettings:
    """The settings of a listener whose clients authenticate by SASL.  SaslSettingsError."""
    names = cast("list[str]", config.for_listener(listener, "sasl.enabled.mechanisms"))
    if not names:
        raise SaslSettingsError(f"sasl.enabled.mechanisms of listener {listener} is empty")
    return SaslSettings(
        tuple(_mechanism(config, listener, name) for name in names),
        cast("int", config.for_listener(listener, "sasl.server.max.receive.size")),
        config.get("connection.failed.authentication.delay.ms"),
    )


def warn_of_ignored(config: BrokerConfig, listener: str, mechanism: str) -> None:
    """Name a login module that is no mechanism's."""
    if config.get("sasl.jaas.config") or config.own_of_listener(listener, JAAS):
        logger.warning(
            "%s should be prefixed with the listener and the mechanism (listener.name.%s.%s.%s), and is ignored",
            JAAS,
            listener.lower(),
            mechanism.lower(),
            JAAS,
        )


def _mechanism(config: BrokerConfig, listener: str, name: str) -> MechanismSettings:
    if name not in MODULES:
        raise SaslSettingsError(
            f"sasl.enabled.mechanisms of listener {listener}: {name} is none of {', '.join(MODULES)}"
        )
    get: Callable[[str], object] = lambda key: config.for_mechanism(listener, name, key)  # noqa: E731
    key = f"listener.name.{listener.lower()}.{name.lower()}"
    _check_classes(config, listener, name)
    if name == GSSAPI and config.own_of_listener(listener, f"{name.lower()}.{JAAS}") is None:
        _check_mechanisms_are_set(config, listener, f"{key}.{JAAS}")
    module = _login_module(f"{key}.{JAAS}", name, config.own_of_listener(listener, f"{name.lower()}.{JAAS}"))
    if name == GSSAPI and importlib.util.find_spec("gssapi") is None:
        raise SaslSettingsError(
            f"listener {listener}: GSSAPI (the default of sasl.enabled.mechanisms) needs the package gssapi, which "
            "is not installed (the extra gssapi of kbroker)"
        )
    settings = MechanismSettings(
        name, cast("int", get("connections.max.reauth.ms")), {} if module is None else module.options
    )
    if name == GSSAPI:
        rules = cast("list[str]", get(KERBEROS_RULES))
        try:
            KerberosNames(rules)
        except KerberosRuleError as error:
            raise SaslSettingsError(f"listener {listener}: {KERBEROS_RULES}: {error}") from None
        return replace(settings, kerberos_rules=tuple(rules))
    if name == OAUTHBEARER:
        return replace(settings, keys=_key_plan(listener, get), rules=_token_rules(get))
    return settings


def _check_mechanisms_are_set(config: BrokerConfig, listener: str, module: str) -> None:
    """SaslSettingsError for a listener that has Kafka's default mechanism, GSSAPI, and nothing that it needs."""
    setting = "sasl.enabled.mechanisms"
    if setting not in config.explicit and config.own_of_listener(listener, setting) is None:
        raise SaslSettingsError(
            f"{setting} is not set, and listener {listener} asks for a login: name what it offers, as "
            f"{setting}=SCRAM-SHA-512 (docs/security.md); the default, GSSAPI, needs {module}"
        )


def _login_module(key: str, mechanism: str, text: object) -> LoginModule | None:
    if text is None:
        if mechanism in BY_NAME:
            return None
        raise SaslSettingsError(f"{key} is not set: {mechanism} needs its {MODULES[mechanism]}")
    try:
        module = single_module(str(text))
    except JaasError as error:
        raise SaslSettingsError(f"{key}: {error}") from None
    if module.short_name != MODULES[mechanism]:
        raise SaslSettingsError(f"{key}: the login module is not {MODULES[mechanism]}, which {mechanism} has")
    return module


def _check_classes(config: BrokerConfig, listener: str, mechanism: str) -> None:
    """SaslSettingsError for one of Kafka's classes that is another mechanism's.

    What is not set for the mechanism alone is for no mechanism in particular, and Kafka reads it for none."""
    for setting in OF_MECHANISMS:
        name = config.own_of_listener(listener, f"{mechanism.lower()}.{setting}")
        if name is not None and not is_of_mechanism(setting, name, mechanism):
            key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{setting}"
            raise SaslSettingsError(f"{key} names a class that is none of {mechanism}'s")


def _key_plan(listener: str, get: Callable[[str], object]) -> JwksPlan:
    url = get("sasl.oauthbearer.jwks.endpoint.url")
    if not url:
        raise SaslSettingsError(
            f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url is not set, and without keys OAUTHBEARER would "
            "take tokens without a signature"
        )
    if urllib.parse.urlsplit(str(url)).scheme not in _SCHEMES:
        raise SaslSettingsError(
            f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url is no http, https or file URL"
        )
    return JwksPlan(
        str(url),
        cast("int", get("sasl.oauthbearer.jwks.endpoint.refresh.ms")),
        cast("int", get("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")),
        cast("int", get("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")),
    )


def _token_rules(get: Callable[[str], object]) -> TokenRules:
    return TokenRules(
        cast("str | None", get("sasl.oauthbearer.expected.issuer")),
        tuple(cast("list[str]", get("sasl.oauthbearer.expected.audience"))),
        cast("str", get("sasl.oauthbearer.scope.claim.name")),
        cast("str", get("sasl.oauthbearer.sub.claim.name")),
        cast("int", get("sasl.oauthbearer.clock.skew.seconds")),
    )
