"""The three questions that bring people here, for the whole broker: why is it kept, why is it not compacted, why did it
rebalance.  What is said of a log is what `kbroker logs` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kbroker.console.group_lines import standing_of
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.storage.reports.log_description import dirt, explanation

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.storage.log.unified_log import UnifiedLog

MOST = 25


@dataclass(frozen=True, slots=True)
class LogLine:
    """A partition's log, with sentences.  `dirty_ratio`: None of one that is not compacted."""

    topic: str
    partition: int
    size_bytes: int
    dirty_ratio: float | None
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class RebalanceLine:
    """A group's last rebalance since the broker's start."""

    group_id: str
    state: str
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Why:
    """The largest logs, the dirtiest ones of compacted topics, and the groups that rebalanced last."""

    now_ms: int
    kept: Sequence[LogLine]
    compacted_count: int
    dirty: Sequence[LogLine]
    rebalanced: Sequence[RebalanceLine]


async def why(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/why?q=: `q` is a part of the topics' and groups' names."""
    search = parameters.text("q", "").strip().lower()
    services = parts.services
    pace = parts.sources.slices.pace()
    logs: list[UnifiedLog] = []
    compacted: list[tuple[float, UnifiedLog]] = []
    for log in list(services.log_manager.logs.values()):
        await pace
        topic = log.topic_partition.topic
        if search not in topic.lower() or not parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
            continue
        logs.append(log)
        candidate = dirt(services.log_manager, log)
        if candidate is not None:
            compacted.append((candidate.dirty_ratio, log))
    logs.sort(key=lambda log: -log.size_bytes)
    compacted.sort(key=lambda each: (-each[0], -each[1].size_bytes))
    kept, dirty = [], []
    for log in logs[:MOST]:
        await pace
        kept.append(_line(parts, log, None, "retention"))
    for ratio, log in compacted[:MOST]:
        await pace
        dirty.append(_line(parts, log, ratio, "compaction"))
    rebalanced = []
    for group in list(services.group_coordinator.registry.groups.values()):
        await pace
        last = group.last_rebalance
        if last is None or search not in group.group_id.lower():
            continue
        if parts.may(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id):
            rebalanced.append(RebalanceLine(group.group_id, standing_of(group).state, last.at_ms, last.reason))
    rebalanced.sort(key=lambda line: -line.at_ms)
    return partial(Why, services.clock.now_ms(), kept, len(compacted), dirty, rebalanced[:MOST])


def _line(parts: ConsoleParts, log: UnifiedLog, dirty_ratio: float | None, what: str) -> LogLine:
    services = parts.services
    said = explanation(services.log_manager, log, services.clock)[what]
    assert isinstance(said, list)
    topic, partition = log.topic_partition
    return LogLine(topic, partition, log.size_bytes, dirty_ratio, [str(each) for each in said])
