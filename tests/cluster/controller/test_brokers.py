"""Lives of brokers at the active controller: registration, heartbeats, sessions, leaving.

Of `kbroker.cluster.controller.brokers`, `kbroker.cluster.controller.sessions`,
`kbroker.cluster.controller.registrations`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.cluster.requests import BrokerEpoch, IsrChange, NewTopic
from kbroker.error_codes import ErrorCode
from kbroker.errors import BrokerIdNotRegisteredError
from kbroker.schemas import wire
from kbroker.types import UNASSIGNED_DIRECTORY
from tests.cluster.controller.led import NODE_ID, RANGES, Led, at, bootstrap, directory
from tests.unbroken import finished

CHANGE = "PartitionChangeRecord"
BROKER = "BrokerRegistrationChangeRecord"


@pytest.fixture(name="led")
def _led() -> Led:
    led = Led()
    led.lead()
    led.serve(1, 2, 3)
    return led


def feature(name: str, low: int, high: int) -> wire.BrokerRegistrationRequest.Feature:
    return wire.BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)


def features(**changed: tuple[int, int] | None) -> list[wire.BrokerRegistrationRequest.Feature]:
    """The usual ones but for these."""
    ranges = {**RANGES, **{name.replace("_", "."): each for name, each in changed.items()}}
    return [feature(name, *each) for name, each in ranges.items() if each is not None]


# Registration

REFUSED: dict[str, tuple[int, dict[str, Any], ErrorCode]] = {
    "another cluster": (4, {"cluster_id": "x"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    "a negative id": (-1, {"incarnation_id": bytes(16), "log_dirs": [directory(4)]}, ErrorCode.INVALID_REGISTRATION),
    "a controller's id": (
        NODE_ID,
        {"incarnation_id": bytes(16), "listeners": [], "log_dirs": [directory(4)]},
        ErrorCode.INVALID_REGISTRATION,
    ),
    "of ZooKeeper": (4, {"is_migrating_zk_broker": True}, ErrorCode.INVALID_REGISTRATION),
    "no directory": (4, {"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
    "a directory twice": (4, {"log_dirs": [directory(4)] * 2}, ErrorCode.INVALID_REGISTRATION),
    "a reserved directory": (4, {"log_dirs": [UNASSIGNED_DIRECTORY]}, ErrorCode.INVALID_REGISTRATION),
    "another's directory": (4, {"log_dirs": [directory(1)]}, ErrorCode.INVALID_REGISTRATION),
    "no features": (4, {"features": []}, ErrorCode.INVALID_REGISTRATION),
    "too old": (4, {"features": features(metadata_version=(7, 29))}, ErrorCode.UNSUPPORTED_VERSION),
    "too new": (4, {"features": features(metadata_version=(31, 40))}, ErrorCode.UNSUPPORTED_VERSION),
    "without a feature": (
        4,
        {"features": features(eligible_leader_replicas_version=None)},
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "a live session": (1, {"incarnation_id": b"another life!!!!"}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
}


@pytest.mark.parametrize("why", REFUSED)
def test_who_cannot_be_a_broker_is_refused(led: Led, why: str) -> None:
    """It would be in ISRs of records that it cannot read, or two processes would be one broker."""
    node_id, fields, code = REFUSED[why]
    listeners: dict[str, Any] = {"listeners": []} if node_id < 0 else {}
    request = led.registration(max(node_id, 0) if node_id != NODE_ID else 9, **{**listeners, **fields})
    request.broker_id = node_id
    answer = finished(led.controller.register_broker(request))
    assert ErrorCode(answer.error_code) == code
    assert not led.records()


def test_a_registration_is_a_record_with_its_own_offset_as_the_epoch(led: Led) -> None:
    """Two lives of a broker would have one epoch, and a leader could not tell them apart."""
    end = led.log.end_offset
    assert led.register(4, rack="r") == end
    ((kind, version, fields),) = led.records()
    assert (kind, version) == ("RegisterBrokerRecord", 4)
    assert fields["broker_epoch"] == end
    assert fields["rack"] == "r"
    assert fields["log_dirs"] == [directory(4)]
    assert led.written.brokers[4].is_fenced
    assert led.written.brokers[4].features == RANGES


def test_the_epoch_is_the_offset_of_the_first_record_of_the_batch(led: Led) -> None:
    """Kafka's standbys and brokers take it for that; nothing may come in between."""
    led.create("t", [1, 2], [2, 1])
    led.now += 10
    end = led.log.end_offset
    assert led.register(1, 2) == end
    records = led.records()
    assert [kind for kind, _, _ in records] == [CHANGE, CHANGE, "RegisterBrokerRecord"]
    assert records[-1][2]["broker_epoch"] == end
    assert not led.beat(1, current_metadata_offset=end + 1).is_caught_up
    assert led.beat(1, current_metadata_offset=end + 2).is_caught_up


