"""Groups of the consumer protocol (KIP-848), as clients with `group.protocol=consumer` use it.

Also of `kbroker.coordinator.classic.consumer_protocol`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from kbroker.schemas import message
from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess, broker_kind
from tests.compat.client import ClientKind, Driver, gather
from tests.compat.kinds import CONFLUENT, JAVA
from tests.compat.matrix import PARTITIONS, StartDriver, check_group, shared
from tests.compat.records import by_place, ends, plain_records
from tests.compat.tooling import run_java
from tests.coordinator.consumer.record_answers import Socket

# The broker says how often members beat, and how long they may be silent: a busy machine keeps one waiting for seconds.
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "12000",
    "group.consumer.session.timeout.ms": "12000",
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


@pytest.mark.parametrize(
    "kind",
    [pytest.param(CONFLUENT, id="confluent"), pytest.param(JAVA, id="java", marks=pytest.mark.slow)],
)
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


def test_kafkas_tools_read_the_records(broker: BrokerProcess, admin: Admin, drivers: StartDriver) -> None:
    """A directory could not go back to Kafka with its groups."""
    topic = admin.create_topic("dumped", PARTITIONS)
    group = unique("dumped")
    member = drivers(CONFLUENT)
    member.join(topic, group, protocol="consumer")
    gather([member], lambda: member.assigned == list(range(PARTITIONS)), "the member to get everything")
    segments = sorted(broker.data.glob("__consumer_offsets-*/*.log"))
    files = ",".join(str(path) for path in segments if group.encode() in path.read_bytes())
    done = run_java("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", files)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if group in line]
    for record_type in ("3", "5", "6", "7", "8"):
        found = [line for line in lines if f'"type":"{record_type}"' in line]
        assert found, f"no record of type {record_type} in {done.stdout[-2000:]}"
        assert all('"data":null' not in line.partition("payload:")[2] for line in found)


def test_a_subscription_by_regular_expression_follows_new_topics(admin: Admin, drivers: StartDriver) -> None:
    """A consumer of all topics of a kind would never read one that is made later."""
    prefix = unique("pattern")
    admin.create_topic(f"{prefix}-a", 2)
    member = drivers(CONFLUENT)
    member.join(f"^{prefix}-.*", unique("pattern-group"), protocol="consumer")
    gather([member], lambda: member.assigned == [0, 1], "the topic that is there")


def test_a_group_has_settings_of_its_own(broker: BrokerProcess) -> None:
    """Sessions and heartbeats of one group could not be set apart from all others."""
    group = unique("own")
    with closing(Socket("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))) as caller:
        check_own_settings(group, caller)


def check_own_settings(group: str, caller: Socket) -> None:
    # The first of all makes the topic of the groups' state.
    caller.call("FindCoordinator", 4, key_type=0, coordinator_keys=[group])
    request = message("IncrementalAlterConfigsRequest")
    change = request.AlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=0, value="400")
    resource = request.AlterConfigsResource(resource_type=32, resource_name=group, configs=[change])
    changed = caller.call("IncrementalAlterConfigs", 1, resources=[resource])
    assert changed.responses[0].error_code == 0, changed.responses[0].error_message
    joins = {"member_epoch": 0, "rebalance_timeout_ms": 1_000, "subscribed_topic_names": [], "topic_partitions": []}
    told = caller.call("ConsumerGroupHeartbeat", 1, group_id=group, member_id="m", **joins)
    assert (told.error_code, told.heartbeat_interval_ms) == (0, 400)
    other = caller.call("ConsumerGroupHeartbeat", 1, group_id=f"{group}-2", member_id="m", **joins)
    assert other.heartbeat_interval_ms == 150
