"""The lead: what is decided on what is not committed, when it is answered, and what is left when the lead is lost.

Of `kbroker.cluster.controller.active`, `kbroker.cluster.controller.log_writer`, `kbroker.cluster.controller.deciding`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.cluster.controller import log_writer
from kbroker.cluster.requests import (
    BrokerEpoch,
    ConfigAlteration,
    ElectionType,
    IsrChange,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReplicaReport,
)
from kbroker.error_codes import ErrorCode
from kbroker.errors import (
    KafkaError,
    NotControllerError,
    PolicyViolationError,
    StaleBrokerEpochError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)
from kbroker.metadata.features import FeatureUpdate
from kbroker.metadata.image import ConfigResource
from kbroker.metadata.security_image import SecurityDelta, SecurityImage
from kbroker.schemas import wire
from tests.cluster.controller.led import Led, StandInLog, at, bootstrap, setting
from tests.unbroken import finished

TOPIC = NewTopic("t", 1, 1)


@pytest.fixture(name="led")
def _led() -> Led:
    led = Led()
    led.lead()
    led.serve(1, 2, 3)
    return led


class NoChange:
    """A change of security that changes nothing."""

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, str]:
        return SecurityDelta(), "none"


Asked = Callable[[Led], Coroutine[Any, Any, Any]]
ASKED: dict[str, Asked] = {
    "create": lambda led: led.controller.create_topics([TOPIC]),
    "auto-create": lambda led: led.controller.auto_create_topics(["t"]),
    "internal": lambda led: led.controller.ensure_internal_topic("__consumer_offsets"),
    "grow": lambda led: led.controller.create_partitions([NewPartitions("t", 2)]),
    "delete": lambda led: led.controller.delete_topics([bytes(16)]),
    "configs": lambda led: led.controller.alter_configs([]),
    "quotas": lambda led: led.controller.alter_client_quotas([]),
    "security": lambda led: led.controller.alter_security(NoChange()),
    "isr": lambda led: led.controller.alter_partitions(BrokerEpoch(1, 1), []),
    "elect": lambda led: led.controller.elect_leaders(ElectionType.PREFERRED, None),
    "move": lambda led: led.controller.alter_reassignments([Reassignment(at("t"), [1])]),
    "features": lambda led: led.controller.update_features([FeatureUpdate("metadata.version", 30)]),
    "unregister": lambda led: led.controller.unregister_broker(9),
    "ids": lambda led: led.controller.allocate_producer_ids(BrokerEpoch(1, 1)),
    "no-op": lambda led: led.controller.write_no_op(),
    "stale": lambda led: led.controller.fence_stale(),
    "balance": lambda led: led.controller.balance(),
    "unclean": lambda led: led.controller.elect_uncleanly(),
    "committed": lambda led: led.controller.all_committed(),
}
BY_CODE: dict[str, Asked] = {
    "register": lambda led: led.controller.register_broker(led.registration(1)),
    "heartbeat": lambda led: led.controller.heartbeat(wire.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)),
    "assign": lambda led: led.controller.assign_directories(
        wire.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1)
    ),
    "controller": lambda led: led.controller.register_controller(wire.ControllerRegistrationRequest(controller_id=1)),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_node_that_does_not_lead_refuses(name: str) -> None:
    """It would decide by a state that is behind, and answer for records that no log has."""
    led = Led()
    with pytest.raises(NotControllerError):
        finished(ASKED[name](led))
    assert led.controller.term is None


@pytest.mark.parametrize("name", BY_CODE)
def test_a_node_that_does_not_lead_refuses_brokers(name: str) -> None:
    """They would live by a node that others do not follow."""
    assert finished(BY_CODE[name](Led())).error_code == ErrorCode.NOT_CONTROLLER


def test_standbys_show_what_is_committed(led: Led) -> None:
    """A client would hear of what may never be."""
    assert led.controller.image() is led.metadata.image


@pytest.mark.parametrize("ask", ["report", "shutdown"])
def test_what_brokers_of_a_quorum_say_in_heartbeats_is_no_request(led: Led, ask: str) -> None:
    """There would be two ways of one thing."""
    broker = BrokerEpoch(1, led.epochs[1])
    asked = {
        "report": led.controller.report_replicas(broker, ReplicaReport()),
        "shutdown": led.controller.controlled_shutdown(broker),
    }
    with pytest.raises(UnsupportedVersionError):
        finished(asked.pop(ask))
    for other in asked.values():
        other.close()


def work(run: Callable[[Led, StandInLog], Coroutine[Any, Any, None]]) -> None:
    """Over a log that commits when the test says so."""

    async def begin() -> None:
        led = Led()
        led.lead()
        led.serve(1, 2, 3)
        led.log.holds = led.log.end_offset
        await run(led, led.log)

    asyncio.run(begin())


async def settled() -> None:
    """Let all tasks come as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_an_answer_waits_until_all_is_committed_that_it_was_decided_on() -> None:
    """A client would hear of a topic, or that there is one, which is lost with the lead."""

    async def run(led: Led, log: StandInLog) -> None:
        made = asyncio.create_task(led.controller.create_topics([TOPIC]))
        await settled()
        again = asyncio.create_task(led.controller.create_topics([TOPIC]))
        nothing = asyncio.create_task(led.controller.elect_leaders(ElectionType.PREFERRED, []))
        refused = asyncio.create_task(led.controller.unregister_broker(9))
        beat = asyncio.create_task(
            led.controller.heartbeat(
                wire.BrokerHeartbeatRequest(broker_id=1, broker_epoch=led.epochs[1], current_metadata_offset=100)
            )
        )
        await settled()
        assert "t" in led.written.topics
        assert "t" not in led.controller.image().topics
        waiting = (made, again, nothing, refused, beat)
        assert not any(each.done() for each in waiting)
        await log.release()
        await settled()
        assert all(each.done() for each in waiting)
        assert made.result()[0].error is None
        assert isinstance(again.result()[0].error, TopicAlreadyExistsError)
        assert refused.exception().code == ErrorCode.BROKER_ID_NOT_REGISTERED  # type: ignore[union-attr]

    work(run)


