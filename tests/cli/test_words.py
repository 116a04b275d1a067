"""What commands say to a user whose next step it should be: groups in use, groups of other kinds, records that are too
large, topics that came to be by a slip.  Also of `kbroker.cli.groups.group_kinds`, `kbroker.cli.records.too_large`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer

from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message, wire
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def broker(module_broker: BrokerProcess) -> BrokerProcess:
    kbroker(module_broker, "topics", "create", "orders", "small", "-c", "max.message.bytes=1000")
    return module_broker


def kbroker(
    broker: BrokerProcess, *arguments: str, stdin: str = "", status: int = 0
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbroker.cli", *arguments, "-b", broker.bootstrap]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


@contextmanager
def consuming(broker: BrokerProcess, group: str) -> Iterator[None]:
    """A member of a group, with an offset committed."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"x")
    assert producer.flush(60) == 0
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "reader"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])

    def has_record() -> bool:
        message = consumer.poll(0.1)
        return message is not None and message.error() is None

    wait_for(has_record, "a record")
    consumer.commit(asynchronous=False)
    yield
    consumer.close()


@pytest.mark.parametrize("where", [("--all-topics",), ("--topic", "orders")])
def test_offsets_of_a_group_in_use_are_not_moved_and_its_clients_are_named(
    broker: BrokerProcess, where: tuple[str, ...]
) -> None:
    """`Unknown member` is what the broker says, and nobody would know whom to stop."""
    with consuming(broker, "busy"):
        command = ("groups", "reset-offsets", "busy", *where, "--to-earliest")
        said = kbroker(broker, *command).stdout
        assert "nothing changed: group busy is active (stable, members: 1)" in said
        assert "stop reader at 127.0.0.1 first" in said
        assert "stop reader at 127.0.0.1 first" in kbroker(broker, *command, "--execute", status=1).stderr
    assert "add --execute" in kbroker(broker, *command).stdout
    assert kbroker(broker, *command, "--execute").stderr == ""


@pytest.mark.parametrize("kind", ["streams", "share"])
def test_a_group_of_another_kind_is_shown_by_the_command_that_is_named(broker: BrokerProcess, kind: str) -> None:
    """It would be said that there is no such group, though Kafka Streams has just joined it."""
    if kind == "streams":
        names = wire.StreamsGroupHeartbeatRequest
        subtopology = names.Subtopology(subtopology_id="0", source_topics=["orders"])
        request = request_message(ApiKey.STREAMS_GROUP_HEARTBEAT)(
            group_id=kind, member_id=MEMBER, member_epoch=0, rebalance_timeout_ms=60_000, process_id="p",
            topology=names.Topology(epoch=0, subtopologies=[subtopology]),
            active_tasks=[], standby_tasks=[], warmup_tasks=[], client_tags=[],
        )  # fmt: skip
    else:
        request = request_message(ApiKey.SHARE_GROUP_HEARTBEAT)(
            group_id=kind, member_id=MEMBER, member_epoch=0, subscribed_topic_names=["orders"]
        )
    settings = ClientSettings(client_id="t", connect_timeout_s=100, request_timeout_s=100, patience_s=100)
    with Cluster(broker.bootstrap, settings) as cluster:
        wait_for(lambda: cluster.any().send(request).error_code == 0, "a member")
    said = kbroker(broker, "groups", "describe", kind, status=1).stderr
    assert said == f"kbroker: {kind}: it is a {kind} group; `kbroker {kind} describe {kind}` shows it\n"
    assert kind in kbroker(broker, kind, "describe", kind).stdout


def test_a_record_that_is_too_large_is_told_whose_limit_it_is(broker: BrokerProcess) -> None:
    """Client, topic and broker have one each, and only one of them helps."""
    said = kbroker(broker, "produce", "orders", stdin="x" * 2_000_000, status=1).stderr
    assert "2,000,000 bytes, and the client's limit is 1,000,000: -X message.max.bytes=" in said
    said = kbroker(broker, "produce", "small", stdin="x" * 3000, status=1).stderr
    assert "the topic's limit is max.message.bytes=1000" in said
    kbroker(broker, "topics", "alter", "small", "-c", "max.message.bytes=5000")
    kbroker(broker, "produce", "small", stdin="x" * 3000)


def test_a_topic_that_was_made_by_a_record_is_told_with_the_name_that_may_have_been_meant(
    broker: BrokerProcess,
) -> None:
    """A slip would make a topic, and its records be missed in another."""
    said = kbroker(broker, "produce", "ordres", stdin="x\n").stderr
    assert said == "kbroker: topic ordres is new, made by the first record; did you mean orders?\n"
    assert kbroker(broker, "produce", "ordres", stdin="x\n").stderr == ""


def test_lines_of_windows_are_lines(broker: BrokerProcess) -> None:
    """Each value would end with a character that nobody sees."""
    kbroker(broker, "produce", "windows", stdin="a\r\nb\r\n")
    assert kbroker(broker, "consume", "windows", "--from-beginning", "--exit-at-end").stdout == "a\nb\n"
