"""What a share group may set for itself, with the broker's behind it (Kafka's GroupConfig, ShareGroupConfig)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings that matter where the records are.

    `auto_offset_reset`: `latest`, `earliest` or `by_duration:` and an ISO 8601 duration.
    """

    record_lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    auto_offset_reset: str = "latest"
    read_committed: bool = False
    renew_enabled: bool = True