def test_decisions_do_not_wait_for_each_others_commit() -> None:
    """One round through the quorum for each request: a hundred topics would take seconds."""

    async def run(led: Led, log: StandInLog) -> None:
        before = len(log.batches)
        tasks = [
            asyncio.create_task(led.controller.create_topics([NewTopic(f"t{number}", 1, 1)])) for number in range(5)
        ]
        await settled()
        assert len(log.batches) == before + 5
        await log.release()
        assert all(outcome.error is None for outcomes in await asyncio.gather(*tasks) for outcome in outcomes)

    work(run)


def test_two_changes_of_a_partition_get_two_epochs_before_any_is_committed() -> None:
    """Decided from what is committed, both would get the same epoch, and brokers would take one for the other."""

    async def run(led: Led, log: StandInLog) -> None:
        made = asyncio.create_task(led.controller.create_topics([NewTopic("t", assignments=[(0, (1, 2, 3))])]))
        await settled()
        broker = BrokerEpoch(1, led.epochs[1])
        isrs = [[(1, -1), (2, -1)], [(1, -1)]]
        tasks = [
            asyncio.create_task(led.controller.alter_partitions(broker, [IsrChange(at("t"), 0, epoch, isr)]))
            for epoch, isr in enumerate(isrs)
        ]
        await settled()
        await log.release()
        rows = [(await each)[0].image for each in tasks]
        assert [(each.isr, each.partition_epoch) for each in rows if each] == [((1, 2), 1), ((1,), 2)]
        await made

    work(run)


