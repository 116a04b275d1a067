"""Settings of streams groups: the broker's, and what a group's own configuration says instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.config.group import GroupConfig, group_config
from kbroker.metadata.group_configs import GROUP_RESOURCE
from kbroker.metadata.image import ConfigResource

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """What applies to one group; times in ms."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    num_standby_replicas: int
    max_size: int

    @staticmethod
    def of(own: GroupConfig, max_size: int) -> StreamsSettings:
        """The settings of a group, from its configuration, which has the broker's values where it sets none."""
        return StreamsSettings(
            own["streams.session.timeout.ms"],
            own["streams.heartbeat.interval.ms"],
            own["streams.assignment.interval.ms"],
            own["streams.initial.rebalance.delay.ms"],
            own["streams.num.standby.replicas"],
            max_size,
        )

    @property
    def assignment_configs(self) -> dict[str, str]:
        """What an assignment goes by, as the group's record names it."""
        return {"num.standby.replicas": str(self.num_standby_replicas)}


class GroupSettings:
    """The settings of each group, from the metadata of the moment."""

    __slots__ = ("_cache", "_config", "broker", "serves_streams")

    def __init__(self, config: BrokerConfig, cache: MetadataCache) -> None:
        self._cache = cache
        self.serves_streams = "streams" in config.get("group.coordinator.rebalance.protocols")
        self.follow(config)

    def follow(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self._config = config
        self.broker = StreamsSettings.of(group_config(config, {}), config.get("group.streams.max.size"))

    def of_group(self, group_id: str) -> StreamsSettings:
        """What applies to a group."""
        configs = self._cache.image.configs
        own = configs.get(ConfigResource(GROUP_RESOURCE, group_id)) if configs else None
        return self.broker if own is None else StreamsSettings.of(group_config(self._config, own), self.broker.max_size)
