"""What an administrator's client asks, and what it makes of the answers; tests of the commands and of the console have
it against brokers.

Also of `kbroker.administration.acls`, `kbroker.administration.admin`, `kbroker.administration.configs`,
`kbroker.administration.groups`, `kbroker.administration.quotas`, `kbroker.administration.records`,
`kbroker.administration.replicas`, `kbroker.administration.topics`, `kbroker.administration.users`,
`kbroker.client.admin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

import pytest

from kbroker.administration.admin import GROUP, PATIENCE_SECONDS, Admin, run_to_end
from kbroker.administration.groups import DEAD, committed_offsets, describe_group, reset_targets
from kbroker.administration.topics import delete_topics
from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.messages import Message
from kbroker.schemas import wire
from kbroker.types import EARLIEST

A = TypeVar("A")
FIRST, LAST = 10, 20


class ScriptedAdmin(Admin):
    """Answers by a function; its clock goes on with pauses alone."""

    def __init__(self, answer: Callable[[Message], object]) -> None:
        self.answer = answer
        self.seconds = 0.0
        self.asked: list[Message] = []

    async def ask(self, kind: type[A], request: Message, node_id: int | None = None) -> A:
        self.asked.append(request)
        found = self.answer(request)
        assert isinstance(found, kind)
        return found

    async def ask_controller(self, kind: type[A], request: Message) -> A:
        return await self.ask(kind, request)

    def leader_of(self, topic: str, partition: int) -> int:
        if topic == "gone":
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition % 2

    def topic_id_of(self, name: str) -> bytes:
        return name.encode().ljust(16)

    def name_of(self, topic_id: bytes) -> str | None:
        return topic_id.strip().decode()

    def now(self) -> float:
        return self.seconds

    async def pause(self, seconds: float) -> None:
        self.seconds += seconds


class OneBroker(ScriptedAdmin):
    """Of a cluster whose one broker coordinates everything."""

    async def coordinator_of(self, key: str, of: int = GROUP) -> int:
        return 0


def old(request: Message, newest: str) -> None:
    """As a client says that a broker has no version with a field."""
    if getattr(request, newest):
        raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, f"{newest} is not in this version")


def offsets(request: Message) -> wire.ListOffsetsResponse:
    asked = cast("wire.ListOffsetsRequest", request)
    answer = wire.ListOffsetsResponse
    return answer(
        topics=[
            answer.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    answer.ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, offset={-2: FIRST, -1: LAST}.get(row.timestamp, -1)
                    )
                    for row in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
    )


def test_a_procedure_of_a_client_that_waits_ends_at_once() -> None:
    """A command would need a loop, or hang where something waits for one."""
    admin = ScriptedAdmin(offsets)
    places = [("a", 0), ("a", 1), ("b", 0)]
    assert run_to_end(admin.offsets_of(places, EARLIEST)) == dict.fromkeys(places, FIRST)
    assert len(admin.asked) == 2  # One for each leader.

    async def waits() -> None:
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError):
        run_to_end(waits())


def test_what_passes_is_asked_again_for_a_while() -> None:
    """A change would fail while a coordinator loads, or a command never end."""
    left = 3

    def answer(request: Message) -> wire.FindCoordinatorResponse:
        nonlocal left
        left -= 1
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if left >= 0 else ErrorCode.NONE
        row = wire.FindCoordinatorResponse.Coordinator(node_id=7, error_code=code)
        return wire.FindCoordinatorResponse(coordinators=[row])

    admin = ScriptedAdmin(answer)
    assert run_to_end(admin.coordinator_of("g")) == 7 and len(admin.asked) == 4
    left = 1_000
    with pytest.raises(KafkaError):
        run_to_end(admin.coordinator_of("g"))
    assert PATIENCE_SECONDS < admin.seconds < 2 * PATIENCE_SECONDS


def test_partitions_that_are_not_there_are_left_out_where_that_is_wanted() -> None:
    """A group could not be described after a topic of its was deleted."""
    admin = ScriptedAdmin(offsets)
    places = [("a", 0), ("gone", 0)]
    assert run_to_end(admin.offsets_of(places, EARLIEST, skips=True)) == {("a", 0): FIRST}
    with pytest.raises(KafkaError):
        run_to_end(admin.offsets_of(places, EARLIEST))


def test_brokers_before_kafka_3_are_asked_in_their_own_form() -> None:
    """The commands work with any Kafka."""

    def answer(request: Message) -> object:
        if isinstance(request, wire.FindCoordinatorRequest):
            old(request, "coordinator_keys")
            return wire.FindCoordinatorResponse(node_id=5)
        if isinstance(request, wire.OffsetFetchRequest):
            old(request, "groups")
            response = wire.OffsetFetchResponse
            row = response.OffsetFetchResponsePartition(partition_index=1, committed_offset=8)
            return response(topics=[response.OffsetFetchResponseTopic(name="t", partitions=[row])])
        assert isinstance(request, wire.DeleteTopicsRequest)
        old(request, "topics")
        row_of = wire.DeleteTopicsResponse.DeletableTopicResult
        return wire.DeleteTopicsResponse(responses=[row_of(name=name) for name in request.topic_names])

    admin = ScriptedAdmin(answer)
    assert run_to_end(admin.coordinator_of("g")) == 5
    assert run_to_end(committed_offsets(admin, "g")) == {("t", 1): 8}
    assert [row.name for row in run_to_end(delete_topics(admin, ["t", "u"]))] == ["t", "u"]


def test_offsets_of_topics_with_ids_have_their_names() -> None:
    """From OffsetFetch 10 on an answer has ids alone."""
    response = wire.OffsetFetchResponse
    row = response.OffsetFetchResponsePartitions(partition_index=0, committed_offset=3)
    none = response.OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1)
    topic = response.OffsetFetchResponseTopics(topic_id=b"t".ljust(16), partitions=[row, none])
    admin = OneBroker(lambda _: response(groups=[response.OffsetFetchResponseGroup(group_id="g", topics=[topic])]))
    assert run_to_end(committed_offsets(admin, "g")) == {("t", 0): 3}


def test_a_classic_group_is_described_with_what_its_members_have() -> None:
    """It would be shown without members, or as one that is not there."""
    assignment = wire.ConsumerProtocolAssignment(
        assigned_partitions=[wire.ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[2, 0])]
    )
    data = b"\0\0" + bytes(wire.ConsumerProtocolAssignment.program(0).encode(assignment))

    def answer(request: Message) -> object:
        if isinstance(request, wire.ConsumerGroupDescribeRequest):
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION)
        assert isinstance(request, wire.DescribeGroupsRequest)
        described = wire.DescribeGroupsResponse
        if request.groups == ["none"]:
            return described(groups=[described.DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)])
        members = [
            described.DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_assignment=each)
            for each in (data, data[:-1], b"")
        ]
        group = described.DescribedGroup(
            group_state="Stable", protocol_type="consumer", protocol_data="range", members=members
        )
        return described(groups=[group])

    admin = OneBroker(answer)
    found = run_to_end(describe_group(admin, "g"))
    assert (found.state, found.assignor) == ("Stable", "range")
    assert [member.places for member in found.members] == [[("t", 0), ("t", 2)], [], []]
    assert run_to_end(describe_group(admin, "none")).state == DEAD


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        ("earliest", 0, {("t", 0): FIRST, ("t", 1): FIRST}),
        ("latest", 0, {("t", 0): LAST, ("t", 1): LAST}),
        ("offset", 15, {("t", 0): 15, ("t", 1): 15}),
        ("offset", 3, {("t", 0): FIRST, ("t", 1): FIRST}),
        ("time", 1234, {("t", 0): LAST, ("t", 1): LAST}),
        ("shift", -2, {("t", 0): 16}),
        ("shift", 9, {("t", 0): LAST}),
    ],
)
def test_a_group_goes_on_within_what_a_partition_has(
    where: str, value: int, expected: dict[tuple[str, int], int]
) -> None:
    """Its consumers would begin where auto.offset.reset says."""
    places = [("t", 0), ("t", 1)]
    assert run_to_end(reset_targets(ScriptedAdmin(offsets), places, {("t", 0): 18}, where, value)) == expected
