"""Segments that Apache Kafka wrote for its own producer and for librdkafka, read record by record."""

from __future__ import annotations

import base64
import json
import pathlib

import pytest

from kbroker._fast.records.record_batch import iterate_batches, stamp, validate, validate_crc
from kbroker._fast.records.record_stream import walk_decompressed
from kbroker.records.batch import Headers, Record, RecordBatchBuilder, iterate_records
from kbroker.records.compression import Codec, iter_decompress
from kbroker.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction,
    parse_control_key,
    read_end_transaction,
)

VECTORS = pathlib.Path(__file__).parent / "vectors"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
JAVA = json.loads((VECTORS / "java.json").read_text())
LIBRDKAFKA = json.loads((VECTORS / "librdkafka.json").read_text())

Content = tuple[bytes | None, bytes | None, Headers]


def java_lines() -> list[Content]:
    """The console producer's input; NULL stood for null."""
    lines: list[Content] = []
    for index in range(40):
        headers: Headers = (("trace", str(index).encode()), ("kind", b"t")) if index % 3 else ()
        key = f"key-{index % 7}".encode() if index % 4 else None
        value = f"value {index} {'abc' * (index * 5)}".encode() if index % 9 else None
        lines.append((key, value, headers))
    return lines


def librdkafka_records() -> list[tuple[int, Content]]:
    records: list[tuple[int, Content]] = []
    for index in range(60):
        headers: Headers = (("trace", str(index).encode()), ("null", None), ("trace", b"")) if index % 3 else ()
        key = None if index % 4 == 0 else f"key-{index % 7}".encode()
        value = None if index % 9 == 0 else f"value {index} {'abc' * (index * 3)}".encode()
        records.append((1_700_000_000_000 + index * 10 - (index % 5) * 100, (key, value, headers)))
    return records


def read_segment(segment: bytes, codec: int) -> list[Record]:
    """Every record, after every check that the broker makes."""
    records: list[Record] = []
    for info in iterate_batches(segment):
        validate_crc(segment, info)
        assert info.compression == codec
        batch = bytearray(segment[info.position : info.position + info.size_in_bytes])
        # The walk wants a batch as a producer sends it; what the leader stamped does not matter to it.
        judged = validate(batch)
        if codec:
            walk_decompressed(judged, iter_decompress(codec, memoryview(batch)[61:]))
        assert judged.walked
        found = list(iterate_records(segment, info))
        assert [record.offset for record in found] == list(range(info.base_offset, info.last_offset + 1))
        assert judged.max_record_timestamp == info.max_timestamp == max(record.timestamp for record in found)
        assert judged.keyless_count == sum(record.key is None for record in found)
        records += found
    return records


@pytest.mark.parametrize("codec", CODECS)
def test_what_java_wrote(codec: str) -> None:
    """A partition directory taken over from Kafka would not read back what Java's producer sent."""
    records: list[Record] = []
    for partition in JAVA[codec].values():
        records += read_segment(base64.b64decode(partition), CODECS.index(codec))
    contents = [(record.key, record.value, record.headers) for record in records]
    assert sorted(contents, key=repr) == sorted(java_lines(), key=repr)


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_wrote(codec: str) -> None:
    """The same for librdkafka, whose frames differ from Java's."""
    records = read_segment(base64.b64decode(LIBRDKAFKA[codec]), CODECS.index(codec))
    assert [(record.timestamp, tuple(record[2:])) for record in records] == librdkafka_records()


def test_transactions() -> None:
    """Consumers with read_committed would see aborted records, or never see committed ones."""
    segment = base64.b64decode(LIBRDKAFKA["txn"])
    infos = list(iterate_batches(segment))
    assert [(info.is_transactional, info.is_control) for info in infos] == [(True, False), (True, True)] * 2
    markers = [read_end_transaction(segment, info) for info in infos if info.is_control]
    assert markers == [EndTransactionMarker(ControlType.COMMIT, 0), EndTransactionMarker(ControlType.ABORT, 0)]
    keys = [next(iterate_records(segment, info)).key for info in infos if info.is_control]
    assert [parse_control_key(key) for key in keys] == [ControlType.COMMIT, ControlType.ABORT]


def test_a_marker_of_ours_is_kafkas_to_the_byte() -> None:
    """Kafka could not take over a partition with our transactions."""
    segment = base64.b64decode(LIBRDKAFKA["txn"])
    info = list(iterate_batches(segment))[1]
    theirs = segment[info.position : info.position + info.size_in_bytes]
    ours = build_end_transaction(ControlType.COMMIT, 0, info.producer_id, info.producer_epoch, info.max_timestamp)
    stamp(ours, 0, info.base_offset, info.partition_leader_epoch)
    assert bytes(ours) == theirs


def test_an_uncompressed_batch_of_ours_is_javas_to_the_byte() -> None:
    """The builder would write something that only we read."""
    segment = base64.b64decode(JAVA["none"]["0"])
    for info in iterate_batches(segment):
        builder = RecordBatchBuilder(
            info.base_offset,
            Codec.NONE,
            info.producer_id,
            info.producer_epoch,
            info.base_sequence,
            partition_leader_epoch=info.partition_leader_epoch,
        )
        for record in iterate_records(segment, info):
            builder.append(record.key, record.value, record.timestamp, record.headers)
        assert bytes(builder.build()) == segment[info.position : info.position + info.size_in_bytes]
