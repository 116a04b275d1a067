"""Java's KafkaShareConsumer 4.3.1 against the broker: members that share a topic, die, refuse, and see it restart."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import pytest
from confluent_kafka import Producer

from kbroker.client.connection import Connection
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message
from tests.broker_process import BrokerProcess
from tests.share.java_member import JavaMember
from tests.share.java_members import poll_until, prepare

pytestmark = pytest.mark.slow


def produce(broker: BrokerProcess, topic: str, values: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value=str(value), partition=None if value < 0 else -1)
    assert producer.flush(30) == 0


def settle(broker: BrokerProcess, group: str, members: list[JavaMember]) -> None:
    """Wait until every member has taken its part: what a member holds of a partition that it loses, it cannot
    acknowledge any more, with any broker."""
    host, _, port = broker.bootstrap.partition(":")
    with Connection(host, int(port)) as connection:
        while True:
            for member in members:
                assert member.poll(100) == []
            described = connection.send(request_message(ApiKey.SHARE_GROUP_DESCRIBE)(group_ids=[group])).groups[0]
            epochs = {each.member_epoch for each in described.members}
            if len(described.members) == len(members) and epochs == {described.group_epoch}:
                break
    for member in members:
        member.poll(600)


def test_members_share_a_topic_and_a_dead_ones_records_come_again(broker: BrokerProcess) -> None:
    """Records would be lost with their member, or come to two members at once."""
    prepare(broker, "shared", 4)
    members = [JavaMember(broker.bootstrap, "shared", "shared").started() for _ in range(3)]
    settle(broker, "shared", members)
    produce(broker, "shared", range(600))
    seen = poll_until(members, lambda seen: len(seen) >= 600)
    assert sorted(int(each.value) for each in seen) == list(range(600))
    assert all(each.delivery_count == 1 for each in seen)
    for member in members:
        member.tell("commit")
    doomed, *rest = members
    produce(broker, "shared", range(600, 900))
    taken = poll_until([doomed], lambda seen: len(seen) > 0)
    doomed.kill()
    left = poll_until(rest, lambda seen: len({each.value for each in seen}) >= 300)
    again = {each.value for each in taken}
    assert {int(each.value) for each in left} == set(range(600, 900))
    assert all((each.delivery_count > 1) == (each.value in again) for each in left)
    for member in rest:
        member.close()


def test_poison_records_stop_at_the_delivery_limit(broker: BrokerProcess) -> None:
    """A record that no member can process would come for ever, and hold up all behind it."""
    prepare(broker, "poison", share_delivery_count_limit="3")
    produce(broker, "poison", range(10))
    member = JavaMember(broker.bootstrap, "poison", "poison", explicit=True).started()
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + 40
    while (counts["4"] < 3 or len(counts) < 10) and time.monotonic() < deadline:
        for value, _ in member.poll(300):
            counts[value] += 1
            member.tell(f"release {value}" if value == "4" else f"accept {value}")
        member.tell("commit")
    produce(broker, "poison", [99])
    last = poll_until([member], bool)
    assert [each.value for each in last] == ["99"]
    assert counts == {**{str(value): 1 for value in range(10)}, "4": 3}
    member.tell("accept 99")
    member.close()


def test_a_restart_keeps_what_was_acknowledged(broker: BrokerProcess) -> None:
    """Acknowledged records would come again, or others never, after the broker was killed."""
    prepare(broker, "restarted")
    produce(broker, "restarted", range(30))
    member = JavaMember(broker.bootstrap, "restarted", "restarted", explicit=True).started()
    seen = poll_until([member], lambda seen: len(seen) >= 30)
    assert all(each.delivery_count == 1 for each in seen)
    accepted = [value for value in range(30) if value % 3 == 0]
    for value in accepted:
        member.tell(f"accept {value}")
    assert member.tell("commit") == ""
    broker.kill()
    member.kill()
    broker.start()
    other = JavaMember(broker.bootstrap, "restarted", "restarted").started()
    left = poll_until([other], lambda seen: len(seen) >= 30 - len(accepted))
    assert sorted(int(each.value) for each in left) == [value for value in range(30) if value % 3]
    other.tell("commit")
    other.close()
