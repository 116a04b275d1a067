"""Kafka's own tools, and the clients in Go, at each kind of broker of a mixed cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.java_tools import TOOLS, tool
from tests.compat.tooling import go_clients

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

TOPICS, CONFIGS = f"{TOOLS}.TopicCommand", "kafka.admin.ConfigCommand"
GROUPS, FEATURES = f"{TOOLS}.consumer.group.ConsumerGroupCommand", f"{TOOLS}.FeatureCommand"
BROKERS = (1, 2)
COUNT = 100
GROWS = ("HighWatermark:", "MaxFollowerLag")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), (Kbroker, Kafka)) as made:
        yield made


def at(cluster: Cluster, number: int) -> SimpleNamespace:
    """One broker alone as the bootstrap server."""
    return SimpleNamespace(bootstrap=f"127.0.0.1:{cluster.nodes[number].port}")


def said_by_both(cluster: Cluster, java_class: str, *words: str) -> str:
    """What a tool prints, which does not depend on the broker that it asks first; but for what grows with time."""
    first, second = (
        sorted(
            line for line in tool(at(cluster, number), java_class, *words).splitlines() if not line.startswith(GROWS)
        )
        for number in BROKERS
    )
    assert first == second
    return "\n".join(first)


def test_kafkas_tools_say_the_same_at_each_broker(cluster: Cluster, tmp_path: Path) -> None:
    """Operators would see another cluster, or change another one, through a kbroker than through Kafka's broker."""
    for number in BROKERS:
        there, name = at(cluster, number), f"made-at-{number}"
        create = ("--create", "--topic", name, "--partitions", "3", "--replication-factor", "2")
        assert f"Created topic {name}." in tool(there, TOPICS, *create, "--config", "retention.ms=3600000")
        cluster.wait_isr(name, {1, 2})
        tool(there, TOPICS, "--alter", "--topic", name, "--partitions", "4")
        alter = ("--alter", "--entity-type", "topics", "--entity-name", name, "--add-config", "max.message.bytes=2000")
        tool(there, CONFIGS, *alter)
        lines = "".join(f"value {each}\n" for each in range(COUNT)).encode()
        tool(there, f"{TOOLS}.ConsoleProducer", "--topic", name, stdin=lines)
    for number in BROKERS:
        name, group = f"made-at-{number}", f"read-at-{number}"
        read = ("--topic", name, "--group", group, "--from-beginning", "--max-messages", str(COUNT))
        # Through the other one.
        found = tool(at(cluster, 3 - number), f"{TOOLS}.consumer.ConsoleConsumer", *read)
        assert sorted(found.split("\n")) == sorted(["", *(f"value {each}" for each in range(COUNT))])
    described = said_by_both(cluster, TOPICS, "--describe")
    assert described.count("retention.ms=3600000") == 2
    assert described.count("Replicas: ") == 2 * 4 + 2
    assert "max.message.bytes=2000" in said_by_both(
        cluster, CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "made-at-1"
    )
    groups = said_by_both(cluster, GROUPS, "--describe", "--group", "read-at-1", "--offsets")
    assert groups.count("made-at-1") == 4
    assert "metadata.version" in said_by_both(cluster, FEATURES, "describe")
    assert "LeaderId:" in said_by_both(cluster, f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    for number in BROKERS:
        tool(at(cluster, number), TOPICS, "--delete", "--topic", f"made-at-{3 - number}")
    assert "made-at" not in said_by_both(cluster, TOPICS, "--list")


@pytest.mark.parametrize("library", ["franz-go", "sarama"])
@pytest.mark.parametrize("number", BROKERS)
def test_records_of_clients_in_go_go_there_and_back(cluster: Cluster, library: str, number: int) -> None:
    """Their users could not put a kbroker beside Kafka's brokers."""
    topic = f"{library}-{number}"
    cluster.create(topic, [[1, 2], [2, 1]])
    cluster.wait_isr(topic, {1, 2})
    bootstrap = at(cluster, number).bootstrap
    words = [str(go_clients()), library, "NONE", bootstrap, "", "", "", topic, str(COUNT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.endswith("ok\n"), done.stdout + done.stderr
