"""Share groups: Kafka's records, assignments, and the same group after every append.

Also of `kbroker.coordinator.share.member`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.kind_groups import apply_record
from kbroker.coordinator.share import group_records
from kbroker.coordinator.share.assignor import assign
from kbroker.coordinator.share.group import ShareGroup
from kbroker.coordinator.share.heartbeat import HeartbeatRequest, Topics, heartbeat, leave, sign_of_life
from kbroker.errors import ErrorCode, KafkaError, UnknownMemberIdError
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records

VECTOR = Path(__file__).parents[2] / "share" / "vectors" / "kafka-4.3.1-consumer-offsets.log"
TOPICS = {"one": (b"1" * 16, 3), "two": (b"2" * 16, 1), "none": (b"3" * 16, 0)}
JOIN = HeartbeatRequest("g", "m", 0, None, ("one",), "client", "host")
VIEW = Topics(TOPICS.get, lambda names: hash(tuple(sorted(names))) % 1000)


class Partition:
    """As much of a partition of `__consumer_offsets` as records of share groups need."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def group(self, group_id: str) -> Group:
        return self.groups.setdefault(group_id, Group(group_id, 0, None))

    def end_kind(self, group_id: str) -> None:
        self.groups.pop(group_id, None)

    def replay(self, records: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            record = group_records.parse(key, value)
            apply_record(self, ShareGroup, record)  # type: ignore[arg-type]

    def share(self, group_id: str = "g") -> ShareGroup:
        return self.groups[group_id].kind  # type: ignore[return-value]


def record_type(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def state_of(group: ShareGroup) -> SimpleNamespace:
    return SimpleNamespace(
        epoch=group.epoch,
        members=dict(group.members),
        targets=dict(group.targets),
        assignment_epoch=group.assignment_epoch,
        states=group.state_partitions,
    )


def test_a_log_that_kafka_wrote_is_loaded_and_written_with_the_same_bytes() -> None:
    """A share group that moves from Kafka to kbroker would lose its members, or Kafka could not read what it finds."""
    data = VECTOR.read_bytes()
    partition = Partition()
    for info in iterate_stored_batches(data):
        for record in iterate_stored_records(data, info):
            key, value = bytes(record.key or b""), None if record.value is None else bytes(record.value)
            if record_type(key) not in group_records.RECORD_TYPES:
                continue
            partition.replay([(key, value)])
            group_id = next(name for name in partition.groups if name.encode() in key)
            group = partition.share(group_id)
            made = [group_records.epoch_record(group_id, group.epoch, group.metadata_hash)]
            made.append(group_records.state_partitions_record(group_id, group.state_partitions))
            for member in group.members.values():
                made.append(group_records.member_record(group_id, member))
                made.append(group_records.current_record(group_id, member))
                made.append(
                    group_records.target_record(
                        group_id, member.member_id, group.targets.get(member.member_id, frozenset())
                    )
                )
            if value is not None and record_type(key) != group_records.TARGET:  # It has a time of its own.
                assert (key, value) in made
    first = next(group.kind for name, group in partition.groups.items() if name.startswith("g"))
    assert isinstance(first, ShareGroup)
    assert (first.epoch, first.assignment_epoch, first.members) == (6, 4, {}), "both members had left by then"
    assert len(first.state_partitions.initialized) == 1


def test_a_member_is_the_same_whichever_of_its_records_comes_first() -> None:
    """A member that moved to another host has its own record behind that of its assignment, once the log is compacted:
    after a load it would be fenced, and its records delivered again."""
    before, after = Partition(), Partition()
    before.replay(heartbeat(ShareGroup("g"), JOIN, VIEW, 10, 0)[1])
    member = replace(before.share().members["m"], member_epoch=3, assigned=frozenset({(b"1" * 16, 0)}))
    described, taken = group_records.member_record("g", member), group_records.current_record("g", member)
    before.replay([described, taken])
    after.replay([taken, described])
    assert after.share().members == before.share().members == {"m": member}


SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("abcdefg"), st.frozensets(st.sampled_from([b"x", b"y", b"z"]), min_size=1), max_size=7
)
PARTITIONS = st.dictionaries(st.sampled_from([b"x", b"y", b"z"]), st.integers(0, 6).map(range))


@given(SUBSCRIPTIONS, PARTITIONS, SUBSCRIPTIONS, PARTITIONS)
def test_assignments_are_complete_and_even(
    before: dict[str, frozenset[bytes]],
    partitions_before: dict[bytes, range],
    after: dict[str, frozenset[bytes]],
    partitions: dict[bytes, range],
) -> None:
    """Records of a partition would be read by no member, or a member would stand idle while others have much."""
    current = assign(before, partitions_before, {})
    given_now = assign(after, partitions, current)
    assert given_now.keys() == after.keys()
    wanted = {
        (topic, index)
        for topic, indexes in partitions.items()
        if any(topic in topics for topics in after.values())
        for index in indexes
    }
    assert {each for some in given_now.values() for each in some} == wanted
    for member, some in given_now.items():
        assert all(topic in after[member] for topic, _ in some)
        assert some or not any(partitions.get(topic) for topic in after[member])
    if len(set(after.values())) == 1 and wanted:
        sizes = [len(some) for some in given_now.values()]
        assert max(sizes) - min(sizes) <= 1
    assert assign(after, partitions, given_now) == given_now, "nothing has changed, and members move"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "join", "leave", "initialize"]),
        st.sampled_from("abc"),
        st.frozensets(st.sampled_from(list(TOPICS)), min_size=1),
    ),
    max_size=25,
)