def test_a_lost_lead_drops_what_is_not_committed_and_fails_all_that_wait() -> None:
    """A client would be answered from a state that no node has, and the next lead would begin with it."""

    async def run(led: Led, log: StandInLog) -> None:
        committed = led.controller.image()
        made = asyncio.create_task(led.controller.create_topics([TOPIC]))
        beat = asyncio.create_task(led.controller.heartbeat(wire.BrokerHeartbeatRequest(broker_id=1, broker_epoch=9)))
        await settled()
        log.lose()
        led.controller.resign()
        await settled()
        assert isinstance(made.exception(), NotControllerError)
        assert (await beat).error_code == ErrorCode.NOT_CONTROLLER
        assert led.controller.image() is committed
        led.log = StandInLog(led.metadata, 7)
        await led.controller.lead(led.log)
        assert "t" not in led.written.topics
        assert led.controller.term == 7
        (outcome,) = await led.controller.create_topics([TOPIC])
        assert outcome.error is None

    work(run)


def test_the_log_says_first_that_the_lead_is_lost() -> None:
    """Between that and the controller's resignation a request would be decided whose records no log takes."""

    async def run(led: Led, log: StandInLog) -> None:
        log.lose()
        with pytest.raises(NotControllerError):
            await led.controller.create_topics([TOPIC])
        assert "t" not in led.written.topics
        with pytest.raises(NotControllerError):
            await led.controller.create_topics([TOPIC], validate_only=True)

    work(run)


def test_a_decision_that_was_begun_in_one_lead_is_not_written_in_the_next() -> None:
    """It is of a state that the new lead may not have."""

    async def run(led: Led, log: StandInLog) -> None:
        lock = led.controller._changing
        await lock.acquire()
        batch = led.controller._metadata.batch()
        log.lose()
        led.controller.resign()
        following = StandInLog(led.metadata, 9)
        leads = asyncio.create_task(led.controller.lead(following))
        await settled()
        assert not leads.done()
        with pytest.raises(NotControllerError):
            await led.controller._metadata.append(batch)
        lock.release()
        await leads
        assert not following.batches

    work(run)


def test_a_lead_that_is_lost_before_it_began_begins_nothing() -> None:
    """A controller would write to the log of an epoch that has passed."""

    async def run(led: Led, log: StandInLog) -> None:
        log.lose()
        led.controller.resign()
        following = StandInLog(led.metadata, 9)
        following.end_offset += 1
        leads = asyncio.create_task(led.controller.lead(following))
        await settled()
        assert led.controller.term is None
        with pytest.raises(NotControllerError):
            await led.controller.create_topics([TOPIC])
        led.controller.resign()
        following.lose()
        await settled()
        assert isinstance(leads.exception(), NotControllerError)
        assert led.controller.term is None

    work(run)


def test_an_error_of_its_own_costs_the_lead(led: Led, caplog: pytest.LogCaptureFixture) -> None:
    """A controller whose state is wrong would go on deciding by it."""

    class Broken:
        def plan(self, image: SecurityImage) -> tuple[SecurityDelta, None]:
            raise RuntimeError("broken")

    with pytest.raises(KafkaError) as raised:
        finished(led.controller.alter_security(Broken()))
    assert raised.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert led.log.resigned is not None
    assert "broken" in led.log.resigned
    assert led.controller.term is None
    assert "resigns" in caplog.text


def test_refusals_cost_nothing(led: Led) -> None:
    """One bad request would have the cluster without a controller."""
    with pytest.raises(StaleBrokerEpochError):
        finished(led.controller.alter_partitions(BrokerEpoch(1, 0), []))
    with pytest.raises(StaleBrokerEpochError):
        finished(led.controller.allocate_producer_ids(BrokerEpoch(9, 0)))
    assert led.log.resigned is None
    assert led.controller.term is not None


