"""The settings of the groups of one kind.  A group's own settings (KIP-848, `kafka-configs --entity-type groups`) come
before the broker's; both are read from the current metadata."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from kbroker.config.group import GroupConfig, group_config
from kbroker.metadata.group_configs import GROUP_RESOURCE
from kbroker.metadata.image import ConfigResource

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache

SettingsT = TypeVar("SettingsT")


class KindSettings(ABC, Generic[SettingsT]):
    """`broker`: what applies to a group that sets nothing of its own; `is_served`: whether
    `group.coordinator.rebalance.protocols` has the kind's protocol."""

    __slots__ = ("_cache", "_config", "broker", "is_served")

    protocol: str
    """As `group.coordinator.rebalance.protocols` names it."""

    def __init__(self, config: BrokerConfig, cache: MetadataCache) -> None:
        self._cache = cache
        self.is_served = self.protocol in config.get("group.coordinator.rebalance.protocols")
        self.follow(config)

    def follow(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self._config = config
        self.broker = self._of_broker(config)

    def of_group(self, group_id: str) -> SettingsT:
        """What applies to a group."""
        configs = self._cache.image.configs
        own = configs.get(ConfigResource(GROUP_RESOURCE, group_id)) if configs else None
        return self.broker if own is None else self._of_own(group_config(self._config, own))

    @abstractmethod
    def _of_broker(self, config: BrokerConfig) -> SettingsT:
        """What the broker's settings say."""

    @abstractmethod
    def _of_own(self, own: GroupConfig) -> SettingsT:
        """What a group's own settings say, in front of the broker's."""
