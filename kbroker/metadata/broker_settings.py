"""Settings of brokers that are changed while they run (KIP-226): checked, and followed by the topics.

The controller stores a change once `check` has found nothing against it; it takes effect here when the image that
contains it is published.  Two sets lie over the static settings: those for all brokers (kept under the empty name) and
those of this one (under its node id).  Best first: this broker's, all brokers', static, default.  A setting stored by
an earlier version that is no longer valid is left out, with a warning.

Two kinds of settings can be changed: the topics' defaults, such as `log.retention.ms` or `message.max.bytes`, which
take effect at once in logs without a setting of their own, and those in `FOLLOWED`; those of TLS change for one
listener at a time (`listener.name.<listener>.ssl.…`).  Those in `STORED` tune parts that
this broker does not have: they are stored and shown, as Kafka would, and nothing depends on them.  Every other setting
is read at start, belongs to SASL, or asks for something that kbroker cannot do: a request to change it is
refused with the reason.

`min.insync.replicas` is always set for all brokers, initially to the static value.  While
`eligible.leader.replicas.version` is above 0, as it is in new Kafka clusters, it can be changed for all brokers, but
neither removed nor set for one broker (KIP-966).

A change is judged as a whole, with all else that is in force: each value, the values together
(`kbroker.config.together`), the size of a step (threads at most double and at least halve), and what a part that
follows has to say (`guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.config import BrokerConfig, ConfigRow, ConfigType, broker_config_rows, topic_config_rows
from kbroker.config.judgement import LISTENER_PREFIX, OF_LISTENERS, find_row
from kbroker.config.together import contradiction, local_retention_error
from kbroker.errors import InvalidConfigError, InvalidRequestError
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta

logger = logging.getLogger("kbroker.metadata")

ALL_BROKERS = ""
BROKER_RESOURCE = 4
PER_BROKER = "broker"
MIN_INSYNC: Final = "min.insync.replicas"


class BrokerSettings:
    """What is set at run time on this node.  `config`: what is in force now, replaced by each change."""

    __slots__ = ("_followers", "_guards", "_has_elr", "_node", "_own", "_static", "config")

    def __init__(self, static: BrokerConfig, cache: MetadataCache, node_id: int) -> None:
        self._static = static
        self._node = str(node_id)
        self._own: dict[str, Mapping[str, str]] = broker_configs(cache.image)
        self._has_elr = _has_elr(cache.image)
        self._followers: list[Callable[[BrokerConfig], None]] = []
        self._guards: list[Callable[[BrokerConfig], None]] = []
        self.config = self._at_start()
        cache.subscribe(self._on_change)

    def config_of(self, image: ClusterImage) -> BrokerConfig:
        """What is in force with the settings of an image, which may be ahead of what is published."""
        own = broker_configs(image)
        return self.config if own == self._own else self._merged(own)

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

    def check(
        self, broker: str, before: Mapping[str, str], settings: Mapping[str, str], named: Collection[str] = ()
    ) -> None:
        """InvalidRequestError, with the reason, when a broker, or all of them, can't be given these settings.

        `named`: those that the request names, also where it changes nothing."""
        changed = {name: text for name, text in settings.items() if before.get(name) != text}
        self._check(changed, broker)
        if self._has_elr:
            _check_min_insync(settings, broker, named)
        self._judge(self._merged({**self._own, broker: settings}))

    def _on_change(self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        self._has_elr = _has_elr(new)
        changed = [resource for resource in delta.configs if resource.kind == BROKER_RESOURCE]
        if not changed:
            return
        for resource in changed:
            before, after = old.configs.get(resource, {}), delta.configs[resource]
            names = {name for name in (*before, *after) if before.get(name) != after.get(name)}
            without_effect = sorted(STORED.intersection(names))
            for name in without_effect:
                logger.warning("%s is stored and shown, and has no effect: %s", name, _ROWS[name].reason)
        self._own = broker_configs(new)
        self.config = self._merged(self._own)
        for follower in self._followers:
            follower(self.config)

    @staticmethod
    def _check(changed: Mapping[str, str], broker: str) -> None:
        rows = {name: _row(name) for name in changed}
        unknown = [name for name, row in rows.items() if row is None]
        if unknown:
            raise InvalidRequestError(f"Unknown broker settings: {_listed(unknown)}")
        known = {name: row for name, row in rows.items() if row is not None}
        fixed = [name for name, row in known.items() if row.read_only]
        if fixed:
            raise InvalidRequestError(f"Cannot update these configs dynamically: {_listed(fixed)}")
        if broker == ALL_BROKERS:
            single = [name for name, row in known.items() if row.dynamic == PER_BROKER]
            if single:
                raise InvalidRequestError(
                    "Cannot update these configs at default cluster level, broker id must be specified: "
                    + _listed(single)
                )
        bare = [name for name, row in known.items() if name == row.name and name in OF_ONE_LISTENER]
        if bare:
            raise InvalidRequestError(
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                + _listed(bare)
            )
        for name, row in known.items():
            try:
                value = row.parse(changed[name])
            except ValueError as error:
                raise InvalidRequestError(str(error)) from None
            if row.name in NOT_NONE and value <= 0:
                raise InvalidRequestError(f"Invalid {name} {value}")
        for reason, may_not in _NOT_LIVE:
            names = [name for name, row in known.items() if row.name not in _CHANGEABLE and may_not(row)]
            if names:
                raise InvalidRequestError(f"{reason}: {_listed(names)}")
        for name, row in known.items():
            value = row.parse(changed[name])
            if row.refused and not row.security and row.asks(value):
                raise InvalidRequestError(f"{name} asks for what kbroker cannot do: {row.why_not(value)}")

    def _judge(self, merged: BrokerConfig) -> None:
        wrong = contradiction(merged.value_of)
        if wrong is not None:
            raise InvalidRequestError(f"requirement failed: {wrong[1]}")
        kept = local_retention_error(merged.value_of)
        if kept is not None:
            raise InvalidRequestError(kept)
        try:
            for name in STEPWISE:
                _check_step(name, self.config.value_of(name), merged.value_of(name))
            for check in self._guards:
                check(merged)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None

    def _at_start(self) -> BrokerConfig:
        """What is stored, unless server.properties has been changed so that the two no longer go together."""
        merged = self._merged(self._own)
        wrong = contradiction(merged.value_of)
        if wrong is None:
            return merged
        logger.warning(
            "ignoring all settings that were changed at run time, as they do not go with the static ones: %s", wrong[1]
        )
        return self._static

    def _merged(self, own: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        return self._static.with_dynamic(_parsed(own.get(ALL_BROKERS, {})), _parsed(own.get(self._node, {})))


def broker_configs(image: ClusterImage) -> dict[str, Mapping[str, str]]:
    """What was set at run time, by node id; the empty name stands for all brokers."""
    return {resource.name: values for resource, values in image.configs.items() if resource.kind == BROKER_RESOURCE}


def with_min_insync(stored: Mapping[str, Mapping[str, str]], static: BrokerConfig) -> dict[str, Mapping[str, str]]:
    """What is set for brokers, by name, with `min.insync.replicas` for all of them and for no single one."""
    kept: dict[str, dict[str, str]] = {
        broker: {name: text for name, text in settings.items() if not broker or name != MIN_INSYNC}
        for broker, settings in stored.items()
    }
    for_all = kept.setdefault(ALL_BROKERS, {})
    for_all.setdefault(MIN_INSYNC, str(static.get(MIN_INSYNC)))
    if MIN_INSYNC in static.explicit and str(static.get(MIN_INSYNC)) != for_all[MIN_INSYNC]:
        logger.warning(
            "%s=%s is set for the cluster at run time and goes before the %s of server.properties: change it with "
            "kbroker settings or kafka-configs",
            MIN_INSYNC,
            for_all[MIN_INSYNC],
            static.get(MIN_INSYNC),
        )
    return dict(kept)


def _has_elr(image: ClusterImage) -> bool:
    return image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0


def _check_min_insync(settings: Mapping[str, str], broker: str, named: Collection[str]) -> None:
    """Kafka's rule, in its words."""
    if broker == ALL_BROKERS and MIN_INSYNC not in settings:
        raise InvalidConfigError(f"Cluster-level {MIN_INSYNC} cannot be removed while ELR is enabled.")
    if broker != ALL_BROKERS and (MIN_INSYNC in settings or MIN_INSYNC in named):
        raise InvalidConfigError(f"Broker-level {MIN_INSYNC} cannot be altered while ELR is enabled.")


