"""`KAFKA_…` variables of the environment, by which Kafka's container images are set up and which kbroker does not read.

They are named at a start, in one warning.  A variable that asks for protection ends the start: otherwise a broker that
its owner believes protected would serve everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbroker.config.images.names import LOGIN_FILE, PREFIX, asks_for_protection, is_of_an_image, setting_of
from kbroker.config.judgement import judge

_PLAIN = "PLAINTEXT"
_NAMES_OF_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class UnprotectedError(Exception):
    """The environment asks for protection that there is none of; the text says which variables do."""


def unread_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """The warning, if there is something to warn of.  UnprotectedError."""
    names = sorted(name for name, value in environ.items() if is_of_an_image(name, value))
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
    if key == "security.protocol":
        return value.upper() != _PLAIN
    judged = judge(key, value)
    protects = asks_for_protection(name)
    if judged.row is not None:
        return (judged.row.security or protects) and judged.value != judged.row.default
    return LOGIN_FILE in value or protects


def _protocols(text: str) -> dict[str, str]:
    pairs = (item.partition(":") for item in text.upper().split(",") if ":" in item)
    return {listener.strip(): protocol.strip() for listener, _, protocol in pairs}
