"""What the small extensions cost, the slow reference beside each: `pytest bench/test_small_parts.py`."""

from __future__ import annotations

import bisect
import os
import pathlib
import struct
from typing import Any

import pytest

from kbroker._fast.base.varint import encode_varint, read_varint, varint_size
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.files.file_space import allocate_ahead
from kbroker._fast.log.batch_seek import find_batch, walk_batches
from kbroker._fast.log.index import OffsetTable
from kbroker._fast.log.producer_entry import ProducerEntry
from kbroker._fast.log.producer_table import ProducerTable
from kbroker._fast.log.replica_fields import unsettled
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.records.batch_span import batch_span
from kbroker._fast.records.record_batch import read_header
from kbroker._fast.records.record_columns import RecordColumns
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.replication.fetcher import _Followed
from kbroker.schemas import message
from tests.protocol.reference import Reference
from tests.records import reference
from tests.replication.bare_replica import replica
from tests.storage.batches import batch

BATCHES = 40
NUMBERS = [1, 63, 64, 8_191, 8_192, 1_048_576, -1, -65, 2**31 - 1] * 20


def _segment() -> bytes:
    """Batches of one record each, with offsets 0, 1, 2, …"""
    parts = []
    for offset in range(BATCHES):
        one = batch([b"x" * 100])
        struct.pack_into(">q", one, 0, offset)
        parts.append(bytes(one))
    return b"".join(parts)


@pytest.mark.benchmark(group="varint: 180 numbers")
def test_varints(benchmark: Any) -> None:
    data = [encode_varint(number) for number in NUMBERS]

    def run() -> int:
        return sum(read_varint(one)[1] + varint_size(number) for one, number in zip(data, NUMBERS, strict=True))

    benchmark(run)


@pytest.mark.benchmark(group="varint: 180 numbers")
def test_varints_reference(benchmark: Any) -> None:
    data = [encode_varint(number) for number in NUMBERS]

    def run() -> int:
        return sum(reference.decode_varint(one, 0, 32)[1] + len(reference.encode_varint(n)) for one, n in pairs)

    pairs = list(zip(data, NUMBERS, strict=True))
    benchmark(run)


@pytest.mark.benchmark(group="batch_seek: 40 headers")
def test_walk_batches(benchmark: Any) -> None:
    data = _segment()
    assert walk_batches(data, 0, len(data))[0] == len(data)
    benchmark(walk_batches, data, 0, len(data))


@pytest.mark.benchmark(group="batch_seek: 40 headers")
def test_find_batch(benchmark: Any) -> None:
    data = _segment()
    benchmark(find_batch, data, BATCHES - 1, 0, len(data))


@pytest.mark.benchmark(group="batch_seek: 40 headers")
def test_walk_batches_reference(benchmark: Any) -> None:
    data = _segment()

    def run() -> int:
        position = 0
        while position < len(data):
            position += 12 + reference.decode_header(data[position : position + 61]).batch_length
        return position

    assert run() == len(data)
    benchmark(run)


@pytest.mark.benchmark(group="batch_info, batch_span: one header")
def test_batch_info(benchmark: Any) -> None:
    one = batch([b"x" * 100] * 10)
    benchmark(lambda: read_header(one).last_offset)


@pytest.mark.benchmark(group="batch_info, batch_span: one header")
def test_batch_span(benchmark: Any) -> None:
    one = batch([b"x" * 100] * 10)
    benchmark(batch_span, one)


@pytest.mark.benchmark(group="batch_info, batch_span: one header")
def test_batch_info_reference(benchmark: Any) -> None:
    one = bytes(batch([b"x" * 100] * 10))

    def run() -> int:
        header = reference.decode_header(one)
        return header.base_offset + header.last_offset_delta

    benchmark(run)


@pytest.mark.benchmark(group="index: a lookup among 250,000 entries")
def test_index(benchmark: Any) -> None:
    table = OffsetTable(0)
    for at in range(250_000):
        table.append(at * 40 + 39, at * 4096)
    benchmark(table.position_for, 7_654_321)


@pytest.mark.benchmark(group="index: a lookup among 250,000 entries")
def test_index_reference(benchmark: Any) -> None:
    offsets = [at * 40 + 39 for at in range(250_000)]
    positions = [at * 4096 for at in range(250_000)]
    benchmark(lambda: positions[bisect.bisect_right(offsets, 7_654_321) - 1])


@pytest.mark.benchmark(group="producer_table: the next batch of one of 1,000 producers")
def test_producer_table(benchmark: Any) -> None:
    table = ProducerTable()
    for producer in range(1_000):
        entry = ProducerEntry(producer)
        entry.add(0, 0, producer, 0, 0)
        table.put(entry)
    info = read_header(batch([b"x"], producer_id=500, epoch=0, sequence=1))
    assert table.is_next(info)
    benchmark(table.is_next, info)