def test_the_same_incarnation_keeps_its_epoch_and_state(led: Led) -> None:
    """A broker that lost an answer would be fenced in the middle of its work."""
    epoch = led.epochs[1]
    led.create("t", [1, 2])
    assert led.register(1) == epoch
    ((kind, _, fields),) = led.records()
    assert kind == "RegisterBrokerRecord"
    assert fields["broker_epoch"] == epoch
    assert "fenced" in fields  # False, where the default is True
    assert not led.written.brokers[1].is_fenced
    assert led.partition("t").leader == 1
    assert not led.beat(1, current_metadata_offset=0).is_caught_up


def test_until_the_first_heartbeat_another_life_may_register(led: Led) -> None:
    """A broker that crashed in its start would be kept out for a session."""
    first = led.register(4)
    assert led.register(4, 2) > first
    led.beat(4)
    answer = finished(led.controller.register_broker(led.registration(4, 3)))
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    led.now += led.controller._sessions.seconds
    assert led.register(4, 3) > first


@pytest.mark.parametrize(("is_clean", "elr"), [(True, (2,)), (False, ())])
def test_a_life_that_did_not_end_in_order_is_in_no_elr(led: Led, is_clean: bool, elr: tuple[int, ...]) -> None:
    """A replica that lost what only the page cache had would be elected for having all."""
    led.create("t", [1, 2], min_insync_replicas="2")
    led.beat(2, want_fence=True)
    assert led.partition("t").elr == (2,)
    led.now += 10
    led.records()
    led.register(2, 2, previous_broker_epoch=led.epochs[2] if is_clean else -1)
    assert led.partition("t").elr == elr
    kinds = [kind for kind, _, _ in led.records()]
    assert kinds == (["RegisterBrokerRecord"] if is_clean else [CHANGE, "RegisterBrokerRecord"])


def test_a_life_that_did_not_end_in_order_leaves_isrs_and_is_not_eligible(led: Led) -> None:
    """It would lead again with the records that it lost."""
    led.create("t", [1], min_insync_replicas="1")
    led.now += 10
    led.register(1, 2)
    row = led.partition("t")
    assert (row.leader, row.isr, row.elr, row.last_known_elr) == (-1, (), (), (1,))
    led.beat(1)
    row = led.partition("t")
    assert (row.leader, row.isr, row.leader_recovery_state) == (1, (1,), 1)


def test_without_elrs_the_last_one_stays_in_the_isr(led: Led) -> None:
    """A partition with one replica would never have a leader again."""
    led = Led()
    led.lead(bootstrap(elr=0))
    led.serve(1)
    led.create("t", [1])
    led.now += 10
    led.register(1, 2)
    assert (led.partition("t").leader, led.partition("t").isr) == (-1, (1,))
    led.beat(1)
    assert led.partition("t").leader == 1


@pytest.mark.parametrize(("level", "version", "knows"), [(7, 1, False), (12, 2, False), (17, 3, True), (30, 4, True)])
def test_records_are_in_the_versions_of_the_cluster(level: int, version: int, knows: bool) -> None:
    """An older broker could not read the log, and would stop."""
    led = Led()
    led.lead(bootstrap(level, elr=0))
    led.register(1)
    ((kind, found, fields),) = led.records()[-1:]
    assert (kind, found) == ("RegisterBrokerRecord", version)
    assert ("log_dirs" in fields) == knows
    led.beat(1)
    led.serve(2)
    led.create("t", [1, 2])
    assert led.partition("t").directories == ((directory(1), directory(2)) if knows else ())
    led.beat(2, want_fence=True)
    change = next(fields for kind, _, fields in led.records() if kind == CHANGE)
    # Before 3.6 a smaller ISR begins a leader epoch.
    assert ("leader" in change) == (level < 12)
    answer = finished(
        led.controller.assign_directories(wire.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=led.epochs[1]))
    )
    assert answer.error_code == (0 if knows else ErrorCode.UNSUPPORTED_VERSION)


def test_a_broker_is_unregistered(led: Led) -> None:
    """It would be a replica of new partitions for ever."""
    led.create("t", [1, 2])
    finished(led.controller.unregister_broker(1))
    records = led.records()
    assert [kind for kind, _, _ in records] == [CHANGE, "UnregisterBrokerRecord"]
    assert records[1][2] == {"broker_id": 1, "broker_epoch": led.epochs[1]}
    assert led.partition("t").leader == 2
    assert led.beat(1).error_code == ErrorCode.STALE_BROKER_EPOCH
    led.register(1)
    with pytest.raises(BrokerIdNotRegisteredError, match="Broker ID 9 is not currently registered"):
        finished(led.controller.unregister_broker(9))


