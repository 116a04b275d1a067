"""The options of `format("kbroker-log")`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kbroker.java_patterns import JavaPatternError, compile_java_pattern
from kbroker.replay.sources.offset_json import Offsets, parse_offsets
from kbroker.replay.sources.option_values import OptionError, OptionValues
from kbroker.types import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS

logger = logging.getLogger("kbroker.replay")

KNOWN = (
    "path",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "includeHeaders",
    "failOnDataLoss",
    "maxPartitionBytes",
)
DEFAULT_PARTITION_BYTES = 128 << 20
_INTERNAL = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What to read from which directories; offsets are as in the file, times milliseconds since 1970."""

    paths: tuple[str, ...]
    topics: tuple[str, ...]
    topics_pattern: str | None
    starting_offsets: Offsets | None
    ending_offsets: Offsets | None
    starting_timestamp: int | None
    ending_timestamp: int | None
    fail_on_data_loss: bool
    max_partition_bytes: int

    def wants(self, topic: str) -> bool:
        """Without a choice: every topic but those that brokers keep state in."""
        if self.topics:
            return topic in self.topics
        if self.topics_pattern is not None:
            return compile_java_pattern(self.topics_pattern).fullmatch(topic) is not None
        return topic not in _INTERNAL


def parse(options: Mapping[str, str]) -> LogOptions:
    """OptionError, which says what to change, for anything that is wrong."""
    values = OptionValues(options)
    values.refuse(
        {
            "kafka.isolation.level": "which transactions were aborted is not read from the disk; all records are given",
            "kafka.bootstrap.servers": "this format reads a disk; format kbroker reads from brokers",
        }
    )
    for name in values.foreign(KNOWN, KNOWN, "format kbroker-log"):
        logger.warning("option %s has no effect: format kbroker-log has no such option", name)
    path = values.required("path", 'a log directory, or load("/var/lib/kafka/data")')
    if values.has("topics") and values.has("topicsPattern"):
        raise OptionError("only one of the options topics and topicsPattern can be given")
    pattern = values.text("topicsPattern")
    if pattern is not None:
        try:
            compile_java_pattern(pattern)
        except JavaPatternError as error:
            raise OptionError(f"option topicsPattern is no regular expression of Java's: {error}") from None
    topics = tuple(filter(None, (name.strip() for name in (values.text("topics") or "").split(","))))
    if values.has("topics") and not topics:
        raise OptionError("option topics names no topic")
    return LogOptions(
        paths=tuple(filter(None, (part.strip() for part in path.split(",")))),
        topics=topics,
        topics_pattern=pattern,
        starting_offsets=_offsets(values, "starting", "earliest"),
        ending_offsets=_offsets(values, "ending", "latest"),
        starting_timestamp=values.number("startingTimestamp", least=0),
        ending_timestamp=values.number("endingTimestamp", least=0),
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        max_partition_bytes=values.count("maxPartitionBytes", DEFAULT_PARTITION_BYTES, least=1 << 10),
    )


def _offsets(values: OptionValues, side: str, default: str) -> Offsets | None:
    """None for the place that is the default: everything there is."""
    option = f"{side}Offsets"
    text = (values.text(option) or default).strip()
    if text.lower() == default:
        return None
    if values.has(f"{side}Timestamp"):
        raise OptionError(f"only one of the options {option} and {side}Timestamp can be given")
    try:
        offsets = parse_offsets(option, text)
    except ValueError as error:
        raise OptionError(f"{error}; or {default}") from None
    if min(offsets.values(), default=0) < 0:
        raise OptionError(f"option {option}: offsets are 0 or more; leave a partition out to have all of it")
    return offsets
