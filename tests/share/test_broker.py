"""Share groups on a whole broker: transactions, lost connections, restarts, deletion, and how much state is kept.

Also of `kbroker.assembly.share_parts`, `kbroker.handlers.share.share_fetch`,
`kbroker.handlers.share.share_acknowledge`, `kbroker.handlers.share.share_offsets`,
`kbroker.replication.share.share_partitions`, `kbroker.replication.share.share_session`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kbroker.cli.main import run
from kbroker.client.connection import Connection
from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.share.script import ALICE, BOB, Script

SECONDS = 60


@pytest.fixture
def script(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Script]:
    """Two connections, with topics and groups of the test's own."""
    made = Script(lambda: connect(broker), "-" + request.node.name)
    yield made
    made.close()


def connect(broker: BrokerProcess) -> Connection:
    host, _, port = broker.bootstrap.partition(":")
    return Connection(host, int(port))


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer
    partitions = [partition for topic in answer.responses for partition in topic.partitions]
    assert not any(partition.error_code or partition.acknowledge_error_code for partition in partitions), answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for partition in partitions
        for each in partition.acquired_records
    ]


def test_read_committed_groups_get_no_aborted_records(broker: BrokerProcess, script: Script) -> None:
    """A member would process what a transaction has taken back."""
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest", share_isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "share", "linger.ms": 0})
    producer.init_transactions(SECONDS)
    for commits in (True, False, True):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce("t" + script.suffix, value=b"x")
        producer.flush(SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
    script.join("g", ALICE, ["t"])
    epoch, offsets = 0, set[int]()
    while len(offsets & {0, 1, 2, 8, 9, 10}) < 6:
        for first, last, _ in acquired(script.fetch(script.one, "g", ALICE, epoch, ["t"])):
            offsets |= set(range(first, last + 1))
        epoch += 1
        assert epoch < 50
    assert not offsets & {4, 5, 6}, "records of the aborted transaction were acquired"


def test_records_of_a_lost_connection_come_again(broker: BrokerProcess, script: Script) -> None:
    """Records of a member that died would wait for its locks, however long these are."""
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest")
    script.produce("t", 5)
    script.join("g", ALICE, ["t"])
    with connect(broker) as lost:
        assert acquired(script.fetch(lost, "g", ALICE, 0, ["t"])) == [(0, 4, 1)]
    epochs = iter(range(1000))
    again = wait_for(
        lambda: acquired(script.fetch(script.two, "g", BOB, next(epochs), ["t"])), "the records of a lost connection"
    )
    assert again == [(0, 4, 2)]


def test_locks_time_out(script: Script) -> None:
    """Records of a member that hangs would come to no other."""
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest", share_record_lock_duration_ms="1000")
    script.produce("t", 5)
    script.join("g", ALICE, ["t"])
    began = time.monotonic()
    assert acquired(script.fetch(script.one, "g", ALICE, 0, ["t"])) == [(0, 4, 1)]
    # The fetch waits, and is woken by the time-out: its own wait would be longer than the connection's patience.
    assert acquired(script.fetch(script.two, "g", BOB, 0, ["t"], max_wait_ms=600_000)) == [(0, 4, 2)]
    assert time.monotonic() - began > 0.9
    late = script.acknowledge(script.one, "g", ALICE, 1, "t", [(0, 4, [1])])
    assert late.responses[0].partitions[0].error_code == 121


def test_a_killed_broker_knows_what_was_acknowledged(broker: BrokerProcess, script: Script) -> None:
    """Acknowledged records would come again, or others never."""
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest")
    script.produce("t", 10, 10)
    script.join("g", ALICE, ["t"])
    assert acquired(script.fetch(script.one, "g", ALICE, 0, ["t"])) == [(0, 19, 1)]
    said = [(0, 3, [1]), (6, 7, [3]), (12, 12, [2]), (15, 19, [1])]
    answer = script.acknowledge(script.one, "g", ALICE, 1, "t", said)
    assert answer.responses[0].partitions[0].error_code == 0
    broker.kill()
    broker.start()
    with connect(broker) as connection:
        epochs = iter(range(1000))
        left = wait_for(
            lambda: acquired(script.fetch(connection, "g", ALICE, next(epochs), ["t"])), "what was not acknowledged"
        )
    assert left == [(4, 5, 1), (8, 11, 1), (12, 12, 2), (13, 14, 1)]


def test_the_state_topic_keeps_only_what_is_needed(script: Script) -> None:
    """`__share_group_state` would grow for ever."""
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest")
    script.join("g", ALICE, ["t"])
    offsets = request_message(ApiKey.LIST_OFFSETS)
    topic = offsets.ListOffsetsTopic(
        name="__share_group_state",
        partitions=[offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)],
    )

    def start() -> int:
        answer = script.two.send(offsets(replica_id=-1, topics=[topic]))
        return int(answer.topics[0].partitions[0].offset)

    before = start()
    script.produce("t", *[1] * 12)
    script.fetch(script.one, "g", ALICE, 0, ["t"])
    for offset in range(12):
        script.acknowledge(script.one, "g", ALICE, offset + 1, "t", [(offset, offset, [1])])
    wait_for(lambda: start() > before, "the state topic to be cut")
    described = describe(script)
    assert (described.start_offset, described.lag) == (12, 0)


