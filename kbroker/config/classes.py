"""Kafka's own Java classes that settings name, and what kbroker has in their places.

kbroker runs no Java.  A setting that names one of Kafka's own classes asks for what Kafka does itself, so that the name
stands for the same of kbroker's; any other class is a plugin, and refused.  docs/security.md has this
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kbroker.config.authorizer import OF_ZOOKEEPER, STANDARD

SERVER_HANDLER = "sasl.server.callback.handler.class"
LOGIN_HANDLER = "sasl.login.callback.handler.class"
CLIENT_HANDLER = "sasl.client.callback.handler.class"
LOGIN = "sasl.login.class"
JWT_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
JWT_VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
OF_MECHANISMS = (SERVER_HANDLER, LOGIN_HANDLER, CLIENT_HANDLER, LOGIN, JWT_RETRIEVER, JWT_VALIDATOR)
"""The settings of SASL that name classes; each mechanism of a listener may have its own."""
SECURITY = "org.apache.kafka.common.security"
UNSECURED_LOGIN = f"{SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_PLAIN, _BEARER, _KERBEROS = ("PLAIN",), ("OAUTHBEARER",), ("GSSAPI",)
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_BY_NAME = (*_PLAIN, *_SCRAM, *_KERBEROS)
_PACKAGE = "org.apache.kafka.coordinator.group.assignor"
_ASSIGNORS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        f"{_PACKAGE}.UniformAssignor": ("group.consumer.assignors", "uniform"),
        f"{_PACKAGE}.RangeAssignor": ("group.consumer.assignors", "range"),
        f"{_PACKAGE}.SimpleAssignor": ("group.share.assignors", "simple"),
    }
)


@dataclass(frozen=True, slots=True)
class KnownClass:
    """One of Kafka's classes as the value of a setting."""

    setting: str
    name: str
    means: str
    """What kbroker has in its place; of one that is refused, why."""
    mechanisms: tuple[str, ...] = ()
    """The mechanisms of SASL whose class it is; none where it is no mechanism's."""
    refused: bool = False


def _bearer(setting: str, name: str, means: str, *, refused: bool = False) -> KnownClass:
    return KnownClass(setting, f"{SECURITY}.oauthbearer.{name}", means, _BEARER, refused)


