"""Message sets of the formats before record batches, sound and broken, and what a broker makes of each.

`answers` produces every case to every kind of topic, and reads back what was stored.  Kafka 3.9.1 with ZooKeeper and
the inter-broker protocol of 2.8 is the reference: with that one it stores what `message.format.version` says.  Its
answers are on record in `vectors/message_sets.json` (`python -m tests.compat.message_sets` asks it again).
"""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kbroker._fast.records.record_batch import BatchInfo
from kbroker.records.batch import Record, RecordBatchBuilder
from kbroker.records.compression import Codec, compress
from kbroker.records.legacy import iterate_stored_records
from tests.broker.client import Client, fetch_values, produce_values
from tests.records.stored import encode_messages, message_bytes, stored_batches

RECORD = Path(__file__).parent / "vectors" / "message_sets.json"
# Kafka's settings under which it knows the older formats.
SETTINGS = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "2.8"}
T0 = 1_700_000_000_000
CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4}
FORMAT, TIME, CODEC = "message.format.version", "message.timestamp.type", "compression.type"

TOPICS: dict[str, dict[str, str]] = {
    "batches": {},
    "compact": {"cleanup.policy": "compact"},
    "append": {TIME: "LogAppendTime"},
    "gzip": {CODEC: "gzip"},
    "plain": {CODEC: "uncompressed"},
    "small": {"max.message.bytes": "300"},
    "v1": {FORMAT: "0.10.2"},
    "v1-append": {FORMAT: "0.10.2", TIME: "LogAppendTime"},
    "v1-gzip": {FORMAT: "0.10.2", CODEC: "gzip"},
    "v1-compact": {FORMAT: "0.10.2", "cleanup.policy": "compact"},
    "v0": {FORMAT: "0.9.0"},
    "v0-lz4": {FORMAT: "0.9.0", CODEC: "lz4"},
    "v0-append": {FORMAT: "0.9.0", TIME: "LogAppendTime"},
}

PLAIN = [Record(0, T0, b"k1", b"v1"), Record(1, T0 + 5, b"k2", None), Record(2, T0 + 3, b"", b"x" * 60)]
KEYLESS = [Record(0, T0, b"k1", b"v1"), Record(1, T0 + 1, None, b"v2")]
TIMELESS = [Record(0, -1, b"k", b"v"), Record(1, -1, b"k", b"w")]


def _wrapper(inner: bytes, magic: int, *, offset: int = 2, codec: int = Codec.GZIP, flags: int = 0) -> bytes:
    return message_bytes(offset, magic, codec | flags, T0 + 5, None, compress(codec, inner))


def _renumbered(records: list[Record], *offsets: int) -> list[Record]:
    return [record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)]


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def _sized(data: bytes, size: int) -> bytes:
    return data[:8] + struct.pack(">i", size) + data[12:]


def _batch(records: list[Record], codec: int = Codec.NONE, **values: Any) -> bytes:
    builder = RecordBatchBuilder(0, codec, **values)
    for record in records:
        builder.append(record.key, record.value, record.timestamp, record.headers)
    return bytes(builder.build())


def cases() -> Iterator[tuple[str, bytes]]:
    """(name, bytes of the records field)."""
    for magic in (0, 1):
        for name, codec in CODECS.items():
            yield f"v{magic} {name}", encode_messages(PLAIN, magic, codec)
            yield f"v{magic} {name} keyless", encode_messages(KEYLESS, magic, codec)
        one = encode_messages(PLAIN[:1], magic, 0)
        inner = encode_messages(PLAIN, magic, 0)
        yield f"v{magic} one", one
        yield f"v{magic} odd offsets", encode_messages(_renumbered(PLAIN, 7, 3, 3), magic, 0)
        yield f"v{magic} cut off", inner[:-1]
        yield f"v{magic} only a part", one[:-1]
        yield f"v{magic} header cut off", inner + one[:11]
        yield f"v{magic} up to its size", inner + one[:14]
        yield f"v{magic} crc", inner + _flipped(one, 13)
        yield f"v{magic} key flipped", inner + _flipped(one, len(one) - 8)
        yield f"v{magic} size 13", _sized(one, 13)
        yield f"v{magic} size 0", inner + _sized(one, 0)
        yield f"v{magic} size negative", _sized(one, -5)
        yield f"v{magic} size too large", _sized(one, 1 << 30)
        yield f"v{magic} two wrappers", encode_messages(PLAIN, magic, 1) * 2
        yield f"v{magic} wrapper behind a message", one + encode_messages(PLAIN, magic, 1)
        yield f"v{magic} message behind a wrapper", encode_messages(PLAIN, magic, 1) + one
        yield f"v{magic} nested", _wrapper(_wrapper(inner, magic), magic)
        yield f"v{magic} empty inside", _wrapper(b"", magic)
        yield f"v{magic} null inside", message_bytes(2, magic, Codec.GZIP, T0, None, None)
        yield f"v{magic} part inside", _wrapper(inner[:-1], magic, offset=1)
        yield f"v{magic} crc inside", _wrapper(one + _flipped(one, len(one) - 1), magic)
        yield f"v{magic} size inside", _wrapper(one + _sized(one, 3), magic)
        yield f"v{magic} overrun inside", _wrapper(one + _sized(one, 1 << 20), magic)
        yield f"v{magic} other magic inside", _wrapper(encode_messages(PLAIN, 1 - magic, 0), magic)
        yield (
            f"v{magic} numbered wrongly inside",
            _wrapper(encode_messages(_renumbered(PLAIN, 0, 0, 0), magic, 0), magic),
        )
        yield f"v{magic} wrapper at 0", _wrapper(inner, magic, offset=0)
        yield f"v{magic} wrapper too low", _wrapper(inner, magic, offset=1)
        yield f"v{magic} wrapper too high", _wrapper(inner, magic, offset=90)
        yield f"v{magic} zstd", message_bytes(2, magic, Codec.ZSTD, T0, None, compress(Codec.ZSTD, inner))
        yield f"v{magic} right lz4 checksum", message_bytes(2, magic, 3, T0, None, compress(Codec.LZ4, inner))
        yield f"v{magic} then batch", one + _batch(PLAIN)
    yield "v0 then v1", encode_messages(PLAIN, 0, 0) + encode_messages(PLAIN, 1, 0)
    yield "v1 then v0", encode_messages(PLAIN, 1, 0) + encode_messages(PLAIN, 0, 0)
    yield "v1 timeless", encode_messages(TIMELESS, 1, 0)
    yield "v1 timeless gzip", encode_messages(TIMELESS, 1, 1)
    yield "v1 long ago", encode_messages([Record(0, 5, b"k", b"v")], 1, 0)
    yield "v1 claims append time", encode_messages(PLAIN, 1, 0, T0)
    yield "v1 claims append time gzip", encode_messages(PLAIN, 1, 1, T0)
    yield "v1 wrapper claims append time", _wrapper(encode_messages(PLAIN, 1, 0), 1, flags=8)
    yield (
        "v1 wrapper with another time",
        message_bytes(2, 1, 1, T0 - 50, None, compress(1, encode_messages(PLAIN, 1, 0))),
    )
    yield "empty", b""
    yield "zeros", bytes(40)
    yield "magic 3", encode_messages(PLAIN[:1], 1, 0)[:16] + b"\x03" + encode_messages(PLAIN[:1], 1, 0)[17:]
    for name, codec in CODECS.items():
        yield f"batch {name}", _batch(PLAIN, codec)
    yield "batch with headers", _batch([Record(0, T0, b"k", b"v", (("h", b"x"),))])
    yield "two batches", _batch(PLAIN) * 2
    yield "batch then v1", _batch(PLAIN) + encode_messages(PLAIN, 1, 0)
    yield "batch numbered", struct.pack(">q", 5) + _batch(PLAIN)[8:]
    yield "batch crc", _flipped(_batch(PLAIN), 40)
    yield "idempotent batch", _batch(PLAIN, producer_id=4711, producer_epoch=0, base_sequence=0)


