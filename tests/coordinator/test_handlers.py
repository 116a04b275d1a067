"""Requests of every version through the handlers: what is decoded, what is answered, and when.

Also of `kbroker.assembly.coordinators`, `kbroker.coordinator.classic.group_kind`, `kbroker.coordinator.classic.member`,
`kbroker.handlers.groups.group_access`, `kbroker.handlers.groups.heartbeat_size`,
`kbroker.handlers.groups.committed_state`.
"""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import CoordinatorNotAvailableError, ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import message
from tests.coordinator.harness import T1_ID, T2_ID, MemoryLog, World, delete_topic, subscription
from tests.coordinator.script import join, leave, protocol, sync
from tests.coordinator.wire import HANDLERS, Client


def versions(key: ApiKey) -> range:
    row = HANDLERS[int(key)]
    return range(row.min_version, row.max_version + 1)


def test_all_versions_that_kafka_serves_are_served() -> None:
    """A client that knows one exact version only would find no group support at all."""
    served = {ApiKey(key).name: (row.min_version, row.max_version) for key, row in HANDLERS.items()}
    assert served == {
        "OFFSET_COMMIT": (0, 10),
        "OFFSET_FETCH": (0, 10),
        "FIND_COORDINATOR": (0, 6),
        "JOIN_GROUP": (0, 9),
        "HEARTBEAT": (0, 4),
        "LEAVE_GROUP": (0, 5),
        "SYNC_GROUP": (0, 5),
        "DESCRIBE_GROUPS": (0, 6),
        "LIST_GROUPS": (0, 5),
        "DELETE_GROUPS": (0, 2),
        "OFFSET_DELETE": (0, 0),
        "CONSUMER_GROUP_HEARTBEAT": (0, 1),
        "CONSUMER_GROUP_DESCRIBE": (0, 1),
        "STREAMS_GROUP_HEARTBEAT": (0, 0),
        "STREAMS_GROUP_DESCRIBE": (0, 0),
    }


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_lives_through_every_version(version: int) -> None:
    """Consumers of some age could not join."""
    world = World()
    client = Client(world)
    fields = join()
    if version == 0:
        del fields["rebalance_timeout_ms"]
    answer = client.call("JoinGroup", version, **fields)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = client.call("JoinGroup", version, **fields, member_id=answer.member_id)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert [bytes(member.metadata) for member in answer.members] == [subscription("t1")]
    member = world.group().members[answer.member_id]
    assert (member.client_id, member.client_host) == ("probe", "/127.0.0.1")
    assert member.rebalance_timeout_ms == 10_000

    sync_version = min(version, 5)
    fields = sync("g", 1, answer.member_id, {answer.member_id: b"mine"})
    assert client.call("SyncGroup", sync_version, **fields).assignment == b"mine"
    beat = {"group_id": "g", "generation_id": 1, "member_id": answer.member_id}
    assert client.call("Heartbeat", min(version, 4), **beat).error_code == 0
    leave_version = min(version, 5)
    if leave_version <= 2:
        left = client.call("LeaveGroup", leave_version, group_id="g", member_id=answer.member_id)
    else:
        left = client.call("LeaveGroup", leave_version, **leave("g", (answer.member_id, None)))
        assert [(each.member_id, each.error_code) for each in left.members] == [(answer.member_id, 0)]
    assert left.error_code == 0
    assert world.state() == "Empty"


def test_parked_requests_are_answered_through_the_context() -> None:
    """A consumer that waits for a rebalance would wait for ever."""
    world = World()
    first, second = Client(world), Client(world)
    leader = first.call("JoinGroup", 3, **join()).member_id
    second.send("JoinGroup", 3, **join())
    assert second.waits
    first.call("JoinGroup", 3, **join(member_id=leader))
    assert second.receive().leader == leader