def _parsed(settings: Mapping[str, str]) -> dict[str, object]:
    values = {}
    for name, text in settings.items():
        row = _row(name)
        try:
            if row is None or row.name not in _CHANGEABLE:
                raise ValueError("it cannot be changed at run time")
            values[name] = row.parse(text)
        except ValueError as error:
            shown = "[hidden]" if row is not None and row.sensitive else text
            logger.warning("ignoring the stored setting %s=%s: %s", name, shown, error)
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
    row = _ROWS.get(name)
    if row is None and name.startswith(LISTENER_PREFIX):
        row = find_row(name)[0]
        return row if row is not None and row.name in OF_LISTENERS else None
    return row


def _listed(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


_ROWS: Mapping[str, ConfigRow] = {row.name: row for row in broker_config_rows()}
OF_ONE_LISTENER: frozenset[str] = frozenset(
    row.name for row in _ROWS.values() if row.dynamic and row.implemented and row.name.startswith("ssl.")
) | {"sasl.jaas.config"}
"""Settings that change at run time for one listener each: stores, protocols and suites of TLS, login modules."""
FOLLOWED: frozenset[str] = OF_ONE_LISTENER | frozenset(
    {
        "cordoned.log.dirs",
        "follower.replication.throttled.rate",
        "group.consumer.assignment.interval.ms",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "kbroker.disk.reserve.bytes",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "num.network.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "sasl.enabled.mechanisms",
        "sasl.kerberos.principal.to.local.rules",
        "transaction.partition.verification.enable",
    }
)
"""Settings that no topic takes over, and that parts of the broker follow while it runs."""
STORED: frozenset[str] = frozenset(
    row.name for row in _ROWS.values() if row.dynamic and not row.implemented and not row.security
) | {
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
}
"""Settings without effect here, which are stored and shown as in Kafka; those of logins protect nothing themselves."""
NOT_NONE = ("max.connections", "max.connection.creation.rate")
"""Limits that may be 0 at start; a change at run time must leave something."""
STEPWISE = (
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.io.threads",
    "num.replica.fetchers",
    "background.threads",
)
"""Numbers of threads that may at most double and at least halve in one change; the cleaner judges its own."""
_LIVE: frozenset[str] = FOLLOWED | {
    name for row in topic_config_rows() for name in row.synonyms if row.implemented and not _ROWS[name].read_only
}
_CHANGEABLE: frozenset[str] = _LIVE | STORED
_NOT_LIVE: tuple[tuple[str, Callable[[ConfigRow], bool]], ...] = (
    (
        "kbroker reads these settings at start only: set them in server.properties and restart it",
        lambda row: row.implemented,
    ),
    ("kbroker does not act on these settings, so they would protect nothing", lambda row: row.security),
)
"""Why a setting that Kafka would change at run time cannot be changed here, the first that fits."""
