"""What a share group may set for itself, with the broker's behind it (Kafka's GroupConfig, ShareGroupConfig)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.config import group_config

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

BY_DURATION = "by_duration:"
NO_SETTINGS: Mapping[str, str] = {}
_DURATION = re.compile(r"([+-])?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings of a share group.

    `auto_offset_reset`: `latest`, `earliest` or `by_duration:` and an ISO 8601 duration.
    """

    record_lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    auto_offset_reset: str = "latest"
    read_committed: bool = False
    renew_enabled: bool = True
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200

    @staticmethod
    def of(config: BrokerConfig, own: Mapping[str, str]) -> ShareSettings:
        """The broker's settings, where the group's own do not say otherwise."""
        values = group_config(config, own)
        return ShareSettings(
            record_lock_ms=values["share.record.lock.duration.ms"],
            delivery_count_limit=values["share.delivery.count.limit"],
            max_record_locks=values["share.partition.max.record.locks"],
            auto_offset_reset=values["share.auto.offset.reset"],
            read_committed=values["share.isolation.level"] == "read_committed",
            renew_enabled=values["share.renew.acknowledge.enable"],
            session_timeout_ms=values["share.session.timeout.ms"],
            heartbeat_interval_ms=values["share.heartbeat.interval.ms"],
            assignment_interval_ms=values["share.assignment.interval.ms"],
            max_size=config.get("group.share.max.size"),
        )


class GroupSettings:
    """The settings of each group, worked out once until the broker's or the group's change."""

    def __init__(self, config: Callable[[], BrokerConfig], own: Callable[[str], Mapping[str, str]]) -> None:
        self._config = config
        self._own = own
        self._known: dict[str, tuple[object, Mapping[str, str], ShareSettings]] = {}

    def __call__(self, group_id: str) -> ShareSettings:
        config, own = self._config(), self._own(group_id)
        known = self._known.get(group_id)
        if known is not None and known[0] is config and known[1] is own:
            return known[2]
        settings = ShareSettings.of(config, own)
        self._known[group_id] = config, own, settings
        return settings

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._known.pop(group_id, None)


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days and shorter units, as Java's Duration reads it, in milliseconds.  ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ValueError(f"{text!r} is no duration")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups()[1:])
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return int(total * 1000) * (-1 if match[1] == "-" else 1)
