"""Changing settings, deleting records and describing directories through the clients that people use for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.conftest import StartBroker, require_module
from tests.handlers.changes import APPEND, BROKER, BROKER_LOGGER, SET, op, resource
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session

TIMEOUT = 60.0
TOPIC_SOURCE, BROKER_SOURCE, ALL_BROKERS_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 1, 2, 3, 4, 5


@pytest.fixture
def api() -> Any:
    require_module("confluent_kafka")
    import confluent_kafka.admin

    return confluent_kafka.admin


def admin(api: Any, broker: BrokerProcess) -> Any:
    return api.AdminClient({"bootstrap.servers": broker.bootstrap})


def create(api: Any, client: Any, name: str, partitions: int = 1, **config: str) -> None:
    config = {key.replace("_", "."): value for key, value in config.items()}
    client.create_topics([api.NewTopic(name, partitions, 1, config=config)])[name].result(TIMEOUT)


def setting(api: Any, client: Any, kind: Any, name: str, key: str) -> tuple[str, int]:
    """A setting's value and source."""
    (future,) = client.describe_configs([api.ConfigResource(kind, name)]).values()
    entry = future.result(TIMEOUT)[key]
    return entry.value, entry.source


def alter(api: Any, client: Any, kind: Any, name: str, *edits: tuple[str, Any, str | None]) -> None:
    entries = [api.ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in edits]
    (future,) = client.incremental_alter_configs([api.ConfigResource(kind, name, incremental_configs=entries)]).values()
    future.result(TIMEOUT)


@pytest.fixture
def session(broker: BrokerProcess) -> Iterator[Session]:
    opened = Session(broker.port)
    yield opened
    opened.close()


def test_changed_topic_settings_survive_a_crash(api: Any, kbroker_process: StartBroker) -> None:
    """A setting that the broker said it had taken would be gone after the next crash."""
    broker = kbroker_process()
    client = admin(api, broker)
    create(api, client, "kept", retention_ms="5000")
    kind, operation = api.ResourceType.TOPIC, api.AlterConfigOpType
    alter(api, client, kind, "kept", ("cleanup.policy", operation.APPEND, "compact"))
    alter(api, client, kind, "kept", ("retention.ms", operation.DELETE, None), ("flush.ms", operation.SET, "77"))
    broker.restart(kill=True)
    client = admin(api, broker)
    assert setting(api, client, kind, "kept", "cleanup.policy") == ("delete,compact", TOPIC_SOURCE)
    assert setting(api, client, kind, "kept", "flush.ms") == ("77", TOPIC_SOURCE)
    assert setting(api, client, kind, "kept", "retention.ms") == ("604800000", DEFAULT_SOURCE)


def test_a_live_log_follows_its_settings(broker: BrokerProcess, session: Session) -> None:
    """Segments would keep the size that they had when the topic was made, until a restart."""
    session.create("rolls")
    batch = Batch([(b"k", b"x" * 700_000)])
    session.fill("rolls", batch, batch)
    directory = broker.data_dir / "rolls-0"
    assert len(list(directory.glob("*.log"))) == 1
    smaller = resource("rolls", op("segment.bytes", SET, "1048576"))
    assert session.quietly("IncrementalAlterConfigs", 1, resources=[smaller]).responses[0].error_code == 0
    session.fill("rolls", batch, batch)
    assert len(list(directory.glob("*.log"))) == 3


def test_settings_for_all_brokers_are_kept_and_topics_follow(api: Any, kbroker_process: StartBroker) -> None:
    """Defaults changed at run time would be lost by a restart, or not reach the topics."""
    broker = kbroker_process({"log.retention.ms": "1000000"})
    client = admin(api, broker)
    create(api, client, "follows")
    broker_kind, topic_kind, operation = api.ResourceType.BROKER, api.ResourceType.TOPIC, api.AlterConfigOpType
    assert setting(api, client, topic_kind, "follows", "retention.ms") == ("1000000", STATIC_SOURCE)
    with closing(Session(broker.port)) as s:
        for name, value in (("", "2000000"), ("1", "3000000")):
            row = resource(name, op("log.retention.ms", SET, value), kind=BROKER)
            assert s.quietly("IncrementalAlterConfigs", 1, resources=[row]).responses[0].error_code == 0
    assert setting(api, client, topic_kind, "follows", "retention.ms") == ("3000000", BROKER_SOURCE)
    broker.restart(kill=True)
    client = admin(api, broker)
    assert setting(api, client, topic_kind, "follows", "retention.ms") == ("3000000", BROKER_SOURCE)
    assert setting(api, client, broker_kind, "1", "log.retention.ms") == ("3000000", BROKER_SOURCE)
    alter(api, client, broker_kind, "1", ("log.retention.ms", operation.DELETE, None))
    assert setting(api, client, topic_kind, "follows", "retention.ms") == ("2000000", ALL_BROKERS_SOURCE)
    create(api, client, "new")
    assert setting(api, client, topic_kind, "new", "retention.ms") == ("2000000", ALL_BROKERS_SOURCE)


def test_a_setting_read_at_start_is_refused_with_what_to_do(api: Any, broker: BrokerProcess) -> None:
    """The user would think that a setting had been changed when it had not."""
    client = admin(api, broker)
    for key, value, reason in (
        ("listeners", "PLAINTEXT://:1", r"at start only.* \[listeners\]"),
        (
            "metric.reporters",
            "9",
            r"metric\.reporters asks for what kbroker cannot do: it names a Java class that is none of Kafka",
        ),
        ("ssl.keystore.location", "/tmp/x", r"only per-listener.* \[ssl\.keystore\.location\]"),
    ):
        with pytest.raises(Exception, match=reason):
            alter(api, client, api.ResourceType.BROKER, "1", (key, api.AlterConfigOpType.SET, value))