def test_answers_that_waited_are_sent_after_the_group_has_settled() -> None:
    """A connection that goes on with its next request at once would meet a group between two states."""
    world = World()
    first, second = Client(world), Client(world)
    leader = first.call("JoinGroup", 3, **join()).member_id
    second.send("JoinGroup", 3, **join())
    first.send("JoinGroup", 3, **join(member_id=leader))
    assert second.waits and not first.waits
    world.loop.advance(0)
    assert not second.waits


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_coordinator_is_where_the_client_dialled(version: int) -> None:
    """Consumers would look for their group at an address that they cannot reach."""
    world = World()
    client = Client(world)
    if version >= 4:
        found = client.call("FindCoordinator", version, key_type=0, coordinator_keys=["a", "b"]).coordinators
        assert [each.key for each in found] == ["a", "b"]
    else:
        found = [client.call("FindCoordinator", version, key="a")]
    assert {(each.error_code, each.node_id, each.host, each.port) for each in found} == {(0, 1, "127.0.0.1", 9092)}
    assert world.cache.topic("__consumer_offsets") is not None


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_a_transactional_id_is_looked_for_here(version: int) -> None:
    """No transactional producer would start."""
    client = Client(World())
    if version >= 4:
        found = client.call("FindCoordinator", version, key_type=1, coordinator_keys=["t"]).coordinators[0]
    else:
        found = client.call("FindCoordinator", version, key_type=1, key="t")
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 1, "127.0.0.1", 9092)
    assert client.controller.ensured == ["__transaction_state"], "the topic of the groups is not made for a transaction"


