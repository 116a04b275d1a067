"""Topic settings: validation with Kafka's texts, and the values that a log runs by.

A topic's setting comes from the topic, else from the first of the broker settings behind it that has a value (hours and
minutes turned into milliseconds), else from the table.  `LogConfig` fields are the settings' names with underscores.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kbroker.config.table import TOPIC_TABLE
from kbroker.config.value import InvalidValueError, UnacceptableListError
from kbroker.errors import InvalidConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

logger = logging.getLogger("kbroker.config")

MESSAGE_FORMAT = "message.format.version"

MAX_LONG = 2**63 - 1
COMPACT = "compact"
DELETE = "delete"
_MILLISECONDS = {"minutes": 60_000, "hours": 3_600_000}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic's logs; without arguments, Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    max_message_bytes: int = 1_048_588
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3_600_000
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    remote_storage_enable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    message_format_version: str = "3.0-IV1"
    message_downconversion_enable: bool = True
    confluent_key_schema_validation: bool = False
    confluent_value_schema_validation: bool = False
    internal_segment_bytes: int | None = None

    @property
    def compact(self) -> bool:
        """Whether the log is compacted."""
        return COMPACT in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention deletes segments."""
        return DELETE in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamps records with its own time."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def message_magic(self) -> int:
        """The format that records are stored in: 2 for batches, 0 and 1 for the messages of older releases."""
        return _magic_of(self.message_format_version)

    @property
    def roll_bytes(self) -> int:
        """The size at which a segment rolls."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes


@lru_cache(maxsize=64)
def _magic_of(version: str) -> int:
    if version.startswith(("0.8", "0.9")):
        return 0
    return 1 if version.startswith("0.10") else 2


def topic_value_from_broker(key: str, broker: BrokerConfig) -> object:
    """What topic setting `key` is on `broker` for a topic that does not set it."""
    row = TOPIC_TABLE[key]
    for synonym in row.synonyms:
        value = broker.value_of(synonym)
        if value is not None:
            unit = _MILLISECONDS.get(synonym.rpartition(".")[2], 1)
            # Kafka takes any negative log.retention.* in hours or minutes for no limit.
            return -1 if unit != 1 and value < 0 else value * unit if unit != 1 else value
    return row.default


def newest_magic(broker: BrokerConfig) -> int:
    """The newest message format that brokers of the cluster send each other: newer batches would be converted on the
    way to followers."""
    return _magic_of(broker.get("inter.broker.protocol.version")) if broker.get("zookeeper.connect") else 2


def check_message_format(broker: BrokerConfig) -> None:
    """ValueError, in Kafka's words, where the broker's message format is newer than what its cluster speaks."""
    version, protocol = broker.get("log.message.format.version"), broker.get("inter.broker.protocol.version")
    magic = _magic_of(version)
    if magic > newest_magic(broker):
        raise ValueError(
            f"log.message.format.version {version} can only be used when inter.broker.protocol.version is set to "
            f"version {'0.11.0' if magic == 2 else '0.10.0'} or higher; it is {protocol}"
        )


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of a topic's logs.  Raises InvalidConfigError as `validate_topic_config` does."""
    parsed = _parse_overrides(overrides)
    wanted = parsed.get(MESSAGE_FORMAT)
    if wanted is not None and _magic_of(str(wanted)) > newest_magic(broker):
        logger.warning(
            "message.format.version %s of a topic is ignored: inter.broker.protocol.version %s does not allow it",
            wanted,
            broker.get("inter.broker.protocol.version"),
        )
        del parsed[MESSAGE_FORMAT]
    values: dict[str, Any] = {}
    for key in TOPIC_TABLE:
        value = parsed[key] if key in parsed else topic_value_from_broker(key, broker)
        if isinstance(value, list):
            value = frozenset(value) if key == "cleanup.policy" else tuple(value)
        values[key.replace(".", "_")] = value
    return LogConfig(**values)


def validate_topic_config(overrides: Mapping[str, str | None]) -> None:
    """Raises InvalidConfigError, in Kafka's words, unless a topic may be created with `overrides`."""
    missing = sorted(key for key, value in overrides.items() if value is None)
    if missing:
        raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(missing)}")
    for key in sorted(overrides):
        if key not in TOPIC_TABLE:
            raise InvalidConfigError(f"Unknown topic config name: {key}")
    values = _parse_overrides({key: value for key, value in overrides.items() if value is not None})
    low = values.get("min.compaction.lag.ms", TOPIC_TABLE["min.compaction.lag.ms"].default)
    high = values.get("max.compaction.lag.ms", TOPIC_TABLE["max.compaction.lag.ms"].default)
    if low > high:
        raise InvalidConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if values.get("remote.storage.enable"):
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def _parse_overrides(overrides: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, object] = {}
    for key, row in TOPIC_TABLE.items():
        if key not in overrides:
            continue
        try:
            values[key] = row.parse(overrides[key])
        except (InvalidValueError, UnacceptableListError) as error:
            raise InvalidConfigError(str(error)) from None
    return values