_KEYS = "tokens are checked by the keys of `sasl.oauthbearer.jwks.endpoint.url`"
_TOKENS = "the broker's own tokens come from `sasl.oauthbearer.token.endpoint.url`"
_CLIENT = "how the broker logs in at others"
KNOWN_CLASSES = (
    KnownClass(
        SERVER_HANDLER,
        f"{SECURITY}.plain.internals.PlainServerCallbackHandler",
        "users of the listener's login module",
        _PLAIN,
    ),
    KnownClass(
        SERVER_HANDLER,
        f"{SECURITY}.scram.internals.ScramServerCallbackHandler",
        "users of the cluster's metadata",
        _SCRAM,
    ),
    KnownClass(
        SERVER_HANDLER, f"{SECURITY}.authenticator.SaslServerCallbackHandler", "names by Kerberos' tickets", _KERBEROS
    ),
    _bearer(SERVER_HANDLER, "OAuthBearerValidatorCallbackHandler", _KEYS),
    _bearer(SERVER_HANDLER, "secured.OAuthBearerValidatorCallbackHandler", _KEYS),
    _bearer(
        SERVER_HANDLER,
        "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
        "it takes tokens without a signature",
        refused=True,
    ),
    _bearer(LOGIN_HANDLER, "OAuthBearerLoginCallbackHandler", _TOKENS),
    _bearer(LOGIN_HANDLER, "secured.OAuthBearerLoginCallbackHandler", _TOKENS),
    KnownClass(
        LOGIN_HANDLER,
        UNSECURED_LOGIN,
        "nothing, where the broker itself does not log in by this mechanism; refused where it does",
        _BEARER,
    ),
    KnownClass(
        LOGIN_HANDLER,
        f"{SECURITY}.authenticator.AbstractLogin$DefaultLoginCallbackHandler",
        "name and password of the listener's login module, or Kerberos' keys",
        _BY_NAME,
    ),
    KnownClass(CLIENT_HANDLER, f"{SECURITY}.authenticator.SaslClientCallbackHandler", _CLIENT, _BY_NAME),
    KnownClass(CLIENT_HANDLER, f"{SECURITY}.kerberos.KerberosClientCallbackHandler", _CLIENT, _KERBEROS),
    _bearer(CLIENT_HANDLER, "internals.OAuthBearerSaslClientCallbackHandler", _CLIENT),
    KnownClass(LOGIN, f"{SECURITY}.authenticator.DefaultLogin", _CLIENT, _BY_NAME),
    KnownClass(LOGIN, f"{SECURITY}.kerberos.KerberosLogin", _CLIENT, _KERBEROS),
    _bearer(LOGIN, "internals.OAuthBearerRefreshingLogin", _CLIENT),
    _bearer(JWT_RETRIEVER, "DefaultJwtRetriever", _TOKENS),
    _bearer(JWT_RETRIEVER, "ClientCredentialsJwtRetriever", _TOKENS),
    _bearer(JWT_RETRIEVER, "FileJwtRetriever", _TOKENS),
    _bearer(JWT_RETRIEVER, "JwtBearerJwtRetriever", "it asks for tokens by assertions that it signs", refused=True),
    _bearer(JWT_VALIDATOR, "DefaultJwtValidator", _KEYS),
    _bearer(JWT_VALIDATOR, "BrokerJwtValidator", _KEYS),
    _bearer(JWT_VALIDATOR, "ClientJwtValidator", "it looks at no signature", refused=True),
    KnownClass(
        "principal.builder.class",
        f"{SECURITY}.authenticator.DefaultKafkaPrincipalBuilder",
        "principals of the session, by `ssl.principal.mapping.rules` and `sasl.kerberos.principal.to.local.rules`",
    ),
    KnownClass("ssl.engine.factory.class", f"{SECURITY}.ssl.DefaultSslEngineFactory", "TLS of OpenSSL"),
    *(
        KnownClass("authorizer.class.name", name, "kbroker's authorizer, which decides as they do")
        for name in (STANDARD, *OF_ZOOKEEPER)
    ),
    KnownClass(
        "replica.selector.class",
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "a replica in their rack",
    ),
    KnownClass("replica.selector.class", "org.apache.kafka.common.replica.LeaderSelector", "the leader"),
    KnownClass("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", "`/metrics` and `/metrics/kafka`"),
    *(KnownClass(setting, name, f"the assignor `{short}`") for name, (setting, short) in _ASSIGNORS.items()),
    KnownClass(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "states of share groups in `__share_group_state`",
    ),
    KnownClass(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.NoOpStatePersister",
        "it keeps no states of share groups",
        refused=True,
    ),
    KnownClass("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty", "ZooKeeper, also by TLS"),
    KnownClass("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNIO", "ZooKeeper"),
)
_BY_SETTING: Mapping[str, Mapping[str, KnownClass]] = MappingProxyType(
    {
        setting: MappingProxyType({each.name: each for each in KNOWN_CLASSES if each.setting == setting})
        for setting in dict.fromkeys(each.setting for each in KNOWN_CLASSES)
    }
)


def known_names(setting: str) -> tuple[str, ...]:
    """The classes that a setting may name."""
    return tuple(each.name for each in _BY_SETTING.get(setting, {}).values() if not each.refused)


def names_classes(setting: str) -> bool:
    """Whether a setting has classes that are known."""
    return setting in _BY_SETTING


def reason_against(setting: str, value: object) -> str:
    """Why a class, or one of a list, cannot be had, as half a sentence; empty where there is no reason."""
    known = _BY_SETTING.get(setting, {})
    for name in value if isinstance(value, list) else [value]:
        found = known.get(str(name).strip())
        if found is None:
            return "it names a Java class that is none of Kafka's own for it, and kbroker runs none"
        if found.refused:
            return found.means
    return ""


def is_of_mechanism(setting: str, name: str, mechanism: str) -> bool:
    """Whether a known class is one for that mechanism of SASL."""
    return mechanism in _BY_SETTING[setting][name].mechanisms


def assignor_name(text: str) -> str:
    """The short name of an assignor that is named by its class; of any other text the text."""
    return _ASSIGNORS[text][1] if text in _ASSIGNORS else text