def test_a_loggers_level_is_changed_at_run_time(broker: BrokerProcess, session: Session) -> None:
    """Somebody who looks for a fault would have to restart the broker, and lose it."""

    def level() -> str:
        rows = [{"resource_type": BROKER_LOGGER, "resource_name": "1", "configuration_keys": ["kbroker.cluster"]}]
        return str(session.quietly("DescribeConfigs", 4, resources=rows).results[0].configs[0].value)

    def change(*edits: dict[str, Any]) -> int:
        row = resource("1", *edits, kind=BROKER_LOGGER)
        return int(session.quietly("IncrementalAlterConfigs", 1, resources=[row]).responses[0].error_code)

    assert level() == "INFO"
    assert change(op("kbroker.cluster", SET, "ERROR")) == 0
    assert level() == "ERROR"
    session.create("quiet")
    assert "created topic quiet" not in broker.output()
    assert change(op("kbroker.cluster", 1)) == 0
    session.create("told")
    assert "created topic told" in broker.output()
    assert change(op("kbroker.cluster", APPEND, "INFO")) == 42
    assert change(op("kbroker.cluster", SET, "ERROR"), op("no.such", SET, "INFO")) == 40
    assert level() == "INFO"


def test_deleted_records_stay_deleted_after_a_crash(api: Any, kbroker_process: StartBroker) -> None:
    """What a user had deleted would be readable again after a crash."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    broker = kbroker_process()
    client = admin(api, broker)
    create(api, client, "pruned", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce("pruned", str(number).encode(), partition=0)
    producer.flush(TIMEOUT)
    asked = [TopicPartition("pruned", 0, 7), TopicPartition("pruned", 1, -1)]
    lows = {tp.partition: future.result(TIMEOUT).low_watermark for tp, future in client.delete_records(asked).items()}
    assert lows == {0: 7, 1: 0}
    with pytest.raises(Exception, match="OFFSET_OUT_OF_RANGE"):
        next(iter(client.delete_records([TopicPartition("pruned", 0, 11)]).values())).result(TIMEOUT)
    broker.restart(kill=True)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("pruned", 0, 0)])
    values: list[bytes | None] = []

    def read_three() -> bool:
        values.extend(message.value() for message in consumer.consume(10, 0.1))
        return len(values) >= 3

    wait_for(read_three, "three records")
    assert values == [b"7", b"8", b"9"]
    assert consumer.get_watermark_offsets(TopicPartition("pruned", 0), TIMEOUT) == (7, 10)
    consumer.close()


def test_deleting_records_frees_segments(broker: BrokerProcess, session: Session) -> None:
    """A full disk could not be freed without waiting for retention."""
    session.create("freed", configs={"segment.bytes": "1048576"})
    batch = Batch([(b"k", b"x" * 700_000)])
    session.fill("freed", *[batch] * 5)
    directory = broker.data_dir / "freed-0"
    assert len(list(directory.glob("*.log"))) == 5
    rows = [{"name": "freed", "partitions": [{"partition_index": 0, "offset": 3}]}]
    assert session.quietly("DeleteRecords", 2, topics=rows, timeout_ms=1000).topics[0].partitions[0].low_watermark == 3
    # A thread renames their files.
    wait_for(lambda: sorted(int(path.stem) for path in directory.glob("*.log")) == [3, 4], "the segments to go")


def test_directories_are_described_with_what_lies_in_them(kbroker_process: StartBroker, tmp_path: Path) -> None:
    """A tool that balances disks would be told of the wrong directory or size."""
    paths = [tmp_path / "one", tmp_path / "two"]
    broker = kbroker_process({"log.dirs": ",".join(map(str, paths))})
    with closing(Session(broker.port)) as session:
        session.create("spread", 4)
        for partition in range(4):
            session.fill("spread", Batch([(b"k", b"v" * 10 * partition)]), partition=partition)
        found = session.quietly("DescribeLogDirs", 4, topics=None).results
    assert sorted(row.log_dir for row in found) == sorted(map(str, paths))
    for row in found:
        (topic,) = row.topics
        assert len(topic.partitions) == 2
        for partition in topic.partitions:
            log = Path(row.log_dir) / f"spread-{partition.partition_index}" / f"{0:020d}.log"
            assert log.stat().st_size == partition.partition_size


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_kafka_python_manages_topics(broker: BrokerProcess) -> None:
    """Scripts that use kafka-python's admin client would fail."""
    require_module("kafka")
    import kafka
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    client.create_topics([NewTopic("scripted", 1, 1)])
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "scripted", {"retention.ms": "123000"})])
    described = str(client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "scripted")]))
    assert "123000" in described
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(5):
        producer.send("scripted", str(number).encode(), partition=0).get(TIMEOUT)
    producer.close()
    partition = kafka.TopicPartition("scripted", 0)
    deleted = client.delete_records({partition: 4})
    assert "4" in str(deleted)
    assert "scripted" in str(client.describe_log_dirs())
    client.close()


def test_the_command_alters_topics(broker: BrokerProcess, session: Session) -> None:
    """`kbroker topics alter` could not change settings."""

    def kbroker(*arguments: str) -> str:
        command = [sys.executable, "-m", "kbroker.cli", *arguments, "-b", broker.bootstrap]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    session.create("commanded", configs={"flush.ms": "5"})
    kbroker("topics", "alter", "commanded", "-c", "retention.ms=9000", "-d", "flush.ms")
    (described,) = json.loads(kbroker("topics", "describe", "commanded", "--json"))
    assert described["configs"] == {"retention.ms": "9000"}
