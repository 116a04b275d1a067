"""Settings of consumer groups: the broker's, and what a group's own configuration says instead.

A group's own session timeout and heartbeat interval are held between the broker's bounds when they are used, as the
bounds may change after they were set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kbroker.coordinator.consumer.assignors.table import ASSIGNORS
from kbroker.metadata.image import ConfigResource

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache

# Kafka's number of the kind of resource that groups' own settings belong to.
GROUP_RESOURCE = 32
SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
GROUP_SETTINGS = frozenset({SESSION_TIMEOUT, HEARTBEAT_INTERVAL, ASSIGNMENT_INTERVAL})


class MigrationPolicy(Enum):
    """Which way a group with members may go between the classic and the consumer protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What applies to one group; times in ms.  `assignors`: the first is the default."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    regex_refresh_interval_ms: int
    max_size: int
    classic_max_size: int
    assignors: tuple[str, ...]
    migration: MigrationPolicy
    _bounds: Mapping[str, tuple[int, int]]

    @staticmethod
    def of(config: BrokerConfig) -> ConsumerSettings:
        """The broker's settings.  ValueError for an assignor that there is not."""
        assignors = tuple(config.get("group.consumer.assignors"))
        unknown = [name for name in assignors if name not in ASSIGNORS]
        if unknown:
            raise ValueError(f"group.consumer.assignors: unknown assignor {unknown[0]!r}")

        return ConsumerSettings(
            config.get("group.consumer.session.timeout.ms"),
            config.get("group.consumer.heartbeat.interval.ms"),
            config.get("group.consumer.assignment.interval.ms"),
            config.get("group.consumer.regex.refresh.interval.ms"),
            config.get("group.consumer.max.size"),
            config.get("group.max.size"),
            assignors,
            MigrationPolicy(config.get("group.consumer.migration.policy").lower()),
            {
                SESSION_TIMEOUT: (
                    config.get("group.consumer.min.session.timeout.ms"),
                    config.get("group.consumer.max.session.timeout.ms"),
                ),
                HEARTBEAT_INTERVAL: (
                    config.get("group.consumer.min.heartbeat.interval.ms"),
                    config.get("group.consumer.max.heartbeat.interval.ms"),
                ),
                ASSIGNMENT_INTERVAL: (
                    config.get("group.consumer.min.assignment.interval.ms"),
                    config.get("group.consumer.max.assignment.interval.ms"),
                ),
            },
        )

    def with_group(self, own: Mapping[str, int]) -> ConsumerSettings:
        """These settings, where a group's own configuration does not say otherwise."""
        if not own:
            return self
        held = {name: min(max(own[name], low), high) for name, (low, high) in self._bounds.items() if name in own}
        return replace(
            self,
            session_timeout_ms=held.get(SESSION_TIMEOUT, self.session_timeout_ms),
            heartbeat_interval_ms=held.get(HEARTBEAT_INTERVAL, self.heartbeat_interval_ms),
            assignment_interval_ms=held.get(ASSIGNMENT_INTERVAL, self.assignment_interval_ms),
        )


class GroupSettings:
    """The settings of each group, from the metadata of the moment."""

    __slots__ = ("_cache", "broker")

    def __init__(self, config: BrokerConfig, cache: MetadataCache) -> None:
        self.broker = ConsumerSettings.of(config)
        self._cache = cache

    def follow(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self.broker = ConsumerSettings.of(config)

    def of_group(self, group_id: str) -> ConsumerSettings:
        """What applies to a group."""
        configs = self._cache.image.configs
        if not configs:
            return self.broker
        own = configs.get(ConfigResource(GROUP_RESOURCE, group_id), {})
        return self.broker.with_group({name: int(value) for name, value in own.items() if name in GROUP_SETTINGS})
