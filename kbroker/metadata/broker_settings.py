"""Settings of brokers that are changed while they run (KIP-226): checked, stored, and followed by the topics.

Two sets lie over the static settings: those for all brokers (kept under the empty name) and those of this one (under
its node id).  Best first: this broker's, all brokers', static, default.  A setting stored by an earlier version that is
no longer valid is left out, with a warning.

What can be changed are the settings that give topics their defaults, such as `log.retention.ms` or `message.max.bytes`,
which logs without a setting of their own follow at once, and those in `FOLLOWED`.  Those in `STORED` tune parts that
this broker does not have: they are stored and shown, as Kafka would, and nothing depends on them.  Everything else is
read at start, or would protect something, and a request to change it is refused with words that say so.

`min.insync.replicas` is always set for all brokers, first to the static value: as in a Kafka cluster with eligible
leader replicas (KIP-966), the default of new ones, it can be changed there and neither removed nor set for one broker.

A change is judged as a whole, with all else that is in force: each value, the values together
(`kbroker.config.together`), the size of a step (threads at most double and at least halve), and what a part that
follows has to say (`guard`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig, ConfigRow, ConfigType, broker_config_rows, topic_config_rows
from kbroker.config.together import contradiction
from kbroker.errors import InvalidConfigError, InvalidRequestError, KafkaStorageError
from kbroker.metadata.store import StoreCalls

if TYPE_CHECKING:
    from kbroker.metadata.store import MetadataStore

logger = logging.getLogger("kbroker.metadata")

ALL_BROKERS = ""
PER_BROKER = "broker"
MIN_INSYNC = "min.insync.replicas"


class BrokerSettings:
    """The only writer of broker settings on this node.  `config`: what is in force now, replaced by each change."""

    __slots__ = ("_call", "_changing", "_followers", "_guards", "_node", "_own", "_static", "_store", "config")

    def __init__(
        self, static: BrokerConfig, store: MetadataStore, node_id: int, call: StoreCalls | None = None
    ) -> None:
        self._static = static
        self._store = store
        self._call = call or StoreCalls()
        self._changing = asyncio.Lock()
        self._node = str(node_id)
        self._own: dict[str, dict[str, str]] = store.broker_configs()
        self._followers: list[Callable[[BrokerConfig], None]] = []
        self._guards: list[Callable[[BrokerConfig], None]] = []
        self._keep_min_insync()
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

    async def change(
        self, broker: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool = False
    ) -> None:
        """Make what `change` makes of all that is set for a broker, durable and in force when this returns.

        InvalidRequestError, with the reason, when one of those that differ cannot be changed.
        """
        async with self._changing:
            before = self.own(broker)
            settings = dict(change(before))
            changed = {name: text for name, text in settings.items() if before.get(name) != text}
            self._check(changed, broker)
            _check_min_insync(settings, broker)
            merged = self._merged({**self._own, broker: settings})
            self._judge(merged)
            if validate_only or settings == before:
                return
            await self._call(self._store.alter_broker_config, broker, settings)
            self._own[broker] = settings
            self.config = merged
            logger.info("changed the settings of %s to %s", f"broker {broker}" if broker else "all brokers", settings)
            without_effect = sorted(STORED.intersection(changed))
            if without_effect:
                logger.warning("kbroker stores and shows these settings and does not act on them: %s", without_effect)
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
            names = [row.name for row in known if row.name not in _CHANGEABLE and may_not(row)]
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

    def _keep_min_insync(self) -> None:
        """Give all brokers `min.insync.replicas`, where there is none yet, and no single one."""
        kept = {
            broker: {name: text for name, text in settings.items() if not broker or name != MIN_INSYNC}
            for broker, settings in self._own.items()
        }
        kept.setdefault(ALL_BROKERS, {}).setdefault(MIN_INSYNC, str(self._static.get(MIN_INSYNC)))
        for broker, settings in kept.items():
            if settings == self._own.get(broker):
                continue
            try:
                self._store.alter_broker_config(broker, settings)
            except KafkaStorageError as error:
                # In force without it, and tried again at the next start.
                logger.warning("cannot store %s: %s", MIN_INSYNC, error)
        self._own = kept
        static, stored = self._static.get(MIN_INSYNC), kept[ALL_BROKERS][MIN_INSYNC]
        if MIN_INSYNC in self._static.explicit and str(static) != stored:
            logger.warning(
                "%s=%s is set for the cluster at run time and goes before the %s of server.properties: change it with "
                "kbroker settings or kafka-configs",
                MIN_INSYNC,
                stored,
                static,
            )

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


def _check_min_insync(settings: Mapping[str, str], broker: str) -> None:
    """Kafka's rule, in its words."""
    if broker == ALL_BROKERS and MIN_INSYNC not in settings:
        raise InvalidConfigError(f"Cluster-level {MIN_INSYNC} cannot be removed while ELR is enabled.")
    if broker != ALL_BROKERS and MIN_INSYNC in settings:
        raise InvalidConfigError(f"Broker-level {MIN_INSYNC} cannot be altered while ELR is enabled.")


def _parsed(settings: Mapping[str, str]) -> dict[str, object]:
    values = {}
    for name, text in settings.items():
        row = _row(name)
        try:
            if row is None or name not in _CHANGEABLE:
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
STORED: frozenset[str] = frozenset(
    {
        "background.threads",
        "follower.fetch.last.tiered.offset.enable",
        "follower.replication.throttled.rate",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "leader.replication.throttled.rate",
        "num.io.threads",
        "num.replica.fetchers",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "share.coordinator.cached.buffer.max.bytes",
        "transaction.partition.verification.enable",
    }
)
"""Settings of threads, followers, remote storage, other kinds of groups and logins that this broker does not have."""
STEPWISE = (
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.io.threads",
    "num.replica.fetchers",
    "background.threads",
)
"""Numbers of threads that may at most double and at least halve in one change; the cleaner judges its own."""
_LIVE: frozenset[str] = FOLLOWED | {
    name for row in topic_config_rows() for name in row.synonyms if not _ROWS[name].read_only
}
_CHANGEABLE: frozenset[str] = _LIVE | STORED
_NOT_LIVE: tuple[tuple[str, Callable[[ConfigRow], bool]], ...] = (
    (
        "kbroker reads these settings at start only: set them in server.properties and restart it",
        lambda row: row.implemented,
    ),
    ("kbroker has no TLS and no SASL yet, so these settings would protect nothing", lambda row: row.security),
    ("kbroker does not act on these settings, so changing them would do nothing", lambda row: True),
)
"""Why a setting that Kafka would change at run time cannot be changed here, the first that fits."""
