"""`kbroker.fsync` and `flush.messages` on a running broker: served as ever, and acknowledged after the disk."""

from __future__ import annotations

from typing import Any

from tests.broker.client import Batch, Client, scrape, wait_for
from tests.broker.records import QUIET, Writer, check_all_there_once, read_topic
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker


def fsyncs(broker: BrokerProcess) -> float:
    return scrape(broker.metrics_url)["kbroker_commit_fsyncs_total"]


def recovery_points(broker: BrokerProcess) -> dict[str, int]:
    """Offset by `topic-partition`, from the checkpoint on the disk."""
    path = broker.data_dir / "recovery-point-offset-checkpoint"
    rows = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in rows}


def read_records(consumer: Any, count: int) -> list[Any]:
    """The next records of a consumer."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(consumer.consume(count - len(found), 0.2))
        return len(found) == count

    wait_for(enough, f"{count} records")
    return found


def test_commit_acknowledges_after_an_fsync_and_before_that_shows_nothing(kbroker_process: StartBroker) -> None:
    """kbroker.fsync=commit would be a setting that does nothing."""
    broker = kbroker_process({"kbroker.fsync": "commit"})
    with Client(broker.port) as client:
        client.create("t", 4)
        before = fsyncs(broker)
        for number in range(10):
            assert client.write("t") == number
            assert client.fetch("t", offset=number).high_watermark == number + 1
        assert fsyncs(broker) - before == 10
        for partition in range(4):
            client.produce("t", Batch(), partition=partition, acks=1)
        assert client.offset("t") == 11


def test_many_producers_share_fsyncs(kbroker_process: StartBroker) -> None:
    """Each record would cost an fsync of its own: a few hundred records a second, whatever the load."""
    broker = kbroker_process({"kbroker.fsync": "commit"})
    with Client(broker.port) as client:
        client.create("t")
        before = fsyncs(broker)
        writers = [Writer(broker.bootstrap, "t", settings={"linger.ms": 0}) for _ in range(4)]
        for writer in writers:
            writer.send(1000)
        for writer in writers:
            writer.finish()
        assert client.offset("t") == 4000
        waited = scrape(broker.metrics_url)["kbroker_commit_waits_total"]
        assert 0 < fsyncs(broker) - before <= waited


def test_a_group_commits_its_offsets_durably(kbroker_process: StartBroker) -> None:
    """A consumer group would hang, or be told of offsets that a power failure takes back."""
    from confluent_kafka import Consumer

    broker = kbroker_process({"kbroker.fsync": "commit"})
    with Client(broker.port) as client:
        client.create("t")
        client.write("t", *([Batch()] * 10))
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, **QUIET}
    consumer: Any = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe(["t"])
    read_records(consumer, 10)
    before = fsyncs(broker)
    consumer.commit(asynchronous=False)
    assert fsyncs(broker) > before
    assert [each.offset for each in consumer.committed(consumer.assignment())] == [10]
    consumer.close()
    broker.restart(kill=True)
    again: Any = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    again.subscribe(["t"])
    with Client(broker.port) as client:
        client.write("t", Batch(((b"later", b""),)))
    assert read_records(again, 1)[0].offset() == 10
    again.close()


def test_flush_messages_follows_the_topic_while_it_is_written(kbroker_process: StartBroker) -> None:
    """A topic whose flush.messages was lowered would be acknowledged as before, until a restart."""
    broker = kbroker_process()
    with Client(broker.port) as client:
        client.create("t")
        client.write("t", Batch(), Batch())
        assert fsyncs(broker) == 0
        entry = {"name": "flush.messages", "config_operation": 0, "value": "1"}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [entry]}
        answer = client.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
        assert answer.responses[0].error_code == 0
        assert client.write("t", Batch(), Batch()) == 3
        assert fsyncs(broker) == 2
        assert client.fetch("t", offset=3).high_watermark == 4


def test_acks_0_is_not_answered_and_becomes_visible(kbroker_process: StartBroker) -> None:
    """The high watermark would wait for an acknowledgement that nobody asked for."""
    broker = kbroker_process({"kbroker.fsync": "commit"})
    writer = Writer(broker.bootstrap, "t", settings={"enable.idempotence": False, "acks": 0})
    writer.send(50)
    writer.finish()
    wait_for(lambda: len(read_topic(broker.bootstrap, "t")) == 50, "fifty records")


def test_interval_brings_every_record_to_the_disk_in_time(kbroker_process: StartBroker) -> None:
    """kbroker.fsync=interval would leave records to the system's half minute."""
    broker = kbroker_process(
        {
            "kbroker.fsync": "interval",
            "kbroker.fsync.interval.ms": "50",
            "log.flush.offset.checkpoint.interval.ms": "50",
        }
    )
    writer = Writer(broker.bootstrap, "t")
    writer.send(100)
    writer.finish()
    wait_for(lambda: recovery_points(broker).get("t-0") == 100, "the recovery point to reach the end")
    broker.restart(kill=True)
    check_all_there_once(writer, read_topic(broker.bootstrap, "t"))


def test_a_setting_that_does_not_exist_is_refused(kbroker_process: StartBroker) -> None:
    """Somebody who writes `always` would believe in a promise that nobody made."""
    broker = kbroker_process({"kbroker.fsync": "always"}, wait=False)
    broker.spawn()
    assert broker.wait() != 0
    assert "kbroker.fsync" in broker.output() and "os, interval, commit" in broker.output()
