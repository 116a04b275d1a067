"""Kafka's own tools for share groups: kafka-share-groups, the console share consumer, DumpLogSegments."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kbroker.client.connection import Connection
from tests.broker_process import BrokerProcess
from tests.compat.tooling import run_java
from tests.share.script import Script

GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
DUMP = "org.apache.kafka.tools.DumpLogSegments"

pytestmark = pytest.mark.slow


def tool(java_class: str, *arguments: str) -> str:
    done = run_java(java_class, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(output: str, group: str) -> list[list[str]]:
    return [line.split()[1:] for line in output.splitlines() if line.startswith(group + " ")]


def test_an_administrator_follows_a_group_from_its_first_record_to_its_end(broker: BrokerProcess) -> None:
    """Kafka's tools would show another group than there is, or fail."""
    host, _, port = broker.bootstrap.partition(":")
    script = Script(lambda: Connection(host, int(port)), "-tools")
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce("t-tools", value=str(number))
    assert producer.flush(30) == 0
    script.close()
    group, topic, at = "g-tools", "t-tools", ("--bootstrap-server", broker.bootstrap)
    read = tool(CONSUMER, *at, "--topic", topic, "--group", group, "--max-messages", "12")
    assert len(read.split("\n")) >= 12
    assert group in tool(GROUPS, *at, "--list")
    assert rows(tool(GROUPS, *at, "--describe", "--group", group), group) == [[topic, "0", "12", "8"]]
    state = tool(GROUPS, *at, "--describe", "--group", group, "--state")
    assert "Empty" in state
    reset = tool(GROUPS, *at, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert rows(reset, group) == [[topic, "0", "0"]]
    assert rows(tool(GROUPS, *at, "--describe", "--group", group), group)[0][:3] == [topic, "0", "0"]
    (segment,) = (broker.data_dir / "__share_group_state-0").glob("*.log")
    dumped = tool(DUMP, "--files", str(segment), "--share-group-state-decoder")
    assert f'"groupId":"{group}"' in dumped and '"startOffset":0' in dumped
    assert "Successful" in tool(GROUPS, *at, "--delete-offsets", "--group", group, "--topic", topic)
    assert "successful" in tool(GROUPS, *at, "--delete", "--group", group)
    assert group not in tool(GROUPS, *at, "--list")
