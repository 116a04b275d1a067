"""Settings of streams groups: the broker's, and what a group's own configuration says instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.config.group import GroupConfig, group_config
from kbroker.coordinator.modern.kind_settings import KindSettings

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


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


class GroupSettings(KindSettings[StreamsSettings]):
    """The settings of each streams group."""

    __slots__ = ()
    protocol = "streams"

    def _of_broker(self, config: BrokerConfig) -> StreamsSettings:
        return StreamsSettings.of(group_config(config, {}), config.get("group.streams.max.size"))

    def _of_own(self, own: GroupConfig) -> StreamsSettings:
        return StreamsSettings.of(own, self.broker.max_size)
