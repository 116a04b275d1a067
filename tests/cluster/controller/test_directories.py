"""Log directories of brokers at the active controller: which fail, which take nothing new, what is where.

Of `kbroker.cluster.controller.assignments`, `kbroker.cluster.controller.directories`.
"""

from __future__ import annotations

import pytest

from kbroker.cluster.controller.directories import works
from kbroker.cluster.requests import BrokerEpoch, IsrChange, NewTopic
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import BrokerImage
from kbroker.schemas import wire
from kbroker.types import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from tests.cluster.controller.led import Led, at, directory
from tests.unbroken import finished

CHANGE = "PartitionChangeRecord"
BROKER = "BrokerRegistrationChangeRecord"


@pytest.fixture(name="led")
def _led() -> Led:
    led = Led()
    led.lead()
    led.serve(1, 2, 3)
    return led


def test_replicas_in_a_directory_that_fails_leave(led: Led) -> None:
    """A partition would be led by a broker that cannot read it."""
    led.register(4, log_dirs=[directory(4), directory(4, 1)])
    led.beat(4)
    led.create("t", [4, 1], [4, 1])
    assert led.partition("t").directories == (UNASSIGNED_DIRECTORY, directory(1))
    for number in (0, 1):
        assign(led, 4, directory(4, number), "t", number)
    led.records()
    answer = led.beat(4, offline_log_dirs=[directory(4, 1), bytes(15) + b"x"])
    assert not answer.is_fenced
    topic_id = led.written.topics["t"].topic_id
    assert led.records() == [
        (CHANGE, 2, {"partition_id": 1, "topic_id": topic_id, "isr": [1], "leader": 1}),
        (BROKER, 2, {"broker_id": 4, "broker_epoch": led.epochs[4], "log_dirs": [directory(4)]}),
    ]
    assert led.partition("t", 1).offline_replicas == (4,)
    assert led.partition("t", 0).leader == 4
    led.beat(4, offline_log_dirs=[directory(4, 1)])
    assert not led.records()
    change = IsrChange(at("t", 1), 1, led.partition("t", 1).partition_epoch, [(1, -1), (4, -1)])
    (outcome,) = finished(led.controller.alter_partitions(BrokerEpoch(1, led.epochs[1]), [change]))
    assert outcome.error.code == ErrorCode.INELIGIBLE_REPLICA


def test_the_last_directory_stays_in_the_registration(led: Led) -> None:
    """A record cannot say that there is none; the broker stops by itself."""
    led.create("t", [1, 2])
    led.beat(1, offline_log_dirs=[directory(1)])
    assert [kind for kind, _, _ in led.records()] == [CHANGE]
    assert led.partition("t").isr == (2,)


def test_a_new_life_has_other_directories(led: Led) -> None:
    """A replica that is gone with its disk would be taken for one that can lead."""
    led.create("t", [1, 2], [2, 3])
    led.now += 10
    led.register(1, 2, log_dirs=[directory(1, 7)])
    assert led.partition("t").offline_replicas == (1,)
    led.controller.resign()
    led.lead()
    assert led.partition("t").offline_replicas == (1,)
    assert led.partition("t", 1).offline_replicas == ()


def test_cordoned_directories_are_noted(led: Led) -> None:
    """New replicas would go where the administrator wants none."""
    led.beat(1, cordoned_log_dirs=[directory(1)])
    epoch = led.epochs[1]
    assert led.records() == [(BROKER, 3, {"broker_id": 1, "broker_epoch": epoch, "cordoned_log_dirs": [directory(1)]})]
    led.beat(1, cordoned_log_dirs=None)
    led.beat(1, cordoned_log_dirs=[directory(1)])
    assert not led.records()
    (outcome,) = finished(led.controller.create_topics([NewTopic("u", 6, 2)]))
    assert not any(1 in each.replicas for each in outcome.topic.partitions)


