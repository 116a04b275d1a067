"""What is known to be damaged or missing in the logs of a broker: said once, and kept for metrics, `/readyz` and pages.

    damaged    bytes of a segment are no batches (`segment_damage`): fetches of its offsets answer CORRUPT_MESSAGE
    missing    records that checkpoints or other files tell of are not there: the log ends early, or a file is gone

Both kinds are forgotten with the partition; damage also with its segment, or when the log start has moved past it.
After a restart, damage is known again once a read meets it.  Missing records are reported by one start only, because
the checkpoints then follow the shorter log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kbroker.storage.log.segment_damage import DamagedSegmentError
from kbroker.types import Offset, Position, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.log.log_fields import LogFields

logger = logging.getLogger("kbroker.storage")

SHOWN_IN_READINESS = 5


class Kind(Enum):
    """What is wrong."""

    DAMAGED = "damaged"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets `[offset, end_offset)` of a partition cannot be read, or are not there.

    `position` is the place in the file at `path`, -1 where the whole file or directory is meant.  `end_offset` is None
    where it is the log end.
    """

    kind: Kind
    topic_partition: TopicPartition
    path: str
    position: Position
    offset: Offset
    end_offset: Offset | None
    reason: str

    @property
    def where(self) -> str:
        """The file, and the position where it is known."""
        return self.path if self.position < 0 else f"{self.path} at position {self.position}"

    @property
    def offsets(self) -> str:
        """In words, which offsets."""
        if self.end_offset is None:
            return f"offset {self.offset} and what follows"
        return f"offsets {self.offset} to {self.end_offset - 1}"


class Damages:
    """All damages that one broker knows of.  Any thread may add one."""

    __slots__ = ("_found", "_gaps")

    def __init__(self) -> None:
        self._found: dict[tuple[TopicPartition, str, int, int], Damage] = {}
        self._gaps: set[str] = set()

    def _note(self, damage: Damage) -> bool:
        key = (damage.topic_partition, damage.path, damage.position, damage.offset)
        return self._found.setdefault(key, damage) is damage

    def damaged(self, topic_partition: TopicPartition, error: DamagedSegmentError, end_offset: Offset | None) -> None:
        """A read came upon a hole; `end_offset` is where the log goes on behind it, when the segment does not."""
        hole = error.hole
        until = end_offset if hole.end_offset is None else hole.end_offset
        damage = Damage(
            Kind.DAMAGED, topic_partition, error.path, hole.position, hole.offset, until, hole.reason
        )  # fmt: skip
        if self._note(damage):
            logger.error(
                "%s: %s is DAMAGED at position %d: %s.  Fetches of %s answer CORRUPT_MESSAGE; what can be done says "
                "`kbroker logs explain %s %d`",
                topic_partition,
                error.path,
                hole.position,
                hole.reason,
                damage.offsets,
                *topic_partition,
            )

    def missing(
        self, topic_partition: TopicPartition, path: str, offset: Offset, end_offset: Offset | None, reason: str
    ) -> None:
        """Records are not there that there should be."""
        damage = Damage(Kind.MISSING, topic_partition, path, Position(-1), offset, end_offset, reason)
        if self._note(damage):
            logger.error(
                "%s: records are MISSING (%s): %s.  What can be done says `kbroker logs explain %s %d`",
                topic_partition,
                damage.offsets,
                reason,
                *topic_partition,
            )

    def is_cut(self, topic_partition: TopicPartition, log_end_offset: Offset) -> bool:
        """Whether a log ends before records that were on this disk before this start."""
        return any(
            each.kind is Kind.MISSING
            and each.topic_partition == topic_partition
            and (each.end_offset is None or each.end_offset > log_end_offset)
            for each in list(self._found.values())
        )

    def gap(self, topic_partition: TopicPartition, path: str, offset: Offset, end_offset: Offset) -> None:
        """A segment ends before the next one begins, in a log that is not compacted; nothing says which records are
        missing."""
        if path not in self._gaps:
            self._gaps.add(path)
            logger.warning(
                "%s: there are no records between offset %d, behind the end of %s, and %d.  They were compacted "
                "before, or a segment's files were removed",
                topic_partition,
                offset,
                path,
                end_offset,
            )

    def known(self, logs: Mapping[TopicPartition, LogFields]) -> list[Damage]:
        """What holds still, oldest first."""
        if not self._found:
            return []
        return [each for each in list(self._found.values()) if _holds(each, logs.get(each.topic_partition))]

    def reasons(self, logs: Mapping[TopicPartition, LogFields]) -> list[str]:
        """The same in short lines, for `/readyz`: a few, and how many more."""
        known = self.known(logs)
        lines = [f"{each.topic_partition}: {each.kind.value}, {each.offsets}" for each in known[:SHOWN_IN_READINESS]]
        if len(known) > SHOWN_IN_READINESS:
            lines.append(f"{len(known) - SHOWN_IN_READINESS} more are damaged or missing")
        return lines


def _holds(damage: Damage, log: LogFields | None) -> bool:
    if log is None or damage.kind is Kind.MISSING:
        return log is not None
    if damage.end_offset is not None and log.local_log_start_offset >= damage.end_offset:
        return False
    segment = log.local.segments.floor(damage.offset)
    return segment is not None and segment.path == damage.path and segment.is_damaged