def answers(port: int, prefix: str = "") -> dict[str, Any]:
    """By topic and case: what a Produce v2 answers, and what is stored."""
    found: dict[str, Any] = {}
    with Client(port) as client:
        for topic, configs in TOPICS.items():
            client.create(prefix + topic, configs=configs)
            for name, data in cases():
                end = client.offset(prefix + topic)
                values = produce_values(prefix + topic, data, acks=1)
                answer = client.ask("Produce", 2, values).responses[0].partition_responses[0]
                row: dict[str, Any] = {"error_code": answer.error_code}
                if not answer.error_code:
                    row["offset"] = answer.base_offset - end if answer.base_offset >= 0 else answer.base_offset
                    row["time"] = answer.log_append_time_ms >= 0
                    row["stored"] = stored(client, prefix + topic, end)
                elif client.offset(prefix + topic) != end:
                    row["stored"] = stored(client, prefix + topic, end)
                found[f"{topic}: {name}"] = row
    return found


def fetched(client: Client, topic: str, offset: int, version: int = 10, **values: Any) -> bytes:
    """The bytes from an offset to the end of partition 0, or up to `partition_max_bytes`."""
    asked = fetch_values(topic, offset=offset, wait_ms=0, **values)
    answer = client.ask("Fetch", version, asked).responses[0].partitions[0]
    assert answer.error_code == 0, answer.error_code
    return bytes(answer.records or b"")


def stored(client: Client, topic: str, end: int) -> list[Any]:
    """What lies behind an offset."""
    return [described(batch, info, end) for batch, info in stored_batches(fetched(client, topic, end))]


def described(batch: bytes, info: BatchInfo, base: int) -> dict[str, Any]:
    """A batch or message, by offsets from `base` on: two that are alike differ in compressed bytes and times alone."""
    append_time = bool(info.timestamp_type)
    records = [
        [r.offset - base, "now" if append_time else r.timestamp, _text(r.key), _text(r.value), len(r.headers)]
        for r in iterate_stored_records(batch)
    ]
    row: dict[str, Any] = {
        "magic": info.magic,
        "codec": info.compression,
        "append_time": append_time,
        "max_timestamp": "now" if append_time else info.max_timestamp,
        "last_offset": info.last_offset - base,
        "records": records,
    }
    if not info.compression and not append_time:
        # All but what the place in the log makes of it.
        body = batch[21:] if info.magic >= 2 else batch[8:]
        row["sha1"] = hashlib.sha1(body, usedforsecurity=False).hexdigest()[:12]
    return row


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.hex() if len(data) < 30 else f"{len(data)} bytes"


def kafka_answers(ask: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """What `ask` finds out of Kafka 3.9.1."""
    from tests.compat.old_kafka import OldKafka, zookeeper

    with tempfile.TemporaryDirectory() as folder, zookeeper(Path(folder) / "zk") as address:
        kafka = OldKafka(Path(folder) / "kafka", SETTINGS, zookeeper=address)
        kafka.start()
        try:
            found: dict[str, Any] = json.loads(json.dumps(ask(kafka.port)))
        finally:
            kafka.stop()
    return found


def write_record(path: Path, found: dict[str, Any]) -> None:
    """One line for each answer."""
    path.parent.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write_record(RECORD, kafka_answers(answers))