def test_fenced_brokers_are_replicas_of_new_partitions_where_there_are_too_few_others(led: Led) -> None:
    """A topic could not be made while one of three brokers is away."""
    led.beat(3, want_fence=True)
    (two, three, four) = finished(
        led.controller.create_topics([NewTopic("two", 6, 2), NewTopic("three", 6, 3), NewTopic("four", 6, 4)])
    )
    assert not any(3 in each.replicas for each in two.topic.partitions)
    assert all(each.replicas[-1] == 3 and each.isr == each.replicas[:2] for each in three.topic.partitions)
    assert led.partition("three").directories[-1] == directory(3)
    assert "only 3 broker(s) are registered" in str(four.error)


def test_no_partition_is_made_without_a_broker_that_lives(led: Led) -> None:
    """It would have no leader from its beginning."""
    for node_id in (1, 2, 3):
        led.beat(node_id, want_fence=True)
    (outcome,) = finished(led.controller.create_topics([NewTopic("t", 1, 1)]))
    assert "All brokers are currently fenced" in str(outcome.error)


def assign(led: Led, node_id: int, place: bytes, topic: str | bytes, number: int = 0) -> int:
    """A broker has a replica there; the code of the partition, or of the request."""
    made = wire.AssignReplicasToDirsRequest
    topic_id = topic if isinstance(topic, bytes) else led.written.topics[topic].topic_id
    partitions = [made.PartitionData(partition_index=number)]
    topics = [made.TopicData(topic_id=topic_id, partitions=partitions)]
    request = made(
        broker_id=node_id,
        broker_epoch=led.epochs[node_id],
        directories=[made.DirectoryData(id=place, topics=topics)],
    )
    answer = finished(led.controller.assign_directories(request))
    if answer.error_code:
        return int(answer.error_code)
    return int(answer.directories[0].topics[0].partitions[0].error_code)


def test_a_broker_says_where_its_replicas_are(led: Led) -> None:
    """A directory that fails would take down what is not in it."""
    led.create("t", [1, 2])
    assert assign(led, 1, directory(1), "t") == 0
    assert not led.records()
    led.register(4, log_dirs=[directory(4), directory(4, 1)])
    led.beat(4)
    led.create("u", [1, 4])
    led.records()
    assert assign(led, 4, directory(4, 1), "u") == 0
    topic_id = led.written.topics["u"].topic_id
    expected = {"partition_id": 0, "topic_id": topic_id, "directories": [directory(1), directory(4, 1)]}
    assert led.records() == [(CHANGE, 2, expected)]


def test_a_replica_in_a_directory_that_its_broker_does_not_have_is_offline(led: Led) -> None:
    """It would stay in the ISR, and be elected."""
    led.create("t", [1, 2])
    assert assign(led, 1, directory(1, 9), "t") == 0
    topic_id = led.written.topics["t"].topic_id
    assert led.records() == [
        (CHANGE, 2, {"partition_id": 0, "topic_id": topic_id, "directories": [directory(1, 9), directory(2)]}),
        (CHANGE, 2, {"partition_id": 0, "topic_id": topic_id, "isr": [2], "leader": 2}),
    ]
    assert led.partition("t").offline_replicas == (1,)


def test_assignments_are_refused_one_by_one(led: Led) -> None:
    """One topic that was deleted would keep all others from being known."""
    led.create("t", [1, 2])
    assert assign(led, 3, directory(3), "t") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(led, 1, directory(1), "t", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(led, 1, directory(1), bytes(range(16))) == ErrorCode.UNKNOWN_TOPIC_ID
    led.epochs[1] += 1
    assert assign(led, 1, directory(1), "t") == ErrorCode.STALE_BROKER_EPOCH
    assert not led.records()


@pytest.mark.parametrize(
    ("place", "log_dirs", "expected"),
    [
        (UNASSIGNED_DIRECTORY, (b"a",), True),
        (MIGRATING_DIRECTORY, (b"a",), True),
        (LOST_DIRECTORY, (), False),
        (b"a", (b"a", b"b"), True),
        (b"c", (b"a", b"b"), False),
        (b"c", (), True),
    ],
)
def test_which_directories_work(place: bytes, log_dirs: tuple[bytes, ...], expected: bool) -> None:
    """Replicas from before directories were known would all be offline."""
    assert works(BrokerImage(1, {}, log_dirs=log_dirs), place) == expected