@pytest.mark.benchmark(group="producer_table: the next batch of one of 1,000 producers")
def test_producer_table_reference(benchmark: Any) -> None:
    table = dict.fromkeys(range(1000), (0, 0))
    info = read_header(batch([b"x"], producer_id=500, epoch=0, sequence=1))

    def run() -> bool:
        found = table.get(info.producer_id)
        return found is not None and found == (info.producer_epoch, info.base_sequence - 1)

    assert run()
    benchmark(run)


@pytest.mark.benchmark(group="structs: one produce request")
def test_make_and_read_a_struct(benchmark: Any) -> None:
    produce = message("ProduceRequest")
    benchmark(lambda: produce(acks=-1, timeout_ms=30_000).timeout_ms)


@pytest.mark.benchmark(group="decoder: one Metadata request of 10 topics")
def test_decode(benchmark: Any) -> None:
    program, payload = _metadata_request()
    benchmark(program.decode, payload)


@pytest.mark.benchmark(group="decoder: one Metadata request of 10 topics")
def test_decode_reference(benchmark: Any) -> None:
    _, payload = _metadata_request()
    schema = message("MetadataRequest").schema
    benchmark(lambda: Reference(schema, 12, bytes(payload)).message())


def _metadata_request() -> tuple[Any, bytearray]:
    request = message("MetadataRequest")
    topics = [request.MetadataRequestTopic(name=f"topic-{number}") for number in range(10)]
    program = request.program(12)
    return program, bytearray(program.encode(request(topics=topics)))


@pytest.mark.benchmark(group="columns: 1,000 records")
def test_record_columns(benchmark: Any) -> None:
    frame = bytes(batch([b"x" * 100] * 1_000))

    def run() -> int:
        columns = RecordColumns(0, 1 << 40, lambda codec, data: bytes(data))
        columns.begin(frame)
        count = 0
        while True:
            full = columns.fill()
            count += columns.take()[0]
            if not full:
                return count

    assert run() == 1_000
    benchmark(run)


@pytest.mark.benchmark(group="columns: 1,000 records")
def test_record_columns_reference(benchmark: Any) -> None:
    frame = bytes(batch([b"x" * 100] * 1_000))

    def run() -> tuple[list[int], list[bytes | None]]:
        records = reference.walk(frame[61:], 1_000)
        return [record.offset_delta for record in records], [record.value for record in records]

    benchmark(run)


@pytest.mark.benchmark(group="files")
def test_file_region(benchmark: Any) -> None:
    """One per partition of a fetch answer."""
    benchmark(FileRegion, 3, 4096, 1 << 20)


@pytest.mark.benchmark(group="files")
def test_allocate_ahead(benchmark: Any, tmp_path: pathlib.Path) -> None:
    """16 MB of blocks for a segment that grows."""
    descriptor = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    position = iter(range(0, 1 << 40, 16 << 20))

    def run() -> None:
        allocate_ahead(descriptor, next(position), 16 << 20)

    benchmark.pedantic(run, rounds=20)
    os.close(descriptor)


@pytest.mark.benchmark(group="receive_buffer")
def test_trim_an_empty_pool(benchmark: Any) -> None:
    """What a connection that goes quiet costs at the least; the rest is in bench/test_network.py."""
    benchmark(BufferPool(131072, 64 << 20).trim)


@pytest.mark.benchmark(group="stored_header: one header of any format")
def test_stored_header(benchmark: Any) -> None:
    one = bytes(batch([b"x" * 100] * 10))
    assert read_stored_header(one).last_offset == 9
    benchmark(read_stored_header, one)


@pytest.mark.benchmark(group="stored_header: one header of any format")
def test_stored_header_reference(benchmark: Any) -> None:
    one = bytes(batch([b"x" * 100] * 10))
    benchmark(lambda: reference.decode_header(one).base_offset)


@pytest.mark.benchmark(group="replica_fields: 1,000 followed partitions where nothing has come")
def test_what_a_quiet_follower_looks_at(benchmark: Any) -> None:
    followed = {each: _Followed(replica(), False) for each in range(1_000)}
    for each in followed.values():
        each.asks(1 << 20, True)
    assert unsettled(followed, 1.0, 1 << 20, True) == []
    benchmark(unsettled, followed, 1.0, 1 << 20, True)


@pytest.mark.benchmark(group="replica_fields: 1,000 followed partitions where nothing has come")
def test_what_a_quiet_follower_looks_at_reference(benchmark: Any) -> None:
    followed = {each: _Followed(replica(), False) for each in range(1_000)}
    asked = {each: one.asks(1 << 20, True) for each, one in followed.items()}
    benchmark(lambda: [each for each, one in followed.items() if one.asks(1 << 20, True) != asked[each]])
