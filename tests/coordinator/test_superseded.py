"""A coordinator of transactions, or of groups, that may have a successor, of which it does not hear."""

from __future__ import annotations

import pytest

from kbroker.coordinator.classic.messages import LeavingMember
from kbroker.coordinator.classic.refusals import FOR_GOOD, Refusals
from kbroker.coordinator.transactions.transaction_coordinator import ProducerRequest
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.errors import ErrorCode, KafkaError
from tests.coordinator.consumer.beats import beat
from tests.coordinator.harness import World
from tests.coordinator.transaction_world import PARTITIONS, TransactionWorld


@pytest.fixture
def world() -> TransactionWorld:
    """A producer has a transaction of one partition open, and the broker was cut off then."""
    made = TransactionWorld()
    assert isinstance(made.init("t"), TransactionMetadata)
    producer = made.found("t")
    assert isinstance(made.add("t", producer.producer_id, producer.producer_epoch, PARTITIONS[0]), TransactionMetadata)
    made.may_be_superseded = True
    return made


def verified(world: TransactionWorld, producer: ProducerRequest, *partitions: object) -> object:
    try:
        return world.coordinator.verify(producer, frozenset(partitions))  # type: ignore[arg-type]
    except KafkaError as error:
        return error.code


def test_a_producer_of_its_successors_epoch_is_not_fenced(world: TransactionWorld) -> None:
    """The leader beside a coordinator that was cut off told a producer that it was fenced, which had just begun (seed
    62203): its application would end."""
    known = world.found("t")
    newer = (known.producer_id, known.producer_epoch + 1)
    assert world.add("t", *newer, PARTITIONS[1]) is ErrorCode.NOT_COORDINATOR
    assert world.end("t", *newer, commit=True) is ErrorCode.NOT_COORDINATOR
    assert verified(world, ProducerRequest("t", *newer), PARTITIONS[0]) is ErrorCode.NOT_COORDINATOR
    world.may_be_superseded = False
    assert world.add("t", *newer, PARTITIONS[1]) is ErrorCode.PRODUCER_FENCED
    assert verified(world, ProducerRequest("t", *newer), PARTITIONS[0]) is ErrorCode.PRODUCER_FENCED


def test_an_id_that_only_its_successor_knows_is_not_refused(world: TransactionWorld) -> None:
    """A new producer would be told that its id is not mapped, which ends it."""
    assert world.add("other", 7, 0, PARTITIONS[0]) is ErrorCode.NOT_COORDINATOR
    assert verified(world, ProducerRequest("other", 7, 0), PARTITIONS[0]) is ErrorCode.NOT_COORDINATOR


def test_a_partition_that_its_successor_has_added_is_not_called_missing(world: TransactionWorld) -> None:
    """A batch of a partition that was added elsewhere would be refused as one of no transaction."""
    known = world.found("t")
    producer = ProducerRequest("t", known.producer_id, known.producer_epoch)
    assert verified(world, producer, PARTITIONS[0]) == {PARTITIONS[0]}
    assert verified(world, producer, *PARTITIONS[:2]) is ErrorCode.NOT_COORDINATOR
    world.may_be_superseded = False
    assert verified(world, producer, *PARTITIONS[:2]) == {PARTITIONS[0]}


# Groups

INSTANCE = "instance"


def static(groups: World, member_id: str, generation_id: int) -> dict[str, ErrorCode]:
    """What a static member is told, by request."""
    protocols = {"group_instance_id": INSTANCE}
    return {
        "join": groups.join(member_id=member_id, **protocols).answer.error,
        "sync": groups.sync("g", member_id, generation_id, **protocols).answer.error,
        "heartbeat": groups.heartbeat("g", member_id, generation_id, INSTANCE),
        "commit": groups.commit("g", 5, member_id=member_id, generation_id=generation_id, group_instance_id=INSTANCE),
        "leave": groups.coordinator.leave("g", [LeavingMember(member_id, INSTANCE)])[0].error,
    }


def test_a_static_member_that_its_successor_has_let_in_is_not_fenced() -> None:
    """Its consumer would end for good, though the coordinator beside the one that was cut off has just let it in."""
    groups = World()
    known = groups.stable_member(group_instance_id=INSTANCE)
    fenced = dict.fromkeys(("join", "sync", "heartbeat", "commit", "leave"), ErrorCode.FENCED_INSTANCE_ID)
    assert static(groups, "newer", known.generation_id + 1) == fenced
    groups.may_be_superseded = True
    assert static(groups, "newer", known.generation_id + 1) == dict.fromkeys(fenced, ErrorCode.NOT_COORDINATOR)
    assert groups.heartbeat("g", known.member_id, known.generation_id, INSTANCE) is ErrorCode.NONE


def test_a_join_that_waits_is_answered_by_what_is_known_then() -> None:
    """A member would be fenced that waited when its coordinator was cut off."""
    groups = World({"group.initial.rebalance.delay.ms": 3_000})
    waiting = groups.join(member_id="", group_instance_id=INSTANCE)
    assert waiting.waits
    groups.may_be_superseded = True
    groups.join(member_id="", group_instance_id=INSTANCE)
    assert waiting.answer.error is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("code", sorted(FOR_GOOD))
def test_what_ends_a_client_is_not_said_by_one_that_may_have_a_successor(code: ErrorCode) -> None:
    """Its successor may have fewer members, of other protocols, or the instance's new one."""
    told = {}
    for is_cut_off in (False, True):
        refusals = Refusals(lambda is_cut_off=is_cut_off: is_cut_off)  # type: ignore[misc]
        try:
            with refusals.raised():
                raise KafkaError.of(code)
        except KafkaError as error:
            told[is_cut_off] = error.code
        assert refusals.codes([ErrorCode.NONE, code]) == [ErrorCode.NONE, told[is_cut_off]]
    assert told == {False: code, True: ErrorCode.NOT_COORDINATOR}


def test_a_member_that_may_join_anew_is_told_so_all_the_same() -> None:
    """It would look for its coordinator for as long as the broker is cut off, and find the same one."""
    groups = World()
    known = groups.stable_member()
    groups.may_be_superseded = True
    assert groups.heartbeat("g", "other", known.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("g", known.member_id, known.generation_id + 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_static_member_of_the_newer_protocol_is_not_fenced_either() -> None:
    """As those of the classic one."""
    groups = World()

    def told(member_id: str, epoch: int) -> ErrorCode:

        try:
            beat(groups, member_id, epoch, instance_id=INSTANCE)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    assert told("first", 0) is ErrorCode.NONE
    assert told("second", 0) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert told("second", 1) is ErrorCode.FENCED_INSTANCE_ID
    groups.may_be_superseded = True
    assert told("second", 0) is ErrorCode.NOT_COORDINATOR
    assert told("second", 1) is ErrorCode.NOT_COORDINATOR
