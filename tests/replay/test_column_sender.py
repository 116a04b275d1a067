"""Sending by columns: the same records and counts as one record at a time from Python, against a real broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.base import crc32c
from kbroker._fast.replay.librdkafka import Library, LibraryError
from kbroker._fast.replay.replay_rows import ReplayRows
from kbroker.replay.player import column_sender
from kbroker.replay.player.channel import Reporter
from kbroker.replay.player.column_sender import ColumnSender, by_columns, library_for, open_sender
from kbroker.replay.player.executor import Ahead, Player
from kbroker.replay.player.operations import Sender, Totals
from kbroker.replay.player.outcome import Cells
from kbroker.replay.player.settings import Delivery, Job, ReplayError
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for

PARTITIONS = 3
MOST_BYTES = 2_000
COUNTS = ("offered", "sent", "acknowledged", "failed", "unsent", "bytes")
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
SCHEMA = pa.schema([
    ("due_us", pa.int64()), ("source", pa.string()), ("sequence", pa.int64()), ("topic", pa.string()),
    ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS),
    ("kind", pa.string()), ("group", pa.string()), ("id", pa.binary()),
])  # fmt: skip
Row = dict[str, Any]

contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.just(b"x" * (MOST_BYTES + 500)))
names = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=5)
header_lists = st.one_of(st.none(), st.lists(st.tuples(names, st.one_of(st.none(), st.binary(max_size=5))), max_size=3))
rows = st.fixed_dictionaries({
    "topic": st.sampled_from(["one", "other"]),
    "partition": st.one_of(st.none(), st.integers(0, PARTITIONS - 1), st.just(99)),
    "key": st.one_of(st.none(), st.just(b""), st.binary(max_size=8)),
    "value": contents,
    "headers": header_lists,
    "id": st.one_of(st.none(), st.just(b""), st.binary(min_size=1, max_size=20)),
    "later_us": st.sampled_from([0, 0, 1, 300, 4000]),
})  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that the test may kill."""
    own = BrokerProcess(tmp_path / "broker").start()
    yield own
    if own.running:
        own.kill()


