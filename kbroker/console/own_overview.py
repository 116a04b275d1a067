"""The first page of a viewer who may not describe the cluster: the topics and groups that it may describe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from kbroker.console.overview import MOST_SHOWN, GroupLag, TopicSize
from kbroker.security.authorizer import ResourceKind

if TYPE_CHECKING:
    from kbroker.console.group_lines import GroupLine
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.console.topic_lines import TopicLine


@dataclass(frozen=True, slots=True)
class OwnOverview:
    """Sizes and lag are those of this broker; `lag` is None where no group has one."""

    principal: str
    topic_count: int
    partition_count: int
    record_count: int
    size_bytes: int
    largest_topics: Sequence[TopicSize]
    group_states: Mapping[str, int]
    lag: int | None
    furthest_groups: Sequence[GroupLag]


async def own_overview(parts: ConsoleParts, _: Parameters) -> Value:
    """GET /console/api/own."""
    topics = await parts.shown(await parts.topics.get(), ResourceKind.TOPIC, attrgetter("topic"))
    groups = await parts.shown(await parts.group_lines.get(), ResourceKind.GROUP, attrgetter("group_id"))
    return partial(_value, ":".join(parts.principal), topics, groups)


def _value(principal: str, topics: Sequence[TopicLine], groups: Sequence[GroupLine]) -> OwnOverview:
    largest = sorted(topics, key=attrgetter("size_bytes"), reverse=True)[:MOST_SHOWN]
    lags = [(each.lag, each) for each in groups if each.lag is not None]
    furthest = sorted((each for each in lags if each[0]), key=lambda each: -each[0])[:MOST_SHOWN]
    return OwnOverview(
        principal,
        len(topics),
        sum(each.partition_count for each in topics),
        sum(each.record_count for each in topics),
        sum(each.size_bytes for each in topics),
        [TopicSize(each.topic, each.partition_count, each.size_bytes) for each in largest],
        Counter(each.state for each in groups),
        sum(lag for lag, _ in lags) if lags else None,
        [GroupLag(each.group_id, each.state, lag) for lag, each in furthest],
    )
