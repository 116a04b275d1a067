"""Heartbeats that repeat themselves are answered from memory, and still learn of every change and keep their member."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kbroker.schemas import message
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.coordinator.consumer.record_answers import Socket

# A process that gets no processor for so long would lose its member.
SESSION_SECONDS = 5.0
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(round(SESSION_SECONDS * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with short sessions, and a topic of two partitions."""
    process = BrokerProcess(tmp_path_factory.mktemp("beats"), SETTINGS)
    process.start()
    process.create_topic("beaten", 2)
    yield process
    process.stop()


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Socket]:
    """A connection."""
    with closing(Socket("127.0.0.1", broker.port)) as connection:
        connection.call("FindCoordinator", 4, key_type=0, coordinator_keys=["any"])
        yield connection


class Member:
    """A member that says no more than it must."""

    def __init__(self, caller: Socket, group: str, member_id: str) -> None:
        self.caller = caller
        self.who: dict[str, Any] = {"group_id": group, "member_id": member_id}
        self.epoch = 0
        self.owned: list[int] = []
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["beaten"], "topic_partitions": []}
        self.take(self.call(**joins))

    def call(self, **fields: Any) -> Any:
        """One heartbeat in the member's epoch."""
        return self.caller.call("ConsumerGroupHeartbeat", 1, **self.who, member_epoch=self.epoch, **fields)

    def beat(self) -> Any:
        """The heartbeat that repeats itself."""
        return self.take(self.call())

    def take(self, answer: Any) -> Any:
        """Do as the coordinator says, and confirm it."""
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self.owned = sorted(index for row in rows for index in row.partitions)
            request = message("ConsumerGroupHeartbeatRequest")
            owned = [request.TopicPartitions(topic_id=row.topic_id, partitions=list(row.partitions)) for row in rows]
            return self.take(self.call(topic_partitions=owned)) if owned else answer
        return answer


def has(member: Member, *partitions: int) -> bool:
    member.beat()
    return member.owned == list(partitions)


def test_a_repeated_heartbeat_learns_of_a_new_member(caller: Socket) -> None:
    """A member would keep its partitions for ever, and the new one get none."""
    first = Member(caller, "learns", "first")
    wait_for(lambda: has(first, 0, 1), "the first member to get everything")
    for _ in range(3):
        assert first.beat().assignment is None
    second = Member(caller, "learns", "second")
    wait_for(lambda: len(first.owned) == 1 or has(first), "the first member to give one up")
    wait_for(lambda: has(second, *{0, 1} - set(first.owned)), "the second member to get the other")
    assert first.beat().member_epoch == second.beat().member_epoch


def test_repeated_heartbeats_keep_a_member_until_they_end(caller: Socket) -> None:
    """Members that are alive would be removed, or dead ones never, when their heartbeats are answered from memory."""
    member = Member(caller, "kept", "member")
    wait_for(lambda: has(member, 0, 1), "the member to get everything")
    begin = silent_since = time.monotonic()
    while silent_since < begin + 1.5 * SESSION_SECONDS:
        silent_since = time.monotonic()
        assert member.beat().member_epoch == member.epoch
        time.sleep(0.1)

    def state() -> str:
        return str(caller.call("ConsumerGroupDescribe", 1, group_ids=["kept"]).groups[0].group_state)

    assert state() == "Stable"
    wait_for(lambda: state() == "Empty", "the silent member to be removed")
    assert time.monotonic() - silent_since > 0.9 * SESSION_SECONDS
    assert member.call().error_code == 25


def test_a_repeated_heartbeat_has_the_settings_of_now(caller: Socket) -> None:
    """Members would beat as often as before when a group's or the broker's interval changes."""
    member = Member(caller, "settings", "member")
    wait_for(lambda: has(member, 0, 1), "the member to get everything")
    assert {member.beat().heartbeat_interval_ms for _ in range(3)} == {100}
    _set(caller, 32, "settings", "consumer.heartbeat.interval.ms", "400")
    assert member.beat().heartbeat_interval_ms == 400
    _set(caller, 32, "settings", "consumer.heartbeat.interval.ms", None)
    assert {member.beat().heartbeat_interval_ms for _ in range(3)} == {100}


def test_a_member_that_left_gets_no_answer_from_memory(caller: Socket) -> None:
    """A member that has left, or been removed by another's heartbeat, would be told that it is one."""
    member = Member(caller, "left", "member")
    wait_for(lambda: has(member, 0, 1), "the member to get everything")
    member.beat()
    leaves = caller.call("ConsumerGroupHeartbeat", 1, group_id="left", member_id="member", member_epoch=-1)
    assert leaves.error_code == 0
    assert member.call().error_code == 25


def _set(caller: Socket, kind: int, name: str, key: str, value: str | None) -> None:
    request = message("IncrementalAlterConfigsRequest")
    change = request.AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    (done,) = caller.call("IncrementalAlterConfigs", 1, resources=[resource]).responses
    assert done.error_code == 0, done.error_message