# Controllers


def controller_request(**fields: Any) -> wire.ControllerRegistrationRequest:
    made = wire.ControllerRegistrationRequest
    values = {
        "controller_id": NODE_ID,
        "incarnation_id": bytes(range(16)),
        "zk_migration_ready": False,
        "listeners": [made.Listener(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
        "features": [
            made.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in RANGES.items()
        ],
        **fields,
    }
    return made(**values)


def test_controllers_register(led: Led) -> None:
    """A feature would be raised to a level that one of them cannot read."""
    assert finished(led.controller.register_controller(controller_request())).error_code == 0
    ((kind, version, fields),) = led.records()
    assert (kind, version) == ("RegisterControllerRecord", 0)
    assert fields["controller_id"] == NODE_ID
    assert led.written.controllers[NODE_ID].features == RANGES
    answer = finished(led.controller.register_controller(controller_request(features=[])))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    old = Led()
    old.lead(bootstrap(14, elr=0))
    answer = finished(old.controller.register_controller(controller_request()))
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "The current MetadataVersion is too old to support controller registrations.",
    )


# Heartbeats


@pytest.mark.parametrize("epoch", [-1, 1])
def test_a_heartbeat_of_another_life_is_stale(led: Led, epoch: int) -> None:
    """The broker would not register again, and never be unfenced."""
    answer = led.beat(1, broker_epoch=led.epochs[1] + epoch)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    led.epochs[9] = 1
    assert led.beat(9).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_is_unfenced_when_it_knows_its_registration(led: Led) -> None:
    """It would lead by an image of before."""
    led.register(4)
    behind = led.beat(4, current_metadata_offset=led.epochs[4] - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    waits = led.beat(4, want_fence=True)
    assert (waits.is_caught_up, waits.is_fenced) == (True, True)
    led.records()
    answer = led.beat(4)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)
    assert led.records() == [(BROKER, 0, {"broker_id": 4, "broker_epoch": led.epochs[4], "fenced": -1})]


def test_what_nobody_leads_has_a_leader_with_the_broker(led: Led) -> None:
    """Partitions would wait for an administrator."""
    led.create("t", [1], [2])
    led.beat(1, want_fence=True)
    assert led.partition("t").leader == -1
    led.records()
    led.beat(1)
    change = {"partition_id": 0, "topic_id": led.written.topics["t"].topic_id, "isr": [1], "leader": 1}
    assert led.records() == [
        (BROKER, 0, {"broker_id": 1, "broker_epoch": led.epochs[1], "fenced": -1}),
        (CHANGE, 2, {**change, "eligible_leader_replicas": [], "last_known_elr": []}),
    ]


def test_a_broker_that_wants_to_be_fenced_is(led: Led) -> None:
    """Clients would be sent to one that does not serve."""
    led.create("t", [1, 2])
    answer = led.beat(1, want_fence=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    assert [kind for kind, _, _ in led.records()] == [CHANGE, BROKER]
    assert (led.partition("t").leader, led.partition("t").isr) == (2, (2,))
    assert led.beat(1, want_fence=True).is_fenced
    assert not led.records()


def test_a_heartbeat_without_news_writes_nothing(led: Led) -> None:
    """The log would grow with every heartbeat of every broker."""
    assert not led.beat(1).is_fenced
    assert not led.records()


# Leaving


def test_a_broker_that_leads_nothing_may_go_at_once(led: Led) -> None:
    """A stop would take a round of all brokers for nothing."""
    led.create("t", [2, 1])
    answer = led.beat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert [kind for kind, _, _ in led.records()] == [CHANGE, BROKER]


@pytest.mark.parametrize("wants_fence", [True, False])
def test_a_fenced_broker_may_go_at_once(led: Led, wants_fence: bool) -> None:
    """Its stop would wait for what it does not do."""
    led.beat(1, want_fence=True)
    led.records()
    answer = led.beat(1, want_shut_down=True, want_fence=wants_fence)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert not led.records()


def test_a_broker_that_wants_both_goes(led: Led) -> None:
    """It asks for no other leaders, and would be kept."""
    led.create("t", [1, 2])
    answer = led.beat(1, want_shut_down=True, want_fence=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)


def test_a_leader_goes_when_all_others_know_the_new_ones(led: Led) -> None:
    """Clients would be sent to a broker that has gone by those that have not heard of it."""
    led.create("t", [1, 2])
    before = led.metadata.applied_offset
    answer = led.beat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    records = led.records()
    assert [(kind, version) for kind, version, _ in records] == [(BROKER, 1), (CHANGE, 2)]
    assert led.partition("t").leader == 2
    since = led.metadata.applied_offset
    led.beat(2)
    led.beat(3, current_metadata_offset=before)
    assert not led.beat(1, want_shut_down=True).should_shut_down
    led.beat(3, current_metadata_offset=since)
    assert not led.records()
    answer = led.beat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert led.records() == [(BROKER, 0, {"broker_id": 1, "broker_epoch": led.epochs[1], "fenced": 1})]


def test_a_broker_that_is_about_to_go_gets_nothing_new(led: Led) -> None:
    """It would lead again what it has just given away."""
    led.create("t", [1, 2])
    led.beat(1, want_shut_down=True)
    (outcome,) = finished(led.controller.create_topics([NewTopic("u", 6, 3)]))
    assert outcome.error.code == ErrorCode.INVALID_REPLICATION_FACTOR
    led.create("v", [1, 2])
    assert (led.partition("v").leader, led.partition("v").isr) == (2, (2,))
    change = IsrChange(at("t"), 1, 1, [(2, -1), (1, -1)])
    (outcome,) = finished(led.controller.alter_partitions(BrokerEpoch(2, led.epochs[2]), [change]))
    assert outcome.error.code == ErrorCode.INELIGIBLE_REPLICA


def test_leadership_that_cannot_move_ends(led: Led) -> None:
    """The broker would never stop."""
    led.create("t", [1])
    assert not led.beat(1, want_shut_down=True).should_shut_down
    assert led.partition("t").leader == -1
    led.beat(2)
    led.beat(3)
    assert led.beat(1, want_shut_down=True).should_shut_down


def test_under_the_next_controller_others_have_to_know_all(led: Led) -> None:
    """What others have heard is lost with the lead; the broker would go before they know."""
    led.create("t", [1, 2])
    led.beat(1, want_shut_down=True)
    led.controller.resign()
    led.lead()
    assert not led.beat(1, want_shut_down=True).should_shut_down
    led.beat(2)
    led.beat(3)
    assert led.beat(1, want_shut_down=True).should_shut_down


def test_the_last_broker_waits_for_no_one(led: Led) -> None:
    """A cluster could not be stopped."""
    led.create("t", [1, 2, 3])
    for node_id in (2, 3):
        led.beat(node_id, want_shut_down=True)
    assert not led.beat(1, want_shut_down=True).should_shut_down
    assert led.beat(1, want_shut_down=True).should_shut_down


# Sessions


def test_the_most_silent_broker_is_fenced_first(led: Led) -> None:
    """All that are silent at once would be fenced in one turn, also where this node was away."""
    led.create("t", [1, 2, 3])
    led.now += 5
    led.beat(2)
    led.now += 4.5
    led.records()
    assert finished(led.controller.fence_stale())
    assert [fields["broker_id"] for kind, _, fields in led.records() if kind == BROKER] == [1]
    assert not finished(led.controller.fence_stale())
    assert [fields["broker_id"] for kind, _, fields in led.records() if kind == BROKER] == [3]
    assert not finished(led.controller.fence_stale())
    assert (led.partition("t").leader, led.partition("t").isr) == (2, (2,))
    # It comes back as it is: same epoch, no registration.
    answer = led.beat(1)
    assert (answer.error_code, answer.is_fenced) == (0, False)


def test_a_lead_begins_with_whole_sessions_of_those_that_live(led: Led) -> None:
    """All brokers would be fenced by a controller that has heard of none yet."""
    led.beat(3, want_fence=True)
    led.controller.resign()
    led.now += 100
    led.lead()
    assert not finished(led.controller.fence_stale())
    answer = finished(led.controller.register_broker(led.registration(1, 2)))
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    led.register(3, 2)
    led.now += 9
    assert finished(led.controller.fence_stale())


def test_a_session_goes_on_while_a_change_is_under_way(led: Led) -> None:
    """Heartbeats wait for large changes: brokers would be fenced for what others ask."""
    led.now += 8

    async def run() -> None:
        await led.controller._changing.acquire()
        request = wire.BrokerHeartbeatRequest(broker_id=1, broker_epoch=led.epochs[1], current_metadata_offset=100)
        beat = asyncio.create_task(led.controller.heartbeat(request))
        await asyncio.sleep(0)
        led.now += 8
        led.controller._changing.release()
        await beat

    asyncio.run(run())
    assert led.controller._sessions.has(1, led.epochs[1])
    assert not led.controller._sessions.has(2, led.epochs[2])


def test_contact_counts_also_of_a_fenced_broker(led: Led) -> None:
    """Another life would begin while the one that was let go is still there."""
    led.beat(1, want_shut_down=True)
    answer = finished(led.controller.register_broker(led.registration(1, 2)))
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    led.now += 10
    assert finished(led.controller.fence_stale())
    led.register(1, 2)
