"""The command line tools that come with Apache Kafka.  Each run is a JVM, so each test does a lot with few."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess
from tests.compat.java_tools import TOOLS, refused, tool
from tests.compat.records import CODECS, stored_codecs

TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


def rows(text: str, first: str) -> list[Sequence[str]]:
    """The columns of the lines that begin with a word."""
    return [line.split() for line in text.splitlines() if line.split()[:1] == [first]]


def test_topic_command(broker: BrokerProcess) -> None:
    """Operators could not create, look at, grow or delete topics with kafka-topics.sh."""
    name = unique("java-topic")
    create = ("--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=3600000")
    assert f"Created topic {name}." in tool(broker, TOPICS, *create)
    assert f"Topic '{name}' already exists." in refused(broker, TOPICS, *create)
    described = tool(broker, TOPICS, "--describe", "--topic", name)
    assert re.search(rf"Topic: {name}\tTopicId: \S{{22}}\tPartitionCount: 3\tReplicationFactor: 1\t", described)
    assert "retention.ms=3600000" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    tool(broker, TOPICS, "--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in tool(broker, TOPICS, "--describe", "--topic", name)
    tool(broker, TOPICS, "--delete", "--topic", name)
    assert name not in tool(broker, TOPICS, "--list").split()


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(codec: str, broker: BrokerProcess, admin: Admin) -> None:
    """Lines piped through the console tools would be lost, garbled, or stored without the codec asked for."""
    topic = admin.create_topic(f"java-console-{codec}", 2)
    lines = [f"h1:v{n},h2:w\tkey-{n}\tvalue of {n}, пример {'x' * n}" for n in range(60)]
    parse = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    text = "".join(f"{line}\n" for line in lines).encode()
    tool(broker, f"{TOOLS}.ConsoleProducer", "--topic", topic, "--compression-codec", codec, *parse, stdin=text)
    shown = [word for name in ("headers", "key") for word in ("--formatter-property", f"print.{name}=true")]
    consumer = f"{TOOLS}.consumer.ConsoleConsumer"
    found = tool(broker, consumer, "--topic", topic, "--from-beginning", "--max-messages", "60", *shown)
    assert sorted(found.splitlines()) == sorted(lines)
    assert stored_codecs(broker.data, topic) == {codec}


def test_performance_tools(broker: BrokerProcess, admin: Admin) -> None:
    """The load tools that everybody measures a broker with would fail or count wrong."""
    topic = admin.create_topic("java-performance", 3)
    produce = ("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    said = tool(broker, f"{TOOLS}.ProducerPerformance", *produce)
    assert said.splitlines()[-1].startswith("20000 records sent")
    assert sum(admin.end_offsets(topic, 3).values()) == 20000
    group = unique("java-performance")
    said = tool(broker, f"{TOOLS}.ConsumerPerformance", "--topic", topic, "--num-records", "20000", "--group", group)
    assert int(said.splitlines()[-1].split(",")[4]) == 20000
    latency = ("--topic", topic, "--num-records", "300", "--producer-acks", "all", "--record-size", "100")
    assert "Percentiles: 50th" in tool(broker, f"{TOOLS}.EndToEndLatency", *latency)


def test_group_command_and_offsets(broker: BrokerProcess, admin: Admin) -> None:
    """Operators could not see a group's lag, move it, or remove it with kafka-consumer-groups.sh."""
    topic = admin.create_topic("java-offsets", 2)
    group = unique("java-offsets")
    text = b"".join(b"%d\n" % number for number in range(40))
    tool(broker, f"{TOOLS}.ConsoleProducer", "--topic", topic, stdin=text)
    ends = admin.end_offsets(topic, 2)
    shown = tool(broker, f"{TOOLS}.GetOffsetShell", "--topic", topic)
    assert sorted(shown.split()) == [f"{topic}:{partition}:{end}" for partition, end in sorted(ends.items())]
    earliest = tool(broker, f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", "earliest")
    assert sorted(earliest.split()) == [f"{topic}:0:0", f"{topic}:1:0"]
    consume = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "40")
    tool(broker, f"{TOOLS}.consumer.ConsoleConsumer", *consume)
    described = rows(tool(broker, GROUPS, "--describe", "--group", group), group)
    assert {int(row[2]): (int(row[3]), int(row[4]), int(row[5])) for row in described} == {
        partition: (end, end, 0) for partition, end in ends.items()
    }
    tool(broker, GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-3", "--execute")
    assert admin.committed(group, topic, 2) == {partition: max(0, end - 3) for partition, end in ends.items()}
    state = tool(broker, GROUPS, "--describe", "--group", group, "--state")
    assert "Empty" in rows(state, group)[0]
    assert group in tool(broker, GROUPS, "--list").split()
    deleted = tool(broker, GROUPS, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in deleted
    assert f"Group {group} not found." in tool(broker, GROUPS, "--describe", "--group", group, "--state")


def test_config_command_on_brokers(broker: BrokerProcess) -> None:
    """Operators could not change a running broker with kafka-configs.sh, or would be told of the wrong source."""
    configs = "kafka.admin.ConfigCommand"
    everyone, one = ("--entity-type", "brokers", "--entity-default"), ("--entity-type", "brokers", "--entity-name", "1")
    added = "log.cleaner.threads=2,log.retention.ms=7200000"
    assert "Completed updating default config for brokers" in tool(
        broker, configs, "--alter", *everyone, "--add-config", added
    )
    tool(broker, configs, "--alter", *one, "--add-config", "log.cleaner.backoff.ms=5000,max.connections=9000")
    default = "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2}"
    assert default in tool(broker, configs, "--describe", *everyone).splitlines()
    every = tool(broker, configs, "--describe", *one, "--all")
    both = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1"
    assert f"  log.cleaner.threads=2 sensitive=false synonyms={{{both}}}" in every
    own = "DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=5000, DEFAULT_CONFIG:log.cleaner.backoff.ms=15000"
    assert f"  log.cleaner.backoff.ms=5000 sensitive=false synonyms={{{own}}}" in every
    said = refused(broker, configs, "--alter", *one, "--add-config", "log.cleaner.threads=9")
    assert "Log cleaner threads cannot be increased to more than double the current value 2" in said
    said = refused(broker, configs, "--alter", *one, "--add-config", "log.retention.check.interval.ms=5")
    assert "Cannot update these configs dynamically: [log.retention.check.interval.ms]" in said
    tool(broker, configs, "--alter", *one, "--delete-config", "log.cleaner.backoff.ms,max.connections")
    tool(broker, configs, "--alter", *everyone, "--delete-config", "log.cleaner.threads,log.retention.ms")
    assert "DYNAMIC" not in tool(broker, configs, "--describe", *one)


def test_config_command_on_client_quotas(broker: BrokerProcess) -> None:
    """Operators could not set or see quotas with kafka-configs.sh."""
    configs = "kafka.admin.ConfigCommand"
    name = unique("java-quota")
    user, client = ("--entity-type", "users", "--entity-name", name), ("--entity-type", "clients", "--entity-default")
    tool(broker, configs, "--alter", *user, *client, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    tool(broker, configs, "--alter", *user, "--add-config", "consumer_byte_rate=2048")
    said = tool(broker, configs, "--describe", *user, *client)
    assert f"Quota configs for user-principal '{name}', the default client-id are" in said
    assert "producer_byte_rate=1024.0" in said and "request_percentage=12.5" in said
    said = refused(broker, configs, "--alter", *user, "--add-config", "producer_byte_rate=0")
    assert "Quota producer_byte_rate must be greater than 0" in said
    tool(broker, configs, "--alter", *user, *client, "--delete-config", "producer_byte_rate,request_percentage")
    assert "consumer_byte_rate=2048.0" in tool(broker, configs, "--describe", *user)
    address = ("--entity-type", "ips", "--entity-name", "192.0.2.1")
    tool(broker, configs, "--alter", *address, "--add-config", "connection_creation_rate=20")
    assert "connection_creation_rate=20" in tool(broker, configs, "--describe", *address)
