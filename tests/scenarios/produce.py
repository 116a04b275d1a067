"""Produce: what is taken, what is refused, and with which code and text."""

from __future__ import annotations

import gzip
import time
from typing import Any

from tests.scenarios.batches import T0, Batch, message_set_v1, record, varint
from tests.scenarios.session import Session, produce_values, scenario
from tests.scenarios.topics import BOGUS_ID

LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@scenario
def in_each_version(s: Session) -> None:
    topic_id = s.create("produce-versions")
    for version in range(3, 14):
        topic: str | bytes = topic_id if version >= 13 else "produce-versions"
        s.produce(f"v{version}", topic, Batch([(b"k", b"v"), (None, b"w")]), version)


@scenario
def to_what_is_not(s: Session) -> None:
    topic_id = s.create("produce-known")
    s.produce("unknown topic", "produce-never", Batch())
    s.produce("unknown topic v3", "produce-never", Batch(), 3)
    s.produce("invalid topic name", "not a name", Batch())
    s.produce("empty topic name", "", Batch())
    s.produce("unknown id", BOGUS_ID, Batch(), 13)
    s.produce("no id", bytes(16), Batch(), 13)
    s.produce("unknown partition", "produce-known", Batch(), partition=1)
    s.produce("negative partition", "produce-known", Batch(), partition=-1)
    s.produce("unknown partition by id", topic_id, Batch(), 13, partition=1)
    s.produce("known", "produce-known", Batch())


@scenario
def with_acks(s: Session) -> None:
    s.create("produce-acks")
    s.produce("acks 1", "produce-acks", Batch(), acks=1)
    s.produce("acks all", "produce-acks", Batch(), acks=-1)
    s.produce("acks 2", "produce-acks", Batch(), acks=2)
    s.produce("acks -2", "produce-acks", Batch(), acks=-2)
    s.wire.send("Produce", 9, produce_values("produce-acks", Batch(), acks=0))
    s.ask("after acks 0, its record is there", "ListOffsets", 7, **latest("produce-acks"))
    s.record("and nothing else was sent", s.wire.silent())
    s.wire.send("Produce", 9, produce_values("produce-never", Batch(), acks=0))
    s.record("acks 0 and an error", hung_up(s))
    s.produce("still serving", "produce-acks", Batch())


@scenario
def below_min_insync_replicas(s: Session) -> None:
    s.create("produce-insync", 1, {"min.insync.replicas": "2"})
    s.produce("acks all", "produce-insync", Batch())
    s.produce("acks 1", "produce-insync", Batch(), acks=1)


@scenario
def several_partitions_at_once(s: Session) -> None:
    s.create("produce-many", 3)
    s.create("produce-many-too")
    good, bad = Batch().encoded(), Batch(lies={"crc": 7}).encoded()
    partitions = [{"index": 0, "records": good}, {"index": 1, "records": bad}, {"index": 2, "records": good}]
    partitions.append({"index": 9, "records": good})
    other = {"name": "produce-many-too", "partition_data": [{"index": 0, "records": good}]}
    topics = [{"name": "produce-many", "partition_data": partitions}, other]
    s.ask("one is corrupt, one is not there", "Produce", 9, acks=-1, timeout_ms=1000, topic_data=topics)
    s.ask("nothing at all", "Produce", 9, acks=-1, timeout_ms=1000, topic_data=[])
    twice = [{"index": 0, "records": good}, {"index": 0, "records": good}]
    s.ask(
        "one partition twice",
        "Produce",
        9,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": "produce-many", "partition_data": twice}],
    )
    s.ask("ends", "ListOffsets", 7, **latest("produce-many", 3))


@scenario
def too_large(s: Session) -> None:
    s.create("produce-large", 1, {"max.message.bytes": "200"})
    fits = 200 - len(Batch([(None, b"")]).encoded()) - 2
    s.produce("fits", "produce-large", Batch([(None, b"x" * fits)]))
    s.produce("one byte more", "produce-large", Batch([(None, b"x" * (fits + 1))]))
    s.produce("much more", "produce-large", Batch([(None, b"x" * 5000)]))
    s.produce("many small ones", "produce-large", Batch([(None, b"x")] * 100))
    s.produce("gzip that fits", "produce-large", Batch([(None, b"x" * 5000)], codec=1))


