"""The settings of groups as coordinators use them: what was set for a group, over what the broker says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.config import GroupConfig, group_config
from kbroker.metadata.image import ConfigResource

if TYPE_CHECKING:
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache

GROUP_RESOURCE = 32


class GroupConfigs:
    """Looks settings up in the newest image, so that a change is in force with the next look."""

    __slots__ = ("_cache", "_settings")

    def __init__(self, cache: MetadataCache, settings: BrokerSettings) -> None:
        self._cache = cache
        self._settings = settings

    def own(self, group_id: str) -> Mapping[str, str]:
        """What was set for the group itself, as text."""
        return self._cache.image.configs.get(ConfigResource(GROUP_RESOURCE, group_id), {})

    def of(self, group_id: str) -> GroupConfig:
        """Every setting of the group by name, checked and held between the broker's bounds."""
        return group_config(self._settings.config, self.own(group_id))