def test_an_atomic_result_has_a_largest_size(led: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one batch, which has to fit into a fetch: brokers would never get it."""
    monkeypatch.setattr(log_writer, "MOST_RECORDS", 3)
    with pytest.raises(PolicyViolationError, match="Unable to perform excessively large batch operation"):
        finished(led.controller.create_topics([NewTopic("t", 3, 1)]))
    assert "t" not in led.written.topics
    assert not led.records()
    assert led.log.resigned is None


def test_other_results_are_cut_into_pieces(led: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that leads more than fits could not be fenced."""
    for number in range(7):
        led.create(f"t{number}", [1, 2])
    monkeypatch.setattr(log_writer, "MOST_RECORDS", 3)
    before = len(led.log.batches)
    assert led.beat(1, want_fence=True).is_fenced
    assert [len(records) for _, records in led.log.batches[before:]] == [3, 3, 2]


def test_a_leader_names_the_topic_that_it_means(led: Led) -> None:
    """An ISR of a topic that is deleted would be taken for one of its name."""
    led.create("t", [1, 2])
    change = IsrChange(at("t"), 0, 0, [(1, -1)], topic_id=bytes(range(16)))
    (outcome,) = finished(led.controller.alter_partitions(BrokerEpoch(1, led.epochs[1]), [change]))
    assert isinstance(outcome.error, UnknownTopicIdError)


def test_settings_that_are_not_committed_count_for_the_next_decision() -> None:
    """A replica would be taken for one that may lead by a rule that has gone."""

    async def run(led: Led, log: StandInLog) -> None:
        edit = ConfigAlteration(ConfigResource(4, ""), [setting("min.insync.replicas", "2")])
        change = asyncio.create_task(led.controller.alter_configs([edit]))
        await settled()
        assert led.settings.config.get("min.insync.replicas") == 1
        assert led.controller._config().get("min.insync.replicas") == 2
        await log.release()
        assert await change == [None]
        assert led.settings.config.get("min.insync.replicas") == 2

    work(run)


def test_producer_ids_go_on_after_the_lead(led: Led) -> None:
    """Two producers would have one id, and each other's sequences."""
    broker = BrokerEpoch(1, led.epochs[1])
    assert finished(led.controller.allocate_producer_ids(broker)) == (0, 1000)
    assert finished(led.controller.allocate_producer_ids(broker)) == (1000, 1000)
    assert led.records() == [
        ("ProducerIdsRecord", 0, {"broker_id": 1, "broker_epoch": broker.epoch, "next_producer_id": 1000}),
        ("ProducerIdsRecord", 0, {"broker_id": 1, "broker_epoch": broker.epoch, "next_producer_id": 2000}),
    ]
    led.controller.resign()
    led.lead()
    assert finished(led.controller.allocate_producer_ids(broker)) == (2000, 1000)


@pytest.mark.parametrize("is_alone", [True, False])
def test_default_factors_are_cut_where_the_cluster_is_one_node(is_alone: bool) -> None:
    """A single node would have no offsets topic; a cluster would have one that dies with its first broker."""
    led = Led(is_alone=is_alone)
    led.lead()
    led.serve(1)
    ask = led.controller.ensure_internal_topic("__consumer_offsets")
    if is_alone:
        assert finished(ask).replication_factor == 1
    else:
        with pytest.raises(KafkaError, match="only 1 broker"):
            finished(ask)


def test_a_lead_that_ends_while_it_begins_does_not_end_the_next_one() -> None:
    """A node that leads would have no active controller."""

    async def run() -> None:
        led = Led(slices=Slices(slice_us=0))
        first, second = StandInLog(led.metadata, 2), StandInLog(led.metadata, 3)
        begins = asyncio.create_task(led.controller.lead(first, bootstrap()))
        while led.controller.term is None:
            await asyncio.sleep(0)
        first.lose()
        led.controller.resign()
        follows = asyncio.create_task(led.controller.lead(second, bootstrap()))
        await follows
        assert isinstance(begins.exception(), NotControllerError)
        assert led.controller.term == 3
        assert not first.batches
        assert len(second.batches) == 1

    asyncio.run(run())