def batch_of(made: list[Row]) -> pa.RecordBatch:
    """Prepared rows; the batch begins in the middle of its columns."""
    due = 0
    full = []
    for number, row in enumerate([{"later_us": 0, "value": b"not sent"}, *made]):
        due += row.get("later_us", 0)
        full.append({"due_us": due, "source": f"s{number % 3}", "sequence": number, "topic": "one", "kind": "produce",
                     **row})  # fmt: skip
    columns = [pa.array([row.get(name) for row in full], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(1)


def job_of(bootstrap: str, topics: tuple[str, ...], *, columns: bool, **more: Any) -> Job:
    delivery = Delivery(by_columns=columns, late_ms=1000, **more)
    return Job(bootstrap, "run", delivery, topics, {}, None, "", produces=True, stop_patience_s=0.2)


def played(
    bootstrap: str,
    topics: tuple[str, ...],
    batches: list[pa.RecordBatch],
    *,
    columns: bool,
    beside: Callable[[Totals, Reporter], None] | None = None,
    **more: Any,
) -> list[Row]:
    """What an executor tells of these rows; `beside` runs in a thread while it plays them."""
    job, totals = job_of(bootstrap, topics, columns=columns, **more), Totals()
    reporter = Reporter(None, "", 0, totals.counts)
    player = Player(job, 0, totals, Ahead(iter(batches)), reporter)
    thread = threading.Thread(target=beside, args=(totals, reporter)) if beside is not None else None
    player.begin(time.time())
    if thread is not None:
        thread.start()
    cells = [row for batch in player.outcomes() for row in batch.to_pylist() if row["kind"]]
    if thread is not None:
        thread.join()
    told = totals.counts()
    for name in ("sent", "acknowledged", "failed", "bytes"):
        assert told[name] == sum(row[name] for row in cells), name
    return cells


def summed(cells: list[Row]) -> dict[str, Any]:
    """What does not depend on the clock."""
    found: dict[str, Any] = {name: sum(row[name] for row in cells) for name in COUNTS}
    found["measured"] = [sum(count for row in cells for _, count in row[name]) for name in ("sent_error", "latency")]
    found["errors"] = Counter(name for row in cells for name, count in row["errors"] for _ in range(count))
    found["exceptions"] = sorted((one["source"], one["sequence"], one["why"]) for row in cells
                                 for one in row["exceptions"])  # fmt: skip
    return found


def stored(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """All records of a topic, by partition and in order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True, "fetch.wait.max.ms": 5}
    )
    found, ended = [], 0
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while ended < PARTITIONS:
            message = consumer.poll(90)
            assert message is not None, "the broker does not answer"
            if message.error():
                ended += 1
            else:
                found.append((message.partition(), message.key(), message.value(), message.headers()))
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record[0])


def comparable(records: list[tuple[Any, ...]]) -> tuple[list[Any], Counter[Any]]:
    """Records that have a place of their own, by partition in order; and the others, wherever they are."""
    placed, others = [], Counter[Any]()
    for partition, key, value, headers in records:
        one = (key, value, tuple(headers or ()))
        if key is not None:
            placed.append((partition, one))
        else:
            others[one] += 1
    return placed, others


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(rows, min_size=1, max_size=60), st.integers(1, 25))
def test_columns_and_single_records_are_the_same(
    kbroker_broker: BrokerProcess, made: list[Row], batch_rows: int
) -> None:
    """The quick way would store or count other records than the trace has."""
    found = []
    for columns in (True, False):
        admin = Admin(kbroker_broker.bootstrap)
        topics = {name: admin.create_topic(f"columns-{name}", PARTITIONS) for name in ("one", "other")}
        whole = batch_of([{**row, "topic": topics[row["topic"]]} for row in made])
        batches = [whole.slice(at, batch_rows) for at in range(0, len(made), batch_rows)]
        client = {"message.max.bytes": str(MOST_BYTES), "linger.ms": "1"}
        cells = played(kbroker_broker.bootstrap, tuple(topics.values()), batches, columns=columns, client=client)
        kept = [comparable(stored(kbroker_broker.bootstrap, topic)) for topic in topics.values()]
        found.append((summed(cells), kept))
    assert found[0] == found[1]
    assert found[0][0]["offered"] == len(made)
    failing = sum(1 for row in made if row["partition"] == 99 or len(row["value"] or b"") > MOST_BYTES)
    assert found[0][0]["failed"] == failing and found[0][0]["acknowledged"] == len(made) - failing


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(
    "delivery",
    [{}, {"acks": "1", "idempotence": False, "compression": "lz4"}, {"acks": "0", "idempotence": False}],
    ids=lambda delivery: f"acks {delivery.get('acks', 'all')}",
)
def test_what_the_trace_says_is_what_is_stored(
    kbroker_broker: BrokerProcess, columns: bool, delivery: dict[str, Any]
) -> None:
    """Null and empty would be taken for each other, or headers lost."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("columns-exact", PARTITIONS)
    made: list[Row] = [
        {"partition": 2, "key": None, "value": None, "headers": None, "id": b"mark"},
        {"partition": 2, "key": b"", "value": b"", "headers": [("h", None), ("h", b""), ("é", b"1")], "id": b"m2"},
        {"partition": 2, "key": b"k", "value": b"v" * 500_000, "headers": [], "id": None},
    ]
    batch = batch_of([{**row, "topic": topic} for row in made])
    result = summed(played(kbroker_broker.bootstrap, (topic,), [batch], columns=columns, **delivery))
    assert (result["acknowledged"], result["bytes"], result["measured"]) == (3, 500_001, [3, 3])
    # Without acknowledgements the broker may be still at it.
    wait_for(lambda: len(stored(kbroker_broker.bootstrap, topic)) == len(made), "the records")
    assert stored(kbroker_broker.bootstrap, topic) == [
        (2, None, None, [("kbroker-replay-id", b"mark")]),
        (2, b"", b"", [("h", None), ("h", b""), ("é", b"1"), ("kbroker-replay-id", b"m2")]),
        (2, b"k", b"v" * 500_000, None),
    ]


@pytest.mark.parametrize("columns", [True, False])
def test_a_topic_that_is_gone_is_reported(kbroker_broker: BrokerProcess, columns: bool) -> None:
    """Records to nowhere would count as sent and never end."""
    client = {"topic.metadata.propagation.max.ms": "200", "message.timeout.ms": "60000"}
    made = [{"topic": "columns-nowhere", "value": b"v"} for _ in range(5)]
    result = summed(
        played(kbroker_broker.bootstrap, ("columns-nowhere",), [batch_of(made)], columns=columns, client=client)
    )
    assert (result["offered"], result["failed"], result["acknowledged"]) == (5, 5, 0)
    assert set(result["errors"]) <= {"_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"}
    assert [(source, sequence) for source, sequence, _ in result["exceptions"]] == [
        ("s0", 3), ("s1", 1), ("s1", 4), ("s2", 2), ("s2", 5)]  # fmt: skip


@pytest.mark.parametrize("columns", [True, False])
def test_a_full_queue_is_waited_for_and_reported(kbroker_broker: BrokerProcess, columns: bool) -> None:
    """Back-pressure would be hidden, or records dropped because of it."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("columns-full", PARTITIONS)
    batch = batch_of([{"topic": topic, "value": b"%d" % number} for number in range(400)])
    cells = played(kbroker_broker.bootstrap, (topic,), [batch], columns=columns, queue_records=20, linger_ms=50.0)
    result = summed(cells)
    assert (result["offered"], result["sent"], result["acknowledged"]) == (400, 400, 400)
    assert sum(row["queue_full_us"] for row in cells) > 100_000


@pytest.mark.parametrize("columns", [True, False])
def test_a_stop_counts_each_record_once(broker: BrokerProcess, columns: bool) -> None:
    """After a stop in front of a dead broker records would be missing from the report, or there twice."""
    topic = Admin(broker.bootstrap).create_topic("columns-stopped", PARTITIONS)
    # 20 s of rows: on a busy machine, too, the broker is dead before the queue has taken the last of them.
    batch = batch_of(
        [{"topic": topic, "value": b"v"} for _ in range(50)]
        + [{"topic": topic, "value": b"v", "later_us": 10_000} for _ in range(2_000)]
    )

    def end(totals: Totals, reporter: Reporter) -> None:
        wait_for(lambda: totals.acknowledged >= 50, "the first records")
        broker.kill()
        wait_for(lambda: totals.queue_full_us, "a full queue")
        reporter.stopped = True

    cells = played(broker.bootstrap, (topic,), [batch], columns=columns, beside=end, queue_records=60)
    result = summed(cells)
    assert result["offered"] + result["unsent"] == 2_050 and result["unsent"]
    assert result["acknowledged"] + result["failed"] + result["unsent"] == 2_050 and result["failed"]
    assert len(result["exceptions"]) == result["failed"] + result["unsent"]


def test_rows_of_others_come_back_at_their_time(kbroker_broker: BrokerProcess) -> None:
    """Consumers' operations would be left out, or come before the records that the trace has before them."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("columns-mixed", PARTITIONS)
    kinds = ["consume", "produce", "produce", "commit", "produce", "consume"]
    made = [{"topic": topic, "kind": kind, "value": b"v", "later_us": 2_000} for kind in kinds]
    batch = batch_of(made)
    job, totals = job_of(kbroker_broker.bootstrap, (topic,), columns=True), Totals()
    sender = open_sender(job, 0, Cells(0), totals)
    assert isinstance(sender, ColumnSender)
    start = time.monotonic()
    sender.begin(start)
    slot, row, seen = sender.hold(batch), 0, []
    while row < batch.num_rows:
        row, another = sender.play(slot, row)
        if another:
            seen.append((row, totals.sent))
            assert time.monotonic() - start >= (row + 1) * 0.002
            row += 1
    sender.release(slot)
    sender.finish(lambda: False, 1)
    assert seen == [(0, 0), (3, 2), (5, 3)] and totals.acknowledged == 3


def test_the_other_way_is_taken_where_this_one_cannot_go(
    kbroker_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A replay would end because a library was built in another way, or send in transactions that never end."""
    with pytest.raises(LibraryError, match=r"/nowhere\.so is not loaded"):
        Library("/nowhere.so")
    with pytest.raises(LibraryError, match="brings no rd_kafka_conf_new: librdkafka"):
        Library(crc32c.__file__)
    assert not by_columns(Delivery(transaction_records=5))
    assert not by_columns(Delivery(client={"sasl.mechanisms": "oauthbearer"}))
    assert by_columns(Delivery(client={"sasl.mechanism": "PLAIN"}))
    monkeypatch.setattr(column_sender.cimpl, "__file__", crc32c.__file__)
    job = job_of(kbroker_broker.bootstrap, (), columns=True)
    assert isinstance(open_sender(job, 0, Cells(0), Totals()), Sender)
    assert library_for(job.delivery) is None
    assert "one by one, which is slower" in caplog.text


def test_settings_that_are_refused_are_explained(kbroker_broker: BrokerProcess) -> None:
    """The user would see a crash of Spark's worker and not which setting is wrong."""
    job = job_of(kbroker_broker.bootstrap, (), columns=True, client={"no.such.setting": "1"})
    with pytest.raises(ReplayError, match=r"refuses its settings: .*no\.such\.setting"):
        open_sender(job, 0, Cells(0), Totals())


def test_columns_that_lie_are_refused(kbroker_broker: BrokerProcess) -> None:
    """A damaged batch would send memory of the executor to the broker."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("columns-lying", PARTITIONS)
    job = job_of(kbroker_broker.bootstrap, (topic,), columns=True)
    sender = open_sender(job, 0, Cells(0), Totals())
    assert isinstance(sender, ColumnSender)
    sender.begin(time.monotonic())
    numbers, zeros = memoryview(bytes(16)), bytes(8)
    offsets = b"".join(one.to_bytes(4, "little") for one in (0, 4, 9))
    lying = ReplayRows(None, 2, None, (None, offsets, b"12345678", 0), None, None, numbers, zeros, None, None)
    producer = sender._producer
    with pytest.raises(ValueError, match="row 1 lies outside of its column"):
        producer.play(producer.hold(lying), 0, 10**9)
    with pytest.raises(ValueError, match="8 are needed"):
        ReplayRows(None, 2, None, None, None, None, numbers, bytes(4), None, None)
    with pytest.raises(ValueError, match="has topic 7 of 1"):
        producer.hold(ReplayRows(None, 1, None, None, None, None, numbers, (7).to_bytes(4, "little"), None, None))
    keyless = (None, b"".join(one.to_bytes(4, "little") for one in (0, 1)), 0, 1, (b"\0", bytes(8), None, 0),
               (None, bytes(8), None, 0))  # fmt: skip
    with pytest.raises(ValueError, match="row 0 has a header without a key"):
        producer.play(
            producer.hold(ReplayRows(None, 1, None, None, keyless, None, numbers, zeros, None, None)), 0, 10**9
        )
    with pytest.raises(IndexError):
        producer.play(17, 0, 1)
    sender.finish(lambda: False, 1)
    with pytest.raises(ValueError, match="not after its end"):
        producer.play(0, 0, 1)
