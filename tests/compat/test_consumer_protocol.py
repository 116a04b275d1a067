"""Groups of the consumer protocol (KIP-848), as clients with `group.protocol=consumer` use it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess, broker_kind
from tests.compat.client import ClientKind, Driver, gather
from tests.compat.kinds import CONFLUENT, JAVA
from tests.compat.matrix import PARTITIONS, StartDriver, check_group, shared
from tests.compat.records import by_place, ends, plain_records

# The broker says how often members beat, and how long they may be silent.
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "150",
    "group.consumer.heartbeat.interval.ms": "150",
    "group.consumer.assignment.interval.ms": "200",
}


@pytest.fixture(scope="module")
def shared_broker(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of this module's own."""
    broker = broker_kind(target)(tmp_path_factory.mktemp("broker"), SETTINGS)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.mark.parametrize("kind", [CONFLUENT, JAVA], ids=lambda kind: kind.name)
def test_group_survives_members_and_restart(
    kind: ClientKind, broker: BrokerProcess, admin: Admin, drivers: StartDriver
) -> None:
    """Consumers of the new protocol would miss or repeat records as members or the broker come and go."""
    check_group(kind, broker, admin, drivers, protocol="consumer")


def test_a_group_migrates_to_the_new_protocol_and_back(admin: Admin, drivers: StartDriver) -> None:
    """A service that changes `group.protocol` one instance after the other would stop reading, or read twice."""
    topic = admin.create_topic("migration", PARTITIONS)
    group = unique("migration")
    members: list[Driver] = []

    def commit() -> None:
        # What moves on is read from where its last owner has committed.
        for member in members:
            member.commit()

    def joins(kind: ClientKind, **options: str) -> Driver:
        commit()
        member = drivers(kind)
        members.append(member)
        member.join(topic, group, **options)
        gather(members, partial(shared, members), f"{len(members)} members to share")
        return member

    def leaves(member: Driver) -> None:
        commit()
        members.remove(member)
        member.leave()
        gather(members, partial(shared, members), f"{len(members)} members to take over")

    old = [joins(CONFLUENT), joins(JAVA)]
    new = [joins(CONFLUENT, protocol="consumer"), joins(JAVA, protocol="consumer")]
    sent = drivers(CONFLUENT).produce(topic, plain_records("r", 120, PARTITIONS))
    gather(members, lambda: sum(len(member.received) for member in members) >= len(sent), "all records")
    everybody = list(members)
    for member in old:
        leaves(member)
    back = joins(CONFLUENT)
    for member in new:
        leaves(member)
    assert back.assigned == list(range(PARTITIONS))
    assert by_place([record for member in everybody for record in member.received]) == by_place(sent)
    assert admin.committed(group, topic, PARTITIONS) == ends(sent)