BROKEN: tuple[tuple[str, bytes | None], ...] = (
    ("null", None),
    ("empty", b""),
    ("one byte", b"\0"),
    ("header cut off", Batch().encoded()[:60]),
    ("records cut off", Batch().encoded()[:-1]),
    ("trailing byte", Batch().encoded() + b"\0"),
    ("two batches", Batch().encoded() * 2),
    ("wrong crc", Batch(lies={"crc": 1}).encoded()),
    ("magic 0", Batch(magic=0).encoded()),
    ("magic 1", Batch(magic=1).encoded()),
    ("a real magic 1 message", message_set_v1(b"k", b"v", T0)),
    ("magic 3", Batch(magic=3).encoded()),
    ("magic -1", Batch(magic=-1).encoded()),
    ("no records", Batch(pairs=[], lies={"last_offset_delta": -1, "max_timestamp": -1}).encoded()),
    ("no records, delta 0", Batch(pairs=[], lies={"last_offset_delta": 0}).encoded()),
    ("count too high", Batch(lies={"records_count": 2, "last_offset_delta": 1}).encoded()),
    ("count too high by itself", Batch(lies={"records_count": 2}).encoded()),
    ("count too low", Batch([(b"a", b"1"), (b"b", b"2")], lies={"records_count": 1, "last_offset_delta": 0}).encoded()),
    ("count negative", Batch(lies={"records_count": -1}).encoded()),
    ("last offset delta too high", Batch(lies={"last_offset_delta": 5}).encoded()),
    ("offset deltas out of order", Batch([(b"a", b"1"), (b"b", b"2")], lies={"offset_deltas": [1, 0]}).encoded()),
    ("offset deltas with a gap", Batch([(b"a", b"1"), (b"b", b"2")], lies={"offset_deltas": [0, 2]}).encoded()),
    ("offset deltas repeat", Batch([(b"a", b"1"), (b"b", b"2")], lies={"offset_deltas": [0, 0]}).encoded()),
    ("record length too long", Batch(lies={"records": varint(500) + record(0, 0, b"k", b"v")[1:]}).encoded()),
    ("record length negative", Batch(lies={"records": varint(-5) + record(0, 0, b"k", b"v")[1:]}).encoded()),
    ("key length beyond record", Batch(lies={"records": varint(10) + b"\0\0\0" + varint(90) + b"abcdefgh"}).encoded()),
    ("bytes after the records", Batch(lies={"records": record(0, 0, b"k", b"v") + b"\0\0\0"}).encoded()),
    ("control batch", Batch(attributes=0x20).encoded()),
    ("transactional without a transaction", Batch(attributes=0x10).encoded()),
    ("unknown codec", Batch(codec=5).encoded()),
    ("unknown attribute bits", Batch(attributes=0x100).encoded()),
    ("gzip that is none", Batch(codec=1, lies={"payload": b"not gzip at all"}).encoded()),
    ("gzip cut off", Batch(codec=1, lies={"payload": gzip.compress(record(0, 0, b"k", b"v" * 99))[:-9]}).encoded()),
    ("zstd that is none", Batch(codec=4, lies={"payload": b"not zstd at all"}).encoded()),
    ("lz4 that is none", Batch(codec=3, lies={"payload": b"not lz4 at all"}).encoded()),
    ("snappy that is none", Batch(codec=2, lies={"payload": b"\xff\xff\xff\xff\xff\xff"}).encoded()),
    ("base offset not 0", Batch(base_offset=77).encoded()),
    ("leader epoch of its own", Batch(leader_epoch=9).encoded()),
    ("max timestamp that lies", Batch(lies={"max_timestamp": T0 + 5}).encoded()),
)


@scenario
def broken_batches(s: Session) -> None:
    s.create("produce-broken", len(BROKEN) + 1)
    for number, (step, data) in enumerate(BROKEN):
        s.produce(step, "produce-broken", data, partition=number)
    s.produce("and a good one", "produce-broken", Batch(), partition=len(BROKEN))
    s.ask("ends", "ListOffsets", 7, **latest("produce-broken", len(BROKEN) + 1))


@scenario
def zstd_before_its_time(s: Session) -> None:
    s.create("produce-zstd")
    s.produce("v6", "produce-zstd", Batch(codec=4), 6)
    s.produce("v7", "produce-zstd", Batch(codec=4), 7)


@scenario
def compressed(s: Session) -> None:
    s.create("produce-gzip")
    s.produce("gzip", "produce-gzip", Batch([(b"k%d" % n, b"v" * 50) for n in range(10)], codec=1))
    s.produce("gzip, count too high", "produce-gzip", Batch(codec=1, lies={"records_count": 2, "last_offset_delta": 1}))
    deltas = {"offset_deltas": [1, 0]}
    s.produce("gzip, out of order", "produce-gzip", Batch([(b"a", b"1"), (b"b", b"2")], codec=1, lies=deltas))
    trailing = {"records": record(0, 0, b"k", b"v") + b"\0\0\0"}
    s.produce("gzip, bytes after the records", "produce-gzip", Batch(codec=1, lies=trailing))


@scenario
def keyless_into_compacted(s: Session) -> None:
    s.create("produce-compacted", 1, {"cleanup.policy": "compact"})
    s.produce("with keys", "produce-compacted", Batch([(b"a", b"1"), (b"b", None)]))
    s.produce("one without", "produce-compacted", Batch([(b"a", b"1"), (None, b"2"), (b"c", b"3")]))
    s.produce("two without", "produce-compacted", Batch([(None, b"1"), (None, b"2")]))
    s.produce("without, gzip", "produce-compacted", Batch([(None, b"1")], codec=1))
    s.produce("without, v7", "produce-compacted", Batch([(None, b"1")]), 7)
    s.produce("empty key", "produce-compacted", Batch([(b"", b"1")]))


