"""Settings of brokers that are changed while they run (KIP-226): checked, stored, and followed by the topics.

Two sets lie over the static settings: those for all brokers (kept under the empty name) and those of this one (under
its node id).  Best first: this broker's, all brokers', static, default.  A setting stored by an earlier version that is
no longer valid is left out, with a warning.

What can be changed are the settings that give topics their defaults, such as `log.retention.ms` or `message.max.bytes`,
which logs without a setting of their own follow at once, and those in `FOLLOWED`.  Everything else is read at start, or
not acted on, and a request to change it is refused with words that say so; stored and not acted on, it would only look
as if it had been changed.

A change is judged as a whole, with all else that is in force: each value, the values together
(`kbroker.config.together`), the size of a step (threads at most double and at least halve), and what a part that
follows has to say (`guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig, ConfigRow, ConfigType, broker_config_rows, topic_config_rows
from kbroker.config.together import contradiction
from kbroker.errors import InvalidRequestError

if TYPE_CHECKING:
    from kbroker.metadata.store import MetadataStore

logger = logging.getLogger("kbroker.metadata")

ALL_BROKERS = ""
PER_BROKER = "broker"


class BrokerSettings:
    """The only writer of broker settings on this node.  `config`: what is in force now, replaced by each change."""

    __slots__ = ("_followers", "_guards", "_node", "_own", "_static", "_store", "config")

    def __init__(self, static: BrokerConfig, store: MetadataStore, node_id: int) -> None:
        self._static = static
        self._store = store
        self._node = str(node_id)
        self._own: dict[str, dict[str, str]] = store.broker_configs()
        self._followers: list[Callable[[BrokerConfig], None]] = []
        self._guards: list[Callable[[BrokerConfig], None]] = []
        self.config = self._at_start()

    def subscribe(self, follower: Callable[[BrokerConfig], None]) -> None:
        """Call `follower(config)` after every change."""
        self._followers.append(follower)

    def guard(self, check: Callable[[BrokerConfig], None]) -> None:
        """Ask `check(config)` before every change; its ValueError refuses it."""
        self._guards.append(check)

    def own(self, broker: str) -> Mapping[str, str]:
        """What was set for one broker (its node id) or for all of them (`ALL_BROKERS`)."""
        return self._own.get(broker, {})

    @staticmethod
    def is_list(name: str) -> bool:
        """Whether the setting's value is a list."""
        row = _row(name)
        return row is not None and row.type is ConfigType.LIST

    def replace(self, broker: str, settings: Mapping[str, str], validate_only: bool = False) -> None:
        """Make `settings` all that is set for a broker, durable and in force when this returns.

        InvalidRequestError, with the reason, when one of those that differ cannot be changed.
        """
        before = self.own(broker)
        self._check({name: text for name, text in settings.items() if before.get(name) != text}, broker)
        merged = self._merged({**self._own, broker: dict(settings)})
        self._judge(merged)
        if validate_only or settings == before:
            return
        self._store.alter_broker_config(broker, settings)
        self._own[broker] = dict(settings)
        self.config = merged
        logger.info("changed the settings of %s to %s", f"broker {broker}" if broker else "all brokers", dict(settings))
        for follower in self._followers:
            follower(self.config)

    @staticmethod
    def _check(changed: Mapping[str, str], broker: str) -> None:
        rows = {name: _row(name) for name in changed}
        unknown = [name for name, row in rows.items() if row is None]
        if unknown:
            raise InvalidRequestError(f"Unknown broker settings: {_listed(unknown)}")
        known = [row for row in rows.values() if row is not None]
        fixed = [row.name for row in known if row.read_only]
        if fixed:
            raise InvalidRequestError(f"Cannot update these configs dynamically: {_listed(fixed)}")
        if broker == ALL_BROKERS:
            single = [row.name for row in known if row.dynamic == PER_BROKER]
            if single:
                raise InvalidRequestError(
                    "Cannot update these configs at default cluster level, broker id must be specified: "
                    + _listed(single)
                )
        for row in known:
            try:
                row.parse(changed[row.name])
            except ValueError as error:
                raise InvalidRequestError(str(error)) from None
        for reason, may_not in _NOT_LIVE:
            names = [row.name for row in known if row.name not in _LIVE and may_not(row)]
            if names:
                raise InvalidRequestError(f"{reason}: {_listed(names)}")

    def _judge(self, merged: BrokerConfig) -> None:
        wrong = contradiction(merged.get)
        if wrong is not None:
            raise InvalidRequestError(f"requirement failed: {wrong[1]}")
        try:
            for name in STEPWISE:
                _check_step(name, self.config.get(name), merged.get(name))
            for check in self._guards:
                check(merged)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None

    def _at_start(self) -> BrokerConfig:
        """What is stored, unless server.properties has been changed so that the two no longer go together."""
        merged = self._merged(self._own)
        wrong = contradiction(merged.get)
        if wrong is None:
            return merged
        logger.warning(
            "ignoring all settings that were changed at run time, as they do not go with the static ones: %s", wrong[1]
        )
        return self._static

    def _merged(self, own: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        return self._static.with_dynamic(_parsed(own.get(ALL_BROKERS, {})), _parsed(own.get(self._node, {})))


def _parsed(settings: Mapping[str, str]) -> dict[str, object]:
    values = {}
    for name, text in settings.items():
        row = _row(name)
        try:
            if row is None or name not in _LIVE:
                raise ValueError("it cannot be changed at run time")
            values[name] = row.parse(text)
        except ValueError as error:
            logger.warning("ignoring the stored setting %s=%s: %s", name, text, error)
    return values


def _check_step(name: str, old: int, new: int) -> None:
    """Kafka's rule for the number of threads (`DynamicThreadPool`)."""
    failed = f"Dynamic thread count update validation failed for {name}={new}, value should "
    if new < old // 2:
        raise ValueError(f"{failed}be at least half the current value {old}")
    if new > old * 2:
        raise ValueError(f"{failed}not be greater than double the current value {old}")


def is_live(name: str) -> bool:
    """Whether a broker setting can be changed while the broker runs."""
    return name in _LIVE


def _row(name: str) -> ConfigRow | None:
    return _ROWS.get(name)


def _listed(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


_ROWS: Mapping[str, ConfigRow] = {row.name: row for row in broker_config_rows()}
FOLLOWED: frozenset[str] = frozenset(
    {
        "cordoned.log.dirs",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Settings that no topic takes over, and that parts of the broker follow while it runs."""
STEPWISE = ("num.network.threads", "num.recovery.threads.per.data.dir")
"""Numbers of threads that may at most double and at least halve in one change; the cleaner judges its own."""
_LIVE: frozenset[str] = FOLLOWED | {
    name for row in topic_config_rows() for name in row.synonyms if not _ROWS[name].read_only
}
_NOT_LIVE: tuple[tuple[str, Callable[[ConfigRow], bool]], ...] = (
    (
        "kbroker reads these settings at start only: set them in server.properties and restart it",
        lambda row: row.implemented,
    ),
    ("kbroker has no TLS and no SASL yet, so these settings would protect nothing", lambda row: row.security),
    ("kbroker does not act on these settings, so changing them would do nothing", lambda row: True),
)
"""Why a setting that Kafka would change at run time cannot be changed here, the first that fits."""
