"""The three questions that bring people here, for the whole broker: why is it kept, why is it not compacted, why did it
rebalance.  What is said of a log is what `kbroker logs` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING

from kbroker.console.group_lines import standing_of
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.storage.reports.log_description import dirt, explanation

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.storage.log.unified_log import UnifiedLog

MOST = 25
MOST_PARTITIONS = 5


@dataclass(frozen=True, slots=True)
class LogLine:
    """A partition's log, with sentences.  `dirty_ratio`: None of one that is not compacted."""

    topic: str
    partition: int
    size_bytes: int
    dirty_ratio: float | None
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class TopicReasons:
    """A topic's logs here, the largest or dirtiest MOST_PARTITIONS first; `partition_count` and `size_bytes` are of all
    of them."""

    topic: str
    partition_count: int
    size_bytes: int
    logs: Sequence[LogLine]


@dataclass(frozen=True, slots=True)
class RebalanceLine:
    """A group's last rebalance since the broker's start."""

    group_id: str
    state: str
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Why:
    """The topics with the most bytes here, the compacted ones with the dirtiest logs, and the groups that rebalanced
    last."""

    now_ms: int
    kept: Sequence[TopicReasons]
    compacted_count: int
    dirty: Sequence[TopicReasons]
    rebalanced: Sequence[RebalanceLine]


async def why(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/why?q=: `q` is a part of the topics' and groups' names."""
    search = parameters.text("q", "").strip().lower()
    services = parts.services
    pace = parts.sources.slices.pace()
    logs: dict[str, list[UnifiedLog]] = {}
    compacted: dict[str, list[tuple[float, UnifiedLog]]] = {}
    for log in list(services.log_manager.logs.values()):
        await pace
        topic = log.topic_partition.topic
        if search not in topic.lower() or not parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
            continue
        logs.setdefault(topic, []).append(log)
        candidate = dirt(services.log_manager, log)
        if candidate is not None:
            compacted.setdefault(topic, []).append((candidate.dirty_ratio, log))
    kept, dirty = [], []
    for of_topic in nlargest(MOST, logs.values(), key=_size_of):
        largest = nlargest(MOST_PARTITIONS, of_topic, key=lambda log: log.size_bytes)
        kept.append(await _reasons(parts, of_topic, [(None, log) for log in largest], "retention", pace))
    for rated in nlargest(MOST, compacted.values(), key=lambda each: max(map(_dirt, each))):
        of_topic = [log for _, log in rated]
        dirtiest = nlargest(MOST_PARTITIONS, rated, key=_dirt)
        dirty.append(await _reasons(parts, of_topic, [*dirtiest], "compaction", pace))
    rebalanced = []
    for group in list(services.group_coordinator.registry.groups.values()):
        await pace
        last = group.last_rebalance
        if last is None or search not in group.group_id.lower():
            continue
        if parts.may(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id):
            rebalanced.append(RebalanceLine(group.group_id, standing_of(group).state, last.at_ms, last.reason))
    rebalanced.sort(key=lambda line: -line.at_ms)
    return partial(Why, services.clock.now_ms(), kept, sum(map(len, compacted.values())), dirty, rebalanced[:MOST])


def _size_of(logs: Sequence[UnifiedLog]) -> int:
    return sum(log.size_bytes for log in logs)


def _dirt(rated: tuple[float, UnifiedLog]) -> tuple[float, int]:
    ratio, log = rated
    return ratio, log.size_bytes


async def _reasons(
    parts: ConsoleParts,
    logs: Sequence[UnifiedLog],
    shown: Sequence[tuple[float | None, UnifiedLog]],
    what: str,
    pace: Pace,
) -> TopicReasons:
    lines = []
    for ratio, log in shown:
        await pace
        lines.append(_line(parts, log, ratio, what))
    return TopicReasons(logs[0].topic_partition.topic, len(logs), _size_of(logs), lines)


def _line(parts: ConsoleParts, log: UnifiedLog, dirty_ratio: float | None, what: str) -> LogLine:
    services = parts.services
    said = explanation(services.log_manager, log, services.clock)[what]
    assert isinstance(said, list)
    topic, partition = log.topic_partition
    return LogLine(topic, partition, log.size_bytes, dirty_ratio, [str(each) for each in said])