@scenario
def timestamps(s: Session) -> None:
    now = int(time.time() * 1000)
    hour = 3_600_000
    bounds = {"message.timestamp.before.max.ms": str(hour), "message.timestamp.after.max.ms": str(hour)}
    s.create("produce-bounds", 1, bounds)
    s.produce("now", "produce-bounds", Batch(timestamps=[now]))
    s.produce("too old", "produce-bounds", Batch(timestamps=[now - 2 * hour]))
    s.produce("too new", "produce-bounds", Batch(timestamps=[now + 2 * hour]))
    pairs = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    s.produce("two of three too old", "produce-bounds", Batch(pairs, [now, now - 2 * hour, now - 3 * hour]))
    s.create("produce-free")
    s.produce("no timestamp", "produce-free", Batch(timestamps=[-1]))
    s.produce("old", "produce-free", Batch(timestamps=[1]))
    s.produce("a day ahead by default", "produce-free", Batch(timestamps=[now + 25 * hour]))
    s.create("produce-append-time", 1, LOG_APPEND_TIME)
    s.produce("append time", "produce-append-time", Batch())
    s.produce("append time, far future", "produce-append-time", Batch(timestamps=[now + 999 * hour]))
    s.produce("append time, gzip", "produce-append-time", Batch(codec=1))
    s.ask("as stored", "Fetch", 11, **fetched("produce-append-time"))


@scenario
def recompressed(s: Session) -> None:
    """The topic's compression.type decides what is stored, whatever the producer sent."""
    for number, (name, codec) in enumerate((("gzip", 0), ("uncompressed", 1), ("zstd", 1), ("producer", 1))):
        topic = f"produce-as-{name}"
        s.create(topic, 1, {"compression.type": name})
        s.produce(f"{number} to {name}", topic, Batch([(b"k%d" % n, b"v" * 50) for n in range(5)], codec=codec))
        s.ask(f"{number} stored in {name}", "Fetch", 11, **fetched(topic))


@scenario
def idempotent(s: Session) -> None:
    s.create("produce-idempotent")
    producer = s.producer_id()

    def write(step: str, sequence: int, count: int = 1, epoch: int = 0, producer_id: int = producer) -> None:
        pairs = [(b"k", b"v")] * count
        batch = Batch(pairs, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        s.produce(step, "produce-idempotent", batch)

    write("first", 0, 3)
    write("again: the same answer, nothing written", 0, 3)
    write("next", 3, 2)
    write("the first once more", 0, 3)
    write("part of the first", 0, 2)
    write("a gap", 7)
    write("behind the end", 4)
    for number in range(5):
        write(f"filling {number}", 5 + number)
    write("older than the last five", 0, 3)
    write("new epoch not at 0", 10, epoch=1)
    write("new epoch at 0", 0, epoch=1)
    write("the old epoch", 10)
    write("epoch without a sequence", -1, epoch=1)
    write("sequence without a producer", 0, producer_id=-1, epoch=-1)
    other = s.producer_id()
    write("an unknown producer not at 0", 5, producer_id=other)
    write("and on", 6, producer_id=other)
    write("a producer id never given", 0, producer_id=987_654)
    s.ask("end", "ListOffsets", 7, **latest("produce-idempotent"))


@scenario
def idempotent_sequence_wraps(s: Session) -> None:
    s.create("produce-wraps")
    producer = s.producer_id()
    top = 2**31 - 1
    for step, sequence, count in (("near the top", top - 1, 1), ("over it", top, 2), ("after it", 1, 1)):
        pairs = [(b"k", b"v")] * count
        s.produce(step, "produce-wraps", Batch(pairs, producer_id=producer, producer_epoch=0, base_sequence=sequence))


@scenario
def to_an_internal_topic(s: Session) -> None:
    """No client writes to the topic in which groups keep their offsets."""
    s.coordinator("makes-offsets-topic")
    s.until_led("__consumer_offsets", 5)
    s.produce("refused", "__consumer_offsets", Batch())


def latest(topic: str, partitions: int = 1) -> dict[str, Any]:
    """The fields of a ListOffsets for the ends of a topic's partitions."""
    rows = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": rows}]}


def fetched(topic: str) -> dict[str, Any]:
    """The fields of a Fetch of partition 0 from its start."""
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {"max_wait_ms": 100, "min_bytes": 1, "topics": [{"topic": topic, "partitions": [row]}]}


def hung_up(s: Session) -> str:
    """Whether the broker closes the connection by itself; dials anew."""
    from tests.scenarios.versions import closed

    return closed(s)
