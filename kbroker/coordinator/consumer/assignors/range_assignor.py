"""The assignor `range`: each topic's partitions in consecutive ranges, one per subscriber (Kafka's RangeAssignor).

Members come in the same order for every topic: static members by instance id, then the others by member id.  So topics
with as many partitions and the same subscribers are co-partitioned: a member has the same partitions of each.  The
first `partitions % subscribers` members have one more than the others.
"""

from __future__ import annotations

from collections import Counter

from kbroker.coordinator.consumer.assignors.group_spec import Assignment, GroupSpec

NAME = "range"


def assign_range(spec: GroupSpec) -> dict[str, Assignment]:
    """The next target assignment of every member."""
    subscribers: Counter[bytes] = Counter(topic_id for member in spec.members.values() for topic_id in member.topics)
    next_start: dict[bytes, int] = dict.fromkeys(subscribers, 0)
    served: Counter[bytes] = Counter()
    result: dict[str, Assignment] = {}
    for member_id in sorted(spec.members, key=lambda member_id: _place(spec, member_id)):
        ranges: dict[bytes, frozenset[int]] = {}
        for topic_id in spec.members[member_id].topics:
            quota, extra = divmod(spec.partition_counts[topic_id], subscribers[topic_id])
            start = next_start[topic_id]
            end = start + quota + (served[topic_id] < extra)
            served[topic_id] += 1
            next_start[topic_id] = end
            if end > start:
                ranges[topic_id] = frozenset(range(start, end))
        result[member_id] = ranges
    assert all(end == spec.partition_counts[topic_id] for topic_id, end in next_start.items()), next_start
    return result


def _place(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
