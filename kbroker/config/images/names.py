"""How variables of Kafka's container images name settings, and which variables are none of theirs.

KAFKA_LOG_DIRS, KAFKA_CFG_LOG_DIRS      log.dirs; `__` stands for `_`, `___` for `-`
KAFKA_SERVICE_HOST, KAFKA_PORT_…        Kubernetes' words about a service that is called kafka: no settings
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

SWITCH = "KBROKER_KAFKA_VARIABLES"
HOME_VARIABLE = "KBROKER_HOME"
OBEY = "obey"
PREFIX = "KAFKA_"
BITNAMI_PREFIX = "KAFKA_CFG_"
_OF_KUBERNETES = re.compile(r"KAFKA_(.*_)?(SERVICE_(HOST|PORT(_.*)?)|PORT_[0-9]+_(TCP|UDP).*)")
_PORT_OF_KUBERNETES = re.compile(r"KAFKA_(.*_)?PORT")
_ABOUT_FILES = frozenset({"KAFKA_HOME", "KAFKA_TOOL_HOME", "KAFKA_VERSION"})
_PROTECTION = re.compile(
    r"(CFG_)?(LISTENER_NAME_.*)?(AUTHORIZER|SASL|SSL|TLS|SUPER_USERS|DELEGATION_TOKEN|OPA_|.*_SASL_|.*_SSL_|"
    r"ALLOW_EVERYONE|SECURITY_INTER_BROKER|SECURITY_PROTOCOL|.*(KEYSTORE|TRUSTSTORE|JAAS|PASSWORD|CREDENTIALS)).*"
)
LOGIN_FILE = "java.security.auth.login.config"
"""The property of Java that names a file of login modules (KAFKA_OPTS)."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "KAFKA_LOGS_DIRS": "log.dirs",
        "KAFKA_MAX_MESSAGE_BYTES": "message.max.bytes",
        "KAFKA_SEGMENT_BYTES": "log.segment.bytes",
        "KAFKA_ZOOKEEPER_CONNECT_TIMEOUT_MS": "zookeeper.connection.timeout.ms",
        "KAFKA_CFG_ZOOKEEPER_CLIENTCNXNSOCKET": "zookeeper.clientCnxnSocket",
    }
)
"""Older names of bitnami's, and one that has capital letters."""


class ImageError(Exception):
    """An environment that asks for what cannot be had.  The text has no value that may be a secret."""


def obeys(environ: Mapping[str, str]) -> bool:
    """Whether the images' variables are settings here."""
    return environ.get(SWITCH, "") == OBEY


class Image(StrEnum):
    """The images, by what their environments have in common."""

    KAFKA = "apache/kafka"
    """apache/kafka and confluentinc/cp-kafka, which read the same variables."""
    BITNAMI = "bitnami/kafka"
    WURSTMEISTER = "wurstmeister/kafka"
    NONE = ""
    """No variable of any of them."""


OF_BITNAMI = re.compile(
    r"KAFKA_CFG_.*|KAFKA_TLS_.*|KAFKA_(CLIENT|BROKER|INTER_BROKER|CONTROLLER)_(USERS?|PASSWORDS?)|KAFKA_CERTIFICATE_PASSWORD"
    r"|KAFKA_ZOOKEEPER_(PROTOCOL|USER|PASSWORD|TLS_.*)|KAFKA_ENABLE_KRAFT|KAFKA_KRAFT_CLUSTER_ID|ALLOW_PLAINTEXT_LISTENER"
    r"|BITNAMI_.*"
)
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "HOSTNAME_COMMAND": "KAFKA_ADVERTISED_HOST_NAME",
        "PORT_COMMAND": "KAFKA_ADVERTISED_PORT",
        "BROKER_ID_COMMAND": "KAFKA_BROKER_ID",
        "RACK_COMMAND": "KAFKA_BROKER_RACK",
    }
)
"""wurstmeister's: lines of a shell, and the variable that has their output where it is not set."""
OF_WURSTMEISTER = frozenset(
    {
        *COMMANDS,
        "CUSTOM_INIT_SCRIPT",
        "KAFKA_ADVERTISED_HOST_NAME",
        "KAFKA_ADVERTISED_PORT",
        "KAFKA_ADVERTISED_PROTOCOL_NAME",
        "KAFKA_CREATE_TOPICS",
    }
)


def image_of(environ: Mapping[str, str]) -> Image:
    """The image for which an environment is written; where only the common variables are there, Kafka's own."""
    if any(OF_BITNAMI.fullmatch(name) for name in environ):
        return Image.BITNAMI
    if not OF_WURSTMEISTER.isdisjoint(environ):
        return Image.WURSTMEISTER
    return Image.KAFKA if any(is_of_an_image(name, value) for name, value in environ.items()) else Image.NONE


def is_of_an_image(name: str, value: str) -> bool:
    """Whether a variable is one of the images', and not Kubernetes' or a path of an installation."""
    if not name.startswith(PREFIX) or name in _ABOUT_FILES or _OF_KUBERNETES.fullmatch(name):
        return False
    # A port of wurstmeister's is a number, where Kubernetes has tcp://10.0.0.1:9092.
    return not (_PORT_OF_KUBERNETES.fullmatch(name) and "://" in value)


def setting_of(name: str) -> str:
    """The setting that a variable of Kafka's images stands for."""
    if name in ALIASES:
        return ALIASES[name]
    if name.startswith(BITNAMI_PREFIX):
        # Bitnami has no `__`; the two protocols are all that has a `_` in a key there.
        key = name.removeprefix(BITNAMI_PREFIX)
        if "__" not in key:
            return re.sub(r"sasl\.(ssl|plaintext)(?=\.)", r"sasl_\1", key_of(key))
        return key_of(key)
    return key_of(name.removeprefix(PREFIX))


def key_of(rest: str) -> str:
    """The setting of what stands behind a prefix: `_` is `.`, `__` is `_`, `___` is `-`."""
    return re.sub("_+", lambda run: {1: ".", 2: "_"}.get(len(run[0]), "-"), rest.lower())


def asks_for_protection(name: str) -> bool:
    """Whether a variable of the images is about TLS, SASL or an authorizer, as its name says."""
    return _PROTECTION.fullmatch(name.removeprefix(PREFIX)) is not None
