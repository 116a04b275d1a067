"""The readers of both data sources as Spark calls them, without Spark: planning, reading, streaming, damage.

Also of `kbroker.replay.sources.kbroker_source`, `kbroker.replay.sources.log_plan`.
"""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.types import StructType

from kbroker.client.connection import Connection
from kbroker.client.errors import BrokerUnreachableError, TopicUnknownError
from kbroker.protocol.api import ApiKey
from kbroker.replay.columns import COLUMNS
from kbroker.replay.sources import log_options
from kbroker.replay.sources.batch_reader import BatchReader
from kbroker.replay.sources.log_files import LogDirectoryError
from kbroker.replay.sources.log_reader import LogReader
from kbroker.replay.sources.offset_json import from_checkpoint
from kbroker.replay.sources.offset_ranges import OffsetsError
from kbroker.replay.sources.option_values import OptionError
from kbroker.replay.sources.read_options import parse
from kbroker.replay.sources.read_range import CorruptRecordsError, DataLossError
from kbroker.replay.sources.spark_schema import columns_of, schema_of
from kbroker.replay.sources.stream_reader import StreamReader
from kbroker.schemas import request_message
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.conftest import StartBroker
from tests.ports import free_port


def produce(
    bootstrap: str, topic: str, values: Iterable[int], partition: int = 0, *, width: int = 1, **settings: Any
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for value in values:
        producer.produce(topic, value=b"%0*d" % (width, value), partition=partition)
    assert producer.flush(30) == 0


def delete_records(broker: BrokerProcess, topic: str, offset: int) -> None:
    request = request_message(ApiKey.DELETE_RECORDS)
    row = request.DeleteRecordsPartition(partition_index=0, offset=offset)
    with Connection("127.0.0.1", broker.port) as connection:
        answer = connection.send(
            request(topics=[request.DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=10_000)
        )
    assert answer.topics[0].partitions[0].low_watermark == offset


def options(broker: BrokerProcess, topic: str, streaming: bool, **more: str) -> Any:
    base = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    return parse({**base, **more}, streaming=streaming)


def values(reader: Any, partitions: Iterable[Any]) -> list[int]:
    """What executors would read: a reader and its partitions travel to them pickled."""
    far = pickle.loads(pickle.dumps(reader))
    return [
        int(value.as_py())
        for partition in pickle.loads(pickle.dumps(list(partitions)))
        for batch in far.read(partition)
        for value in batch["value"]
    ]


def stream(broker: BrokerProcess, topic: str, **more: str) -> StreamReader:
    return StreamReader(options(broker, topic, True, **more), COLUMNS)


def trip(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset as it comes back from Spark's checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def at(offset: dict[str, Any]) -> list[int]:
    return list(from_checkpoint(offset)[0].values())


def test_batches_are_planned_between_offsets_and_read_by_executors(module_broker: BrokerProcess) -> None:
    """A job would read another range than the one that it was given."""
    topic = Admin(module_broker.bootstrap).create_topic("batch", 2)
    produce(module_broker.bootstrap, topic, range(100))
    produce(module_broker.bootstrap, topic, range(100, 130), partition=1)
    limits = {"startingOffsets": f'{{"{topic}":{{"0":10,"1":-2}}}}', "minPartitions": "4"}
    reader = BatchReader(options(module_broker, topic, False, **limits), COLUMNS)
    pieces = reader.partitions()
    assert len(pieces) == 4
    assert values(reader, pieces) == list(range(10, 130))
    assert list(reader.read(None)) == []


def test_mistakes_are_found_when_a_batch_is_planned(module_broker: BrokerProcess) -> None:
    """A wrong name would be met in the executors, after minutes, in a trace of Spark's."""
    topic = Admin(module_broker.bootstrap).create_topic("mistakes", 2)
    produce(module_broker.bootstrap, topic, range(3))

    def plan(name: str, **more: str) -> None:
        BatchReader(options(module_broker, name, False, **more), COLUMNS).partitions()

    with pytest.raises(TopicUnknownError, match="topic nowhere does not exist"):
        plan(f"{topic},nowhere")
    with pytest.raises(OffsetsError, match=f"must name all partitions .*missing: {topic}-1"):
        plan(topic, startingOffsets=f'{{"{topic}":{{"0":10}}}}')
    with pytest.raises(OffsetsError, match=f"names partitions that are not read: {topic}-7"):
        plan(topic, startingOffsets=f'{{"{topic}":{{"0":1,"1":1,"7":1}}}}')
    with pytest.raises(OffsetsError, match=r"no record at or after the time given; .*Strategy=latest"):
        plan(topic, startingTimestamp="4000000000000")
    with pytest.raises(BrokerUnreachableError, match="nothing listens there"):
        BatchReader(
            parse({"kafka.bootstrap.servers": f"127.0.0.1:{free_port()}", "subscribe": topic}, streaming=False), COLUMNS
        ).partitions()


def test_a_schema_of_the_user_s_own_leaves_columns_out_and_no_more() -> None:
    """Counting a topic would decode all of it; a wrong type would end in a crash of the JVM."""
    whole = schema_of(True)
    assert columns_of(StructType([whole["offset"], whole["value"]])) == ("offset", "value")
    with pytest.raises(OptionError, match="column value is binary, not string"):
        columns_of(StructType().add("value", "string"))
    with pytest.raises(OptionError, match="a column 'payload': there are key, value, topic"):
        columns_of(StructType().add("payload", "binary"))


def test_records_that_retention_took_fail_the_job_or_are_passed_over(module_broker: BrokerProcess) -> None:
    """A job would lose records in silence, or never end."""
    topic = Admin(module_broker.bootstrap).create_topic("lost", 1)
    produce(module_broker.bootstrap, topic, range(100), **{"batch.num.messages": 10})
    limits = {"startingOffsets": f'{{"{topic}":{{"0":20}}}}'}
    strict = BatchReader(options(module_broker, topic, False, **limits), COLUMNS)
    lenient = BatchReader(options(module_broker, topic, False, failOnDataLoss="false", **limits), COLUMNS)
    pieces = strict.partitions()
    delete_records(module_broker, topic, 45)
    with pytest.raises(DataLossError, match=r"has no offset 20: it has 45 to 100.*failOnDataLoss to false"):
        values(strict, pieces)
    assert values(lenient, pieces) == list(range(45, 100))


def test_a_stream_gives_each_record_once_however_often_it_is_planned(module_broker: BrokerProcess) -> None:
    """Spark plans a batch again after every failure: it would read more, or less, the second time."""
    topic = Admin(module_broker.bootstrap).create_topic("stream", 2)
    produce(module_broker.bootstrap, topic, range(100))
    produce(module_broker.bootstrap, topic, range(100, 150), partition=1)
    reader = stream(module_broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    start = trip(reader.initialOffset())
    first = trip(reader.latestOffset())
    assert at(first) == [40, 20]
    pieces = reader.partitions(start, first)
    assert trip(reader.latestOffset()) != first
    found = values(reader, pieces)
    # The driver dies before the batch is committed: Spark shows the last offset of its log, then plans the batch again.
    again = stream(module_broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    assert again.partitions(first, first) == []
    assert trip(again.initialOffset()) == start
    assert values(again, again.partitions(start, first)) == found
    last = first
    while (following := trip(again.latestOffset())) != last:
        found += values(again, again.partitions(last, following))
        last = following
    assert sorted(found) == list(range(150))
    reader.stop()
    again.stop()


def test_a_query_that_dies_within_its_first_batch_begins_where_it_began(module_broker: BrokerProcess) -> None:
    """With startingOffsets latest the records of the first batch would be lost: "latest" has moved by then."""
    topic = Admin(module_broker.bootstrap).create_topic("first", 1)
    produce(module_broker.bootstrap, topic, range(10))
    reader = stream(module_broker, topic)
    start = trip(reader.initialOffset())
    produce(module_broker.bootstrap, topic, range(10, 30))
    first = trip(reader.latestOffset())
    produce(module_broker.bootstrap, topic, range(30, 35))
    again = stream(module_broker, topic)
    again.partitions(first, first)
    assert trip(again.initialOffset()) == start
    assert values(again, again.partitions(trip(again.initialOffset()), first)) == list(range(10, 30))
    assert at(again.latestOffset()) == [35]
    reader.stop()
    again.stop()


def test_partitions_that_come_and_topics_that_go(
    module_broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Records of a new partition would never be read; those of a deleted topic would be missed without a word."""
    admin = Admin(module_broker.bootstrap)
    topic = admin.create_topic("grown", 1)
    produce(module_broker.bootstrap, topic, range(5))
    reader = stream(module_broker, topic, startingOffsets="earliest")
    before = trip(reader.latestOffset())
    assert values(reader, reader.partitions(trip(reader.initialOffset()), before)) == list(range(5))
    client = AdminClient({"bootstrap.servers": module_broker.bootstrap})
    client.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    produce(module_broker.bootstrap, topic, range(5, 9), partition=1)
    after = trip(reader.latestOffset())
    assert values(reader, reader.partitions(before, after)) == [5, 6, 7, 8]
    gone = {name: rows for name, rows in after.items() if name == "@start"}
    with pytest.raises(DataLossError, match=f"{topic}-0, {topic}-1 is gone"):
        reader.partitions(after, gone)
    lenient = stream(module_broker, topic, startingOffsets="earliest", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert lenient.partitions(after, gone) == []
    assert f"{topic}-0, {topic}-1 is gone" in caplog.text
    back = {**after, topic: {"0": 2, "1": 4}}
    with pytest.raises(DataLossError, match=f"{topic}-0 went back from offset 5 to 2"):
        reader.partitions(after, back)
    reader.stop()
    lenient.stop()


def test_a_trigger_waits_for_enough_records_but_not_for_ever(module_broker: BrokerProcess) -> None:
    """Many tiny batches would cost more than they carry; or a quiet topic would never be read."""
    topic = Admin(module_broker.bootstrap).create_topic("waits", 1)
    produce(module_broker.bootstrap, topic, range(5))
    limits = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    reader = stream(module_broker, topic, maxTriggerDelay="1h", **limits)
    first = reader.latestOffset()
    assert at(first) == [5]
    reader.partitions(reader.initialOffset(), first)
    produce(module_broker.bootstrap, topic, range(3))
    assert at(reader.latestOffset()) == [5]
    produce(module_broker.bootstrap, topic, range(9))
    assert at(reader.latestOffset()) == [17]
    hasty = stream(module_broker, topic, maxTriggerDelay="0ms", **limits)
    hasty.partitions(first, first)
    assert at(hasty.latestOffset()) == [17]
    reader.stop()
    hasty.stop()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker's log directory: `logs` has two partitions, the first of several segments."""
    directory = tmp_path_factory.mktemp("disk")
    broker = BrokerProcess(directory)
    broker.start()
    try:
        small = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2000"}
        topic = Admin(broker.bootstrap).create_topic("logs", 2, small)
        produce(broker.bootstrap, topic, range(5000), width=500, **{"batch.num.messages": 10})
        produce(broker.bootstrap, topic, range(5000, 5100), partition=1, **{"compression.type": "zstd"})
    finally:
        broker.stop()
    (directory / "topic").write_text(topic)
    return directory


def log_reader(path: Path, **more: str) -> LogReader:
    return LogReader(log_options.parse({"path": str(path), **more}), COLUMNS)


def read_log(path: Path, **more: str) -> list[int]:
    reader = log_reader(path, **more)
    return values(reader, reader.partitions())


def test_a_log_directory_is_read_whole_and_in_ranges(disk: Path) -> None:
    """A disk's records would be lost or doubled at the borders of segments and of pieces."""
    data, topic = disk / "data", (disk / "topic").read_text()
    assert len(list((data / f"{topic}-0").glob("*.log"))) > 2
    assert read_log(data) == list(range(5100))
    assert read_log(data / f"{topic}-1") == list(range(5000, 5100))
    assert len(log_reader(data, maxPartitionBytes="20000").partitions()) > 20
    assert read_log(data, maxPartitionBytes="20000") == list(range(5100))
    for start, stop in ((0, 1), (17, 18), (999, 3333), (4999, 5000), (4000, 9999)):
        limits = {
            "startingOffsets": f'{{"{topic}":{{"0":{start},"1":100}}}}',
            "endingOffsets": f'{{"{topic}":{{"0":{stop}}}}}',
        }
        assert read_log(data, maxPartitionBytes="20000", **limits) == list(range(start, min(stop, 5000)))
    (batch,) = list(log_reader(data, topics=topic).read(log_reader(data, topics=topic).partitions()[-1]))
    first = batch["timestamp"][0].value // 1000
    later = read_log(data, startingTimestamp=str(first))
    assert later[-100:] == list(range(5000, 5100))
    assert read_log(data, endingTimestamp=str(first)) == list(range(5100 - len(later)))


def test_what_is_no_log_directory_is_said_to_be_none(disk: Path, tmp_path: Path) -> None:
    """A wrong path would read as an empty topic."""
    with pytest.raises(LogDirectoryError, match="is no directory here"):
        read_log(tmp_path / "nowhere")
    with pytest.raises(LogDirectoryError, match="holds no partitions"):
        read_log(tmp_path)
    with pytest.raises(LogDirectoryError, match="no partition of other in"):
        read_log(disk / "data", topics="other")
    assert read_log(disk / "data", topicsPattern="other.*") == []


def test_a_torn_end_is_left_out_and_damage_elsewhere_is_an_error(
    disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy of a live directory could not be read at all; or a damaged disk would read as a shorter topic."""
    data, topic = tmp_path / "data", (disk / "topic").read_text()
    shutil.copytree(disk / "data", data)
    segments = sorted((data / f"{topic}-0").glob("*.log"))
    whole = segments[-1].read_bytes()
    for torn in (whole[:-7], whole + bytes(4096), whole + whole[:50], whole[:-3] + b"\0\0\0"):
        segments[-1].write_bytes(torn)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = read_log(data, topics=topic)
        assert found == [*range(found[-101] + 1), *range(5000, 5100)]
        assert 4900 <= len(found) - 100 <= 5000
        assert f"{topic}-0 ends at offset {found[-101] + 1}" in caplog.text
    segments[-1].write_bytes(whole)
    first = bytearray(segments[0].read_bytes())
    first[100] ^= 0x10
    segments[0].write_bytes(first)
    with pytest.raises(CorruptRecordsError, match=f"reading {topic}-0, {segments[0]}.*Record is corrupt"):
        read_log(data)
    segments[0].write_bytes(first[: len(first) // 2])
    with pytest.raises(CorruptRecordsError, match=r"others follow|Record is corrupt"):
        read_log(data)


def test_an_index_that_lies_changes_nothing(disk: Path, tmp_path: Path) -> None:
    """A damaged index, which a broker would rebuild, would lose records or end the job."""
    data, topic = tmp_path / "data", (disk / "topic").read_text()
    shutil.copytree(disk / "data", data)
    for index in (data / f"{topic}-0").glob("*.index"):
        index.write_bytes(b"".join(b"\0\0\0" + bytes([n * 10]) + (n * 7777).to_bytes(4, "big") for n in range(1, 20)))
    assert read_log(data, maxPartitionBytes="20000") == list(range(5100))
    for index in (data / f"{topic}-0").glob("*index"):
        index.unlink()
    assert read_log(data, maxPartitionBytes="20000") == list(range(5100))


def test_a_damaged_topic_names_the_place(kbroker_process: StartBroker) -> None:
    """The user would know that a checksum is wrong, but not of what."""
    broker = kbroker_process()
    topic = Admin(broker.bootstrap).create_topic("damaged", 1)
    produce(broker.bootstrap, topic, range(100))
    reader = BatchReader(options(broker, topic, False), COLUMNS)
    pieces = reader.partitions()
    (segment,) = (broker.data_dir / f"{topic}-0").glob("*.log")
    with segment.open("r+b") as file:
        data = bytearray(file.read())
        data[70] ^= 0xFF
        file.seek(0)
        file.write(data)
    with pytest.raises(CorruptRecordsError, match=f"reading {topic}-0: Record is corrupt .*where offset 0 should be"):
        values(reader, pieces)