def describe(script: Script, group: str = "g") -> Any:
    message = request_message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    asked = message.DescribeShareGroupOffsetsRequestGroup(group_id=group + script.suffix, topics=None)
    answer = script.two.send(message(groups=[asked])).groups[0]
    assert answer.error_code == 0, answer
    return answer.topics[0].partitions[0]


def test_the_command_shows_groups(broker: BrokerProcess, script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    """An administrator could not see which members read what, and how far behind a group is."""
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest")
    script.produce("t", 10)
    script.join("g", ALICE, ["t"])
    acquired(script.fetch(script.one, "g", ALICE, 0, ["t"]))
    script.acknowledge(script.one, "g", ALICE, 1, "t", [(0, 5, [1])])
    name, topic = "g" + script.suffix, "t" + script.suffix
    assert run(["share", "list", "-b", broker.bootstrap, "--json"]) == 0
    assert {"group": name, "state": "Stable"} in json.loads(capsys.readouterr().out)
    assert run(["share", "describe", name, "-b", broker.bootstrap, "--json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert described["members"][0]["member"] == ALICE
    assert described["members"][0]["reads"] == [f"{topic}-0"]
    assert described["partitions"] == [{"partition": f"{topic}-0", "start_offset": 6, "lag": 4}]
    assert run(["share", "describe", name, "-b", broker.bootstrap]) == 0
    assert f"{topic}-0" in capsys.readouterr().out
    assert run(["share", "describe", "nobody", "-b", broker.bootstrap]) == 1


def test_groups_are_reset_and_deleted(script: Script) -> None:
    """An administrator could not have a group read again, or be rid of it."""
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest")
    script.produce("t", 10)
    script.join("g", ALICE, ["t"])
    name = "g" + script.suffix
    acquired(script.fetch(script.one, "g", ALICE, 0, ["t"]))
    script.acknowledge(script.one, "g", ALICE, 1, "t", [(0, 9, [1])])
    alter = request_message(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)
    topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t" + script.suffix, partitions=[partition])
    delete = request_message(ApiKey.DELETE_GROUPS)
    assert script.two.send(alter(group_id=name, topics=[topic])).error_code == 68
    assert script.two.send(delete(groups_names=[name])).results[0].error_code == 68
    script.heartbeat("g", ALICE, -1)
    assert script.two.send(alter(group_id=name, topics=[topic])).responses[0].partitions[0].error_code == 0
    assert describe(script).start_offset == 4
    script.join("g", BOB, ["t"])
    assert acquired(script.fetch(script.two, "g", BOB, 0, ["t"])) == [(4, 9, 1)]
    script.heartbeat("g", BOB, -1)
    listed = request_message(ApiKey.LIST_GROUPS)(types_filter=["share"])
    assert name in {(each.group_id) for each in script.two.send(listed).groups}
    assert script.two.send(delete(groups_names=[name])).results[0].error_code == 0
    assert name not in {each.group_id for each in script.two.send(listed).groups}


def test_share_groups_can_be_turned_off(script: Script) -> None:
    """`share.version` 0 would be shown, and share groups served all the same."""
    script.create_topic("t")
    update = request_message(ApiKey.UPDATE_FEATURES)

    def set_level(level: int, upgrade_type: int) -> None:
        key = update.FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=upgrade_type)
        answer = script.two.send(update(timeout_ms=10_000, feature_updates=[key]))
        assert answer.error_code == 0, answer

    set_level(0, 2)
    try:
        assert script.heartbeat("g", ALICE, 0, ["t"]).error_code == 35
        assert script.fetch(script.one, "g", ALICE, 0, ["t"]).error_code == 35
        assert script.acknowledge(script.one, "g", ALICE, 1, "t", [(0, 0, [1])]).error_code == 35
    finally:
        set_level(1, 1)
    assert script.heartbeat("g", ALICE, 0, ["t"]).error_code == 0


def test_an_enormous_subscription_is_refused(script: Script) -> None:
    """A single member would hold up every client of the broker for seconds, as often as it likes."""
    answer = script.heartbeat("g", ALICE, 0, [f"t{number}" for number in range(10_001)])
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "A heartbeat may name at most 10000 topics in all."
