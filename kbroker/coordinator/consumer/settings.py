"""Settings of consumer groups: the broker's, and what a group's own configuration says instead.

`kbroker.config.group` says what a group's own settings are, between the broker's bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kbroker.config.classes import assignor_name
from kbroker.coordinator.consumer.assignors.table import ASSIGNORS
from kbroker.coordinator.modern.kind_settings import KindSettings

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.group import GroupConfig

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


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

    @staticmethod
    def of(config: BrokerConfig) -> ConsumerSettings:
        """The broker's settings.  ValueError for an assignor that there is not."""
        assignors = tuple(map(assignor_name, config.get("group.consumer.assignors")))
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
        )

    def with_group(self, own: GroupConfig) -> ConsumerSettings:
        """These settings with a group's own values."""
        return replace(
            self,
            session_timeout_ms=own[SESSION_TIMEOUT],
            heartbeat_interval_ms=own[HEARTBEAT_INTERVAL],
            assignment_interval_ms=own[ASSIGNMENT_INTERVAL],
        )


class GroupSettings(KindSettings[ConsumerSettings]):
    """The settings of each consumer group."""

    __slots__ = ()
    protocol = "consumer"

    def _of_broker(self, config: BrokerConfig) -> ConsumerSettings:
        return ConsumerSettings.of(config)

    def _of_own(self, own: GroupConfig) -> ConsumerSettings:
        return self.broker.with_group(own)