@given(STEPS)
def test_after_every_append_a_reload_gives_the_same_group(steps: list[tuple[str, str, frozenset[str]]]) -> None:
    """A broker that is killed would come back with other members or assignments than it has told."""
    partition = Partition()
    partition.group("g").become(ShareGroup("g"))
    log: list[tuple[bytes, bytes | None]] = []
    settled = -1
    for what, member, topics in steps:
        group = partition.share()
        known = group.members.get(member)
        records: list[tuple[bytes, bytes | None]] = []
        if what == "join" or (what == "beat" and known is not None):
            epoch = 0 if what == "join" or known is None else known.member_epoch
            names = tuple(topics) if what == "join" else None
            request = HeartbeatRequest("g", member, epoch, None, names, "client", "/host")
            answer, records = heartbeat(group, request, VIEW, 3, 77)
            assert answer.member_epoch > 0
            # Where nothing is left to do, the short way gives the same answer.
            assert records or not answer.is_complete or sign_of_life(group, request) in (None, answer)
            settled = settled if records or group.epoch != group.assignment_epoch else group.changes
            if group.changes == settled and sign_of_life(group, request) is not None:
                assert not records
        elif what == "leave" and known is not None:
            records = leave(group, member, VIEW)
        elif what == "initialize" and group.state_partitions.initializing:
            done = group.state_partitions.done(group.state_partitions.initializing)
            records = [group_records.state_partitions_record("g", done)]
        partition.replay(records)
        log += records
        if log:
            reloaded = Partition()
            reloaded.replay(log)
            assert state_of(reloaded.share()) == state_of(partition.share())
        for each in partition.share().members.values():
            ready = partition.share().state_partitions.initialized
            assert all(topic in ready and index in ready[topic].partitions for topic, index in each.assigned)


def test_members_with_a_wrong_epoch_are_refused() -> None:
    """A member that was removed would go on as if it still had its partitions."""
    group = ShareGroup("g")
    with pytest.raises(UnknownMemberIdError):
        heartbeat(group, HeartbeatRequest("g", "a", 3, None, None, "c", "/h"), VIEW, 3, 1)
    partition = Partition()
    partition.group("g").become(group)
    _, records = heartbeat(group, HeartbeatRequest("g", "a", 0, None, ("one",), "c", "/h"), VIEW, 3, 1)
    partition.replay(records)
    for epoch in (1, 9):
        with pytest.raises(KafkaError) as refusal:
            heartbeat(group, HeartbeatRequest("g", "a", epoch, None, None, "c", "/h"), VIEW, 3, 1)
        assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_targets_stay_for_the_interval_and_a_new_member_waits_for_it() -> None:
    """A thousand members that join at the same time would have the assignment made a thousand times."""
    partition = Partition()
    partition.group("g").become(ShareGroup("g"))

    def beat(member: str, epoch: int, now_ms: int) -> frozenset[tuple[bytes, int]]:
        topics = ("one",) if epoch == 0 else None
        request = HeartbeatRequest("g", member, epoch, None, topics, "client", "/host")
        _, records = heartbeat(partition.share(), request, VIEW, 3, now_ms, assignment_interval_ms=1_000)
        partition.replay(records)
        return partition.share().members[member].assigned

    beat("a", 0, 5_000)
    states = partition.share().state_partitions
    partition.replay([group_records.state_partitions_record("g", states.done(states.initializing))])
    assert len(beat("a", 0, 5_001)) == 3, "the first targets gave nobody anything and hold nothing up"
    assert beat("b", 0, 5_500) == frozenset()
    assert beat("b", partition.share().members["b"].member_epoch, 6_000) == frozenset()
    assert len(beat("b", partition.share().members["b"].member_epoch, 6_001)) in (1, 2)


def test_a_topic_that_a_member_unsubscribes_is_taken_from_it_at_once() -> None:
    """A consumer would be given records of a topic that it no longer reads until the next assignment is due."""
    partition = Partition()
    partition.group("g").become(ShareGroup("g"))

    def beat(*topics: str) -> tuple[set[bytes], set[bytes] | None]:
        known = partition.share().members.get("a")
        request = HeartbeatRequest(
            "g", "a", known.member_epoch if known else 0, None, topics or None, "client", "/host"
        )
        answer, records = heartbeat(partition.share(), request, VIEW, 3, 5_000, assignment_interval_ms=60_000)
        partition.replay(records)
        told = None if answer.assignment is None else {topic for topic, _ in answer.assignment}
        return {topic for topic, _ in partition.share().members["a"].assigned}, told

    one, two = (TOPICS[name][0] for name in ("one", "two"))
    beat("one", "two")
    states = partition.share().state_partitions
    partition.replay([group_records.state_partitions_record("g", states.done(states.initializing))])
    assert beat() == ({one, two}, {one, two})
    epoch = partition.share().members["a"].member_epoch
    assert beat("one") == ({one}, {one})
    assert beat() == ({one}, None)
    assert beat("one", "two") == ({one, two}, {one, two}), "it is still in the target"
    assert partition.share().members["a"].member_epoch == epoch
