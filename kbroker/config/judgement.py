"""The verdict on a single setting: whether it is known, valid, acted on, deprecated.

The start, `kbroker doctor` and `kbroker config check` judge by it alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from kbroker.config.classes import OF_MECHANISMS as CLASSES_OF_MECHANISMS
from kbroker.config.classes import names_classes
from kbroker.config.row import ConfigRow
from kbroker.config.table import BROKER_TABLE, DEPRECATED, REMOVED, TOPIC_TABLE
from kbroker.config.value import InvalidValueError, UnacceptableListError
from kbroker.nearest import MISSPELT, did_you_mean

LISTENER_PREFIX = "listener.name."
# What a single listener may have of its own, and of those what each of its SASL mechanisms may.
OF_MECHANISMS = frozenset(
    {
        "connections.max.reauth.ms",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        *CLASSES_OF_MECHANISMS,
    }
)
OF_LISTENERS = OF_MECHANISMS | {
    "max.connection.creation.rate",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
    *(name for name in BROKER_TABLE if name.startswith("ssl.")),
}


SWITCHES = MappingProxyType(
    {("kafka.metrics.reporters", "kafka.metrics.KafkaCSVMetricsReporter"): "kafka.csv.metrics.reporter.enabled"}
)
"""Settings that ask for nothing until another one is true, as the files that came with Kafka 0.8 have them."""


class Verdict(StrEnum):
    """What becomes of a setting at the start."""

    FINE = "fine"
    UNKNOWN = "unknown"
    REMOVED = "removed"
    NO_EFFECT = "no effect"
    INVALID = "invalid"
    REFUSED = "refused"

    @property
    def stops(self) -> bool:
        """Whether the broker does not start with it."""
        return self in (Verdict.INVALID, Verdict.REFUSED)


class Judgement(NamedTuple):
    """`why` goes on behind the setting's name; of what stops the start it is a sentence of its own."""

    verdict: Verdict
    why: str = ""
    row: ConfigRow | None = None
    value: Any = None
    listener: str | None = None
    """The listener, in lower case, that the setting is of alone."""
    mechanism: str = ""
    """The SASL mechanism of that listener, in lower case, that the setting is of alone."""

    def __repr__(self) -> str:
        """Without the value, which may be a password."""
        return f"Judgement({self.verdict}, {None if self.row is None else self.row.name})"

    @property
    def is_of_listener(self) -> bool:
        """Whether a single listener, or its mechanism, may have the setting of its own."""
        if self.row is None or self.listener is None:
            return False
        return self.row.name in (OF_MECHANISMS if self.mechanism else OF_LISTENERS)

    @property
    def deprecated(self) -> str:
        """Why it can go, if it is deprecated."""
        return "" if self.row is None else DEPRECATED.get(self.row.name, "")


def judge(key: str, text: str, others: Mapping[str, str] = MappingProxyType({})) -> Judgement:
    """Judge `key=text`.  `others`: what else is set, as text, for settings that another one switches off."""
    row, listener, mechanism = find_row(key)
    if row is None:
        return _not_known(key)
    try:
        value = row.parse(text)
    except (InvalidValueError, UnacceptableListError) as error:
        return Judgement(Verdict.INVALID, str(error), row, None, listener, mechanism)
    if row.security and row.asks(value):
        which = f": {row.why_not(value)}" if names_classes(row.name) else ""
        why = (
            f"{key} asks for protection that kbroker does not have{which}; "
            "it refuses to start unprotected, remove the setting to go on without"
        )
        return Judgement(Verdict.REFUSED, why, row, value, listener, mechanism)
    switch = SWITCHES.get((row.name, text.strip()))
    if switch is not None and others.get(switch, "false").strip().lower() != "true":
        return Judgement(Verdict.NO_EFFECT, f"has no effect: {switch} does not switch it on", row, value, listener)
    if row.refused and row.asks(value):
        why = (
            f"{key} asks for what kbroker cannot do: {row.why_not(value)}; it refuses to start rather than ignore it, "
            "remove the setting to go on without"
        )
        return Judgement(Verdict.REFUSED, why, row, value, listener, mechanism)
    judged = Judgement(Verdict.FINE, "", row, value, listener, mechanism)
    if row.refused or (row.implemented and (listener is None or judged.is_of_listener)):
        return judged
    why = "settings of single listeners are not implemented yet" if row.implemented else row.reason
    return judged._replace(verdict=Verdict.NO_EFFECT, why=f"has no effect: {why}")


def find_row(key: str) -> tuple[ConfigRow | None, str | None, str]:
    """The row of a key, and the listener and the mechanism of a key of a single one
    (`listener.name.<listener>.<key>`, `listener.name.<listener>.<mechanism>.<key>`)."""
    row = BROKER_TABLE.get(key)
    if row is not None or not key.startswith(LISTENER_PREFIX):
        return row, None, ""
    listener, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
    row = BROKER_TABLE.get(rest)
    if row is not None:
        return row, listener.lower(), ""
    mechanism, _, rest = rest.partition(".")
    return BROKER_TABLE.get(rest), listener.lower(), mechanism.lower()


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Broker settings as a log may show them."""
    rows = {key: find_row(key)[0] for key in settings}
    return {
        key: "[hidden]" if (row := rows[key]) is not None and row.sensitive else value
        for key, value in settings.items()
    }


def _not_known(key: str) -> Judgement:
    if key in REMOVED:
        return Judgement(Verdict.REMOVED, "is ignored: Kafka removed it in version 4")
    topics = TOPIC_TABLE.get(key)
    if topics is not None and topics.synonyms:
        hint = f": it is a topic's setting, and {topics.synonyms[0]} is what topics have without one"
    else:
        hint = did_you_mean(key.replace("_", "."), BROKER_TABLE, MISSPELT)
    return Judgement(Verdict.UNKNOWN, f"is not a known setting and is ignored{hint}")
