"""The server's assignors: nothing lost, nothing twice, balance, stickiness, co-partitioning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.consumer.assignors.group_spec import Assignment, GroupSpec, MemberSpec
from kbroker.coordinator.consumer.assignors.range_assignor import assign_range
from kbroker.coordinator.consumer.assignors.uniform import assign_uniform

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))
TOPICS = (A, B, C)

COUNTS = st.fixed_dictionaries({topic: st.integers(1, 12) for topic in TOPICS})
NAMES = st.lists(st.sampled_from([f"member-{n}" for n in range(9)]), min_size=1, max_size=8, unique=True)


def spec_of(
    counts: Mapping[bytes, int],
    subscriptions: Mapping[str, frozenset[bytes]],
    targets: Mapping[str, Assignment] | None = None,
) -> GroupSpec:
    targets = targets or {}
    members = {name: MemberSpec(topics, targets.get(name, {})) for name, topics in subscriptions.items()}
    return GroupSpec(members, counts, len(set(subscriptions.values())) == 1)


def sizes(result: Mapping[str, Assignment]) -> Counter[str]:
    return Counter({name: sum(map(len, each.values())) for name, each in result.items()})


def owners(result: Mapping[str, Assignment]) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for name, assignment in result.items():
        for topic, partitions in assignment.items():
            assert partitions, "a topic without partitions belongs left out"
            for partition in partitions:
                assert (topic, partition) not in found, "a partition has two owners"
                found[topic, partition] = name
    return found


def check_complete(spec: GroupSpec, result: Mapping[str, Assignment]) -> None:
    subscribed = frozenset().union(*(member.topics for member in spec.members.values()))
    expected = {(topic, partition) for topic in subscribed for partition in range(spec.partition_counts[topic])}
    assert result.keys() == spec.members.keys()
    found = owners(result)
    assert found.keys() == expected
    assert all(topic in spec.members[name].topics for (topic, _), name in found.items())


@given(COUNTS, NAMES, NAMES, st.sets(st.sampled_from(TOPICS)), st.sets(st.sampled_from(TOPICS)), COUNTS)
def test_uniform_is_even_and_moves_only_what_it_must(
    counts: dict[bytes, int],
    before: list[str],
    after: list[str],
    topics_before: set[bytes],
    topics_after: set[bytes],
    more: dict[bytes, int],
) -> None:
    """A member would have two partitions more than another, or a rebalance would move what could have stayed."""
    first = assign_uniform(spec_of(counts, dict.fromkeys(before, frozenset(topics_before))))
    grown = {topic: max(counts[topic], more[topic]) for topic in TOPICS}
    spec = spec_of(grown, dict.fromkeys(after, frozenset(topics_after)), first)
    second = assign_uniform(spec)
    check_complete(spec, second)
    loads = sizes(second)
    assert max(loads.values()) - min(loads.values()) <= 1
    # A partition whose owner is still there and still wants it stays, but for what exceeds the owner's quota.
    was, now = owners(first), owners(second)
    stayed = Counter(now[each] for each in was if each in now and was[each] == now[each])
    wanted = Counter(was[each] for each in was if each in now and was[each] in after)
    quota = sum(loads.values()) // len(after)
    for name, count in wanted.items():
        assert stayed[name] >= min(count, quota)


@given(COUNTS, NAMES, st.sets(st.sampled_from(TOPICS), min_size=1))
def test_uniform_leaves_a_balanced_group_as_it_is(
    counts: dict[bytes, int], names: list[str], topics: set[bytes]
) -> None:
    """A heartbeat that bumps the epoch for nothing would move partitions."""
    subscriptions = dict.fromkeys(names, frozenset(topics))
    first = assign_uniform(spec_of(counts, subscriptions))
    assert assign_uniform(spec_of(counts, subscriptions, first)) == first


SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"member-{n}" for n in range(9)]),
    st.frozensets(st.sampled_from(TOPICS)),
    min_size=2,
    max_size=8,
).filter(lambda members: len(set(members.values())) > 1)


@given(COUNTS, SUBSCRIPTIONS, SUBSCRIPTIONS)
def test_uniform_with_different_subscriptions_leaves_no_move_that_would_help(
    counts: dict[bytes, int], before: dict[str, frozenset[bytes]], after: dict[str, frozenset[bytes]]
) -> None:
    """A member could sit on partitions of a topic that an idle subscriber of it could take over."""
    first = assign_uniform(spec_of(counts, before))
    spec = spec_of(counts, after, first)
    result = assign_uniform(spec)
    check_complete(spec, result)
    loads = sizes(result)
    for (topic, _), name in owners(result).items():
        for other, member in spec.members.items():
            if topic in member.topics:
                assert loads[name] - loads[other] <= 1
    assert assign_uniform(spec_of(counts, after, result)) == result


@given(COUNTS, SUBSCRIPTIONS, st.dictionaries(st.sampled_from([f"member-{n}" for n in range(9)]), st.text(max_size=3)))
def test_range_gives_consecutive_ranges_to_static_members_first(
    counts: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]], instances: dict[str, str]
) -> None:
    """Partitions of a range would be scattered, or a restart of a static member would shift everybody's."""
    instances = {name: f"{instance}-{name}" for name, instance in instances.items()}
    spec = spec_of(counts, subscriptions)
    members = {name: replace(member, instance_id=instances.get(name)) for name, member in spec.members.items()}
    spec = replace(spec, members=members)
    result = assign_range(spec)
    check_complete(spec, result)
    for topic in TOPICS:
        order = sorted(
            (name for name, member in members.items() if topic in member.topics),
            key=lambda name: (name not in instances, instances.get(name, name)),
        )
        ranges = [sorted(result[name].get(topic, ())) for name in order]
        assert [partition for each in ranges for partition in each] == list(range(counts[topic]) if order else [])
        assert [len(each) for each in ranges] == sorted((len(each) for each in ranges), reverse=True)
        assert not ranges or len(ranges[0]) - len(ranges[-1]) <= 1


@given(st.integers(1, 12), NAMES)
def test_range_is_co_partitioned(count: int, names: list[str]) -> None:
    """Joins of two topics with equal keys would find the partners on different members."""
    result = assign_range(spec_of(dict.fromkeys(TOPICS, count), dict.fromkeys(names, frozenset(TOPICS))))
    for assignment in result.values():
        assert len({assignment.get(topic) for topic in TOPICS}) == 1


def test_members_without_topics_get_nothing() -> None:
    """A group whose topics were deleted would fail to be assigned, and its members would be told so for ever."""
    spec = spec_of({}, {"a": frozenset(), "b": frozenset()})
    assert assign_uniform(spec) == {"a": {}, "b": {}}
    assert assign_range(spec) == {"a": {}, "b": {}}