def test_a_state_topic_that_cannot_be_made_is_no_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk would reach consumers under a code that ends them."""
    world = World(with_topic=False)

    def fail(self: MemoryLog) -> None:
        raise CoordinatorNotAvailableError("the disk is full")

    monkeypatch.setattr(MemoryLog, "ensure_topic", fail)
    found = Client(world).call("FindCoordinator", 3, key_type=0, key="g")
    assert (found.error_code, found.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is full")
    answer = Client(world).call("JoinGroup", 3, **join())
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_metadata_that_could_never_be_stored_are_refused_and_not_kept() -> None:
    """A member with 90 MB of them would hold that memory for a group that never gets a generation."""
    world = World()
    request = message("JoinGroupRequest")
    large = memoryview(bytes(8 * world.log.max_batch_bytes() + 1))
    protocols = [request.JoinGroupRequestProtocol(name="range", metadata=large)]
    answer = Client(world).call("JoinGroup", 3, **{**join(), "protocols": protocols})
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(world.coordinator.list_groups((), ())) == []


def test_assignments_that_could_never_be_stored_end_the_generation_as_a_failed_write_does() -> None:
    """They would be copied and packed, for a fraction of a second on the loop, only to be refused by the log."""
    world = World()
    client = Client(world)
    joined = client.call("JoinGroup", 3, **join())
    request = message("SyncGroupRequest")
    large = memoryview(bytes(8 * world.log.max_batch_bytes() + 1))
    assignments = [request.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=large)]
    before = [len(partition) for partition in world.log.partitions]
    answer = client.call(
        "SyncGroup",
        3,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=assignments,
    )
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [len(partition) for partition in world.log.partitions] == before


# Offsets


def commit_request(version: int, group_id: str, places: list[tuple[str, int, int]], **fields: Any) -> dict[str, Any]:
    request = message("OffsetCommitRequest")
    ids = {"t1": T1_ID, "t2": T2_ID}
    topics = [
        request.OffsetCommitRequestTopic(
            **({"topic_id": ids.get(name, b"x" * 16)} if version >= 10 else {"name": name}),
            partitions=[
                request.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata="meta"
                )
            ],
        )
        for name, partition, offset in places
    ]
    return {"group_id": group_id, "topics": topics, **fields}


def fetch_request(version: int, group_id: str, places: list[tuple[str, int]] | None, **fields: Any) -> dict[str, Any]:
    request = message("OffsetFetchRequest")
    ids = {"t1": T1_ID, "t2": T2_ID}
    if version < 8:
        topics = places and [
            request.OffsetFetchRequestTopic(name=name, partition_indexes=[index]) for name, index in places
        ]
        return {"group_id": group_id, "topics": topics, **fields}
    by_group = places and [
        request.OffsetFetchRequestTopics(
            **({"topic_id": ids.get(name, b"x" * 16)} if version >= 10 else {"name": name}), partition_indexes=[index]
        )
        for name, index in places
    ]
    return {"groups": [request.OffsetFetchRequestGroup(group_id=group_id, topics=by_group)], **fields}


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offsets_are_committed_and_fetched_in_every_version(version: int) -> None:
    """Consumers of some age would start anew with each restart."""
    world = World()
    client = Client(world)
    places = [("t1", 2, 7), ("nope", 0, 1), ("t2", 1, 1)]
    answer = client.call("OffsetCommit", version, **commit_request(version, "g", places))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        0,
        unknown,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    if version >= 10:
        assert [bytes(topic.topic_id) for topic in answer.topics] == [T1_ID, b"x" * 16, T2_ID]
    answer = client.call("OffsetFetch", version, **fetch_request(version, "g", [("t1", 2), ("t1", 0)]))
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    found = [
        (partition.committed_offset, partition.metadata, partition.error_code)
        for topic in topics
        for partition in topic.partitions
    ]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else ErrorCode.NONE
    assert found == [(7, "meta", 0), (-1, "", missing)]
    stored = world.group().offsets.get("t1", 2)
    assert stored is not None and stored.topic_id == T1_ID


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_can_be_asked_for(version: int) -> None:
    """A tool could not show the lag of a group whose topics it does not know."""
    world = World()
    client = Client(world)
    world.commit("g", 1)
    world.commit("g", 2, topic="t2")
    answer = client.call("OffsetFetch", version, **fetch_request(version, "g", None))
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert [topic.partitions[0].committed_offset for topic in topics] == [1, 2]
    world.group().offsets.put("gone", 0, world.group().offsets.topics["t1"][0])
    answer = client.call("OffsetFetch", version, **fetch_request(version, "g", None))
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert len(topics) == (2 if version >= 10 else 3)
    answer = client.call("OffsetFetch", version, **fetch_request(version, "none", None))
    assert (answer.groups[0].topics if version >= 8 else answer.topics) == []


def test_who_names_a_topic_by_its_id_is_told_nothing_of_an_earlier_one() -> None:
    """A consumer of a topic that was made anew would start at the offset of the one before, where the coordinator did
    not see its deletion."""
    world = World()
    client = Client(world)
    world.commit("g", 7)
    table = world.group().offsets
    table.put("t1", 1, table.topics["t1"][0]._replace(topic_id=bytes(15) + b"9"))
    table.put("t1", 2, table.topics["t1"][0]._replace(topic_id=bytes(16)))
    asked = [("t1", 0), ("t1", 1), ("t1", 2)]
    for which in (asked, None):
        answer = client.call("OffsetFetch", 10, **fetch_request(10, "g", which))
        rows = [each for topic in answer.groups[0].topics for each in topic.partitions]
        assert [(each.committed_offset, each.error_code) for each in rows] == [(7, 0), (-1, 0), (7, 0)]


def test_old_retention_times_and_commit_times_are_kept() -> None:
    """Offsets of old clients would expire at another time than they asked for."""
    world = World()
    client = Client(world)
    client.call("OffsetCommit", 2, **commit_request(2, "a", [("t1", 0, 1)], retention_time_ms=5_000))
    client.call("OffsetCommit", 5, **commit_request(5, "b", [("t1", 0, 1)]))
    request = commit_request(1, "c", [("t1", 0, 1)])
    request["topics"][0].partitions[0].commit_timestamp = 77
    client.call("OffsetCommit", 1, **request)
    found = [world.group(group_id).offsets.topics["t1"][0] for group_id in "abc"]
    now = world.loop.now_ms()
    assert [(each.commit_timestamp, each.expire_timestamp) for each in found] == [
        (now, now + 5_000),
        (now, -1),
        (77, -1),
    ]


def test_unstable_offsets_are_held_back_on_request() -> None:
    """An exactly-once consumer would read what a transaction has already consumed."""
    world = World()
    world.commit("g", 1)
    table = world.group().offsets
    table.put_pending(9, "t1", 0, table.topics["t1"][0])
    client = Client(world)
    for stable, code in ((True, ErrorCode.UNSTABLE_OFFSET_COMMIT), (False, ErrorCode.NONE)):
        answer = client.call("OffsetFetch", 7, **fetch_request(7, "g", [("t1", 0)], require_stable=stable))
        assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_while_loading_offset_fetch_asks_for_patience(version: int) -> None:
    """A consumer would take the offsets of a group that is still loading for missing, and start anew."""
    world = World()
    world.commit("g", 1)
    client = Client(World(log=world.log, slice_us=0))
    answer = client.call("OffsetFetch", version, **fetch_request(version, "g", [("t1", 0)]))
    if version >= 8:
        code = answer.groups[0].error_code
    elif version >= 2:
        code = answer.error_code
    else:
        code = answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    commit_version = max(version, 1)
    answer = client.call("OffsetCommit", commit_version, **commit_request(commit_version, "g", [("t1", 0, 2)]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert client.call("ListGroups", 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    described = client.call("DescribeGroups", 6, groups=["g"]).groups[0]
    assert described.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    deleted = client.call("DeleteGroups", 2, groups_names=["g"]).results[0]
    assert deleted.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# Administration


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_one_entry_per_group_that_was_asked_for(version: int) -> None:
    """An answer without an entry for its question crashes a client."""
    world = World()
    joined = world.stable_member(client_id="me", protocols=(protocol_of("range", b"sub"),))
    client = Client(world)
    fields = {"include_authorized_operations": True} if version >= 3 else {}
    found, missing = client.call("DescribeGroups", version, groups=["g", "none"], **fields).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    member = found.members[0]
    assert (member.member_id, member.client_id, bytes(member.member_metadata)) == (joined.member_id, "me", b"sub")
    assert bytes(member.member_assignment) == b"all"
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert found.authorized_operations == (3_400 if version >= 3 else -(2**31))


def protocol_of(name: str, metadata: bytes) -> Any:
    from kbroker.coordinator.classic.messages import MemberProtocol

    return MemberProtocol(name, metadata)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"states_filter": [" Empty"]}, 1),
        ({"states_filter": ["\x00eMPTY\n"]}, 1),
        ({"states_filter": ["\u2003Empty"]}, 0),
        ({"states_filter": ["Em pty", " "]}, 0),
        ({"states_filter": [""]}, 0),
        ({"types_filter": ["CLASSIC"]}, 1),
        ({"types_filter": [" classic"]}, 0),
    ],
)
def test_the_names_of_states_are_trimmed_and_those_of_types_are_not(filters: dict[str, list[str]], count: int) -> None:
    """A tool that lists groups by a state with a blank before it, as after a comma, would show none."""
    world = World()
    world.commit("simple", 1)
    assert len(Client(world).call("ListGroups", 5, **filters).groups) == count


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_in_every_version(version: int) -> None:
    """Tools would show no groups."""
    world = World()
    world.stable_member()
    world.commit("simple", 1)
    groups = Client(world).call("ListGroups", version).groups
    assert {(each.group_id, each.protocol_type) for each in groups} == {("g", "consumer"), ("simple", "")}
    if version >= 4:
        assert {each.group_state for each in groups} == {"Stable", "Empty"}
        filtered = Client(world).call("ListGroups", version, states_filter=["EMPTY"]).groups
        assert [each.group_id for each in filtered] == ["simple"]
    if version >= 5:
        assert {each.group_type for each in groups} == {"classic"}


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_groups_are_deleted_in_every_version(version: int) -> None:
    """Abandoned groups would stay until they expire."""
    world = World()
    world.stable_member()
    world.commit("simple", 1)
    names = ["g", "simple", "none", "simple"]
    results = Client(world).call("DeleteGroups", version, groups_names=names).results
    assert {each.group_id: each.error_code for each in results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "simple": 0,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_metrics_see_groups_with_their_offsets() -> None:
    """Lag could not be watched."""
    world = World()
    joined = world.stable_member()
    world.commit("g", 3, generation_id=1, member_id=joined.member_id)
    (summary,) = world.coordinator.summaries()
    assert (summary.group_id, summary.state, summary.member_count) == ("g", "Stable", 1)
    assert list(summary.committed) == [("t1", 0, 3)]
    assert world.coordinator.rebalance_count == 1
    (task,) = world.coordinator.periodic_tasks()
    assert task.interval_ms == 600_000
    task.run()


def test_committing_to_a_deleted_topic_fails_cleanly() -> None:
    """Offsets of a topic that is gone would wait for its successor."""
    world = World()
    delete_topic(world.cache, "t1")
    answer = Client(world).call("OffsetCommit", 9, **commit_request(9, "g", [("t1", 0, 1)]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_without_a_name_still_gets_an_id() -> None:
    """Clients that send no client id could not join."""
    client = Client(World())
    answer = client.call("JoinGroup", 9, **join(protocols=[protocol("range", b"")]))
    assert answer.member_id.startswith("probe-")


def test_a_retention_time_beyond_the_end_of_time_is_for_ever() -> None:
    """The commit failed half-way, its connection was closed, and an empty group was left behind."""
    world = World()
    request = message("OffsetCommitRequest")
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = request.OffsetCommitRequestTopic(name="t1", partitions=[partition])
    answer = Client(world).call("OffsetCommit", 3, group_id="g", retention_time_ms=2**63 - 1, topics=[topic])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    world.loop.advance(10.0**9)
    world.coordinator.expire_offsets()
    assert world.restarted().committed("g") == 5


def test_the_longest_group_id_gets_an_answer_in_every_version() -> None:
    """The text of the error quotes the id, and the answer could not be sent."""
    client = Client(World())
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        (group,) = client.call("DescribeGroups", version, groups=["x" * 0x7FFF]).groups
        assert (group.group_state, len(group.group_id)) == ("Dead", 0x7FFF)
