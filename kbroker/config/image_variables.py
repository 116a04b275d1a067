"""`KAFKA_…` variables of the environment, by which Kafka's container images are set up and which kbroker does not read.

They are named at a start, in one warning.  A variable that asks for protection ends the start: otherwise a broker that
its owner believes protected would serve everybody.

    KAFKA_LOG_DIRS, KAFKA_CFG_LOG_DIRS      log.dirs; `__` stands for `_`, `___` for `-`
    KAFKA_SERVICE_HOST, KAFKA_PORT_…        Kubernetes' words about a service that is called kafka: nobody's settings
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kbroker.config.judgement import judge

PREFIX = "KAFKA_"
_OF_KUBERNETES = re.compile(r"KAFKA_(.*_)?(SERVICE_(HOST|PORT(_.*)?)|PORT(_[0-9]+_(TCP|UDP).*)?)")
_ABOUT_FILES = frozenset({"KAFKA_HOME", "KAFKA_TOOL_HOME", "KAFKA_VERSION"})
_PROTECTION = re.compile(
    r"(CFG_)?(LISTENER_NAME_.*)?(AUTHORIZER|SASL|SSL|TLS|SUPER_USERS|DELEGATION_TOKEN|OPA_|.*_SASL_|.*_SSL_|"
    r"ALLOW_EVERYONE|SECURITY_INTER_BROKER|.*(KEYSTORE|TRUSTSTORE|JAAS|PASSWORD|CREDENTIALS)).*"
)
_LOGIN = "java.security.auth.login.config"
_PLAIN = "PLAINTEXT"
_NAMES_OF_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class UnprotectedError(Exception):
    """The environment asks for protection that there is none of; the text says which variables do."""


def unread_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """The warning, if there is something to warn of.  UnprotectedError."""
    names = sorted(
        name
        for name in environ
        if name.startswith(PREFIX) and name not in _ABOUT_FILES and not _OF_KUBERNETES.fullmatch(name)
    )
    protection = [name for name in names if _asks_for_protection(name, environ)]
    if protection:
        raise UnprotectedError(
            f"environment {', '.join(protection)}: asks for protection (TLS, SASL or an authorizer), and kbroker "
            f"reads no {PREFIX} variables; it refuses to start unprotected, remove "
            f"{'it' if len(protection) == 1 else 'them'} to go on without"
        )
    if names:
        yield (
            f"environment {', '.join(names)}: variables of Kafka's container images, which kbroker does not read; "
            "KBROKER_LOG_DIRS is log.dirs, and so on (docs/configuration.md)"
        )


def setting_of(name: str) -> str:
    """The setting that a variable of Kafka's images stands for."""
    return key_of(name.removeprefix(PREFIX).removeprefix("CFG_"))


def key_of(rest: str) -> str:
    """The setting of what stands behind a prefix: `_` is `.`, `__` is `_`, `___` is `-`."""
    return re.sub("_+", lambda run: {1: ".", 2: "_"}.get(len(run[0]), "-"), rest.lower())


def _asks_for_protection(name: str, environ: Mapping[str, str]) -> bool:
    value = environ[name].strip()
    if not value:
        return False
    key = setting_of(name)
    if key in ("listeners", "advertised.listeners"):
        map_name = next((each for each in environ if setting_of(each) == "listener.security.protocol.map"), "")
        protocols = _protocols(environ.get(map_name, ""))
        used = (item.partition("://")[0].strip().upper() for item in value.split(",") if "://" in item)
        return any(protocols.get(each, each if each in _NAMES_OF_PROTOCOLS else _PLAIN) != _PLAIN for each in used)
    if key == "listener.security.protocol.map":
        # The default names protocols that no listener needs to use.
        return any(protocol not in (_PLAIN, listener) for listener, protocol in _protocols(value).items())
    judged = judge(key, value)
    protects = _PROTECTION.fullmatch(name.removeprefix(PREFIX)) is not None
    if judged.row is not None:
        return (judged.row.security or protects) and judged.value != judged.row.default
    return _LOGIN in value or protects


def _protocols(text: str) -> dict[str, str]:
    pairs = (item.partition(":") for item in text.upper().split(",") if ":" in item)
    return {listener.strip(): protocol.strip() for listener, _, protocol in pairs}
