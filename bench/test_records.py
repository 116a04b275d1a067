"""What the record batch code costs, the slow reference beside it: `pytest bench/test_records.py`.

`records_per_s` and `bytes_per_s` in the extra info are taken from the fastest round.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import crc32c as crc32c_package
import pytest

from kbroker._fast.base.crc32c import crc32c, crc32c_portable
from kbroker._fast.log.segment_scan import scan_segment
from kbroker._fast.records.compressed_walk import walk_compressed
from kbroker._fast.records.native_payloads import pack_bytes, unpack_bytes
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, read_header, stamp, validate
from kbroker._fast.records.record_codec import decode_records
from kbroker._fast.records.record_stream import walk_decompressed
from kbroker._fast.records.schema_ids import unknown_schemas
from kbroker.config import LogConfig
from kbroker.records.batch import Record, RecordBatchBuilder, iterate_records
from kbroker.records.codec_libraries import native_codecs_loaded
from kbroker.records.compression import Codec, compress, iter_decompress
from kbroker.storage.log.log_validator import assign_offsets, validate_and_analyze
from tests.records import reference
from tests.records.reference import encode_batch, simple_records

NOW_MS = 1_700_000_000_000
RECORD_BYTES = 90


def batch_of(count: int, codec: Codec = Codec.NONE) -> bytearray:
    """`count` records of some 100 bytes."""
    words = [b"%x" % (index * 2654435761 % 2**32) for index in range(64)]
    values: list[bytes | None] = [
        b" ".join(words[(index + shift) % 64] for shift in range(12))[:RECORD_BYTES] for index in range(count)
    ]
    payload = compress(
        codec, simple_records(values, keys=[None] * count, deltas=[index % 50 for index in range(count)])
    )
    return encode_batch(
        payload, count, attributes=codec, base_timestamp=NOW_MS, max_timestamp=NOW_MS + min(count - 1, 49)
    )


def measure(benchmark: Any, call: Callable[[], object], *, records: int = 0, size: int = 0) -> None:
    benchmark(call)
    fastest = benchmark.stats.stats.min
    if records:
        benchmark.extra_info["records_per_s"] = f"{records / fastest:,.0f}"
    if size:
        benchmark.extra_info["bytes_per_s"] = f"{size / fastest:,.0f}"


@pytest.mark.parametrize("size", [100, 16_384, 1 << 20])
@pytest.mark.parametrize(
    "function", [crc32c, crc32c_package.crc32c, crc32c_portable], ids=["kbroker", "package", "tables"]
)
@pytest.mark.benchmark(group="crc32c")
def test_crc32c(benchmark: Any, function: Callable[[bytes], int], size: int) -> None:
    data = os.urandom(size)
    measure(benchmark, lambda: function(data), size=size)


@pytest.mark.parametrize("count", [1, 150, 10_000, 200_000])
@pytest.mark.benchmark(group="walk")
def test_validate(benchmark: Any, count: int) -> None:
    batch = memoryview(batch_of(count))
    measure(benchmark, lambda: validate(batch), records=count, size=len(batch))


@pytest.mark.parametrize("count", [150, 10_000])
@pytest.mark.benchmark(group="walk")
def test_validate_reference(benchmark: Any, count: int) -> None:
    batch = bytes(batch_of(count))

    def slowly() -> None:
        header = reference.decode_header(batch)
        assert crc32c_package.crc32c(batch[21:]) == header.crc
        reference.walk(batch[61:], header.records_count)

    measure(benchmark, slowly, records=count, size=len(batch))


@pytest.mark.benchmark(group="walk")
def test_walk_in_chunks(benchmark: Any) -> None:
    batch = batch_of(10_000)
    payload = memoryview(batch)[61:]
    chunks = [payload[at : at + 65_536] for at in range(0, len(payload), 65_536)]
    measure(benchmark, lambda: walk_decompressed(read_header(batch), chunks), records=10_000, size=len(batch))


@pytest.mark.parametrize("count", [1, 150, 10_000])
@pytest.mark.benchmark(group="append")
def test_validate_and_assign_offsets(benchmark: Any, count: int) -> None:
    """The produce path's whole use of this code."""
    batch = memoryview(batch_of(count))
    config = LogConfig()

    def judge() -> None:
        assign_offsets(validate_and_analyze(batch, config, NOW_MS, topic_partition="t-0"), 0, 3)

    measure(benchmark, judge, records=count, size=len(batch))


@pytest.mark.parametrize("codec", list(Codec)[1:])
@pytest.mark.parametrize("count", [150, 10_000])
@pytest.mark.benchmark(group="append compressed")
def test_validate_compressed(benchmark: Any, codec: Codec, count: int) -> None:
    batch = memoryview(batch_of(count, codec))
    config = LogConfig()
    measure(benchmark, lambda: validate_and_analyze(batch, config, NOW_MS), records=count, size=len(batch_of(count)))


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("count", [150, 10_000])
@pytest.mark.benchmark(group="walk compressed")
def test_walk_compressed(benchmark: Any, codec: Codec, count: int) -> None:
    native_codecs_loaded()
    batch = memoryview(batch_of(count, codec))
    info = read_header(batch)
    measure(benchmark, lambda: walk_compressed(info, batch, 1 << 30), records=count, size=len(batch_of(count)))


@pytest.mark.benchmark(group="look for schemas")
def test_unknown_schemas(benchmark: Any) -> None:
    builder = RecordBatchBuilder()
    for _ in range(10_000):
        builder.append(b"key", b"\0\0\0\0\1" + bytes(95), 0)
    payload = memoryview(builder.build())[BATCH_OVERHEAD:]
    measure(
        benchmark,
        lambda: unknown_schemas(payload, {1}, keys=False, values=True, most=10),
        records=10_000,
        size=len(payload),
    )


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("way", ["C", "Python"])
@pytest.mark.benchmark(group="pack and unpack 17 KB")
def test_native_payloads(benchmark: Any, codec: Codec, way: str) -> None:
    native_codecs_loaded()
    payload = bytes(batch_of(150)[61:])

    def through_c() -> None:
        packed = pack_bytes(codec, payload)
        assert packed is not None
        unpack_bytes(codec, packed, 1 << 30)

    def through_python() -> None:
        b"".join(map(bytes, iter_decompress(codec, compress(codec, payload, 3))))

    measure(benchmark, through_c if way == "C" else through_python, size=len(payload))


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.benchmark(group="recompress")
def test_recompress(benchmark: Any, target: str) -> None:
    source = Codec.ZSTD if target != "zstd" else Codec.LZ4
    batch = memoryview(batch_of(5000, source))
    config = LogConfig(compression_type=target)
    measure(benchmark, lambda: validate_and_analyze(batch, config, NOW_MS), records=5000, size=len(batch_of(5000)))


@pytest.mark.parametrize("codec", list(Codec)[1:])
@pytest.mark.benchmark(group="decompress")
def test_decompress(benchmark: Any, codec: Codec) -> None:
    payload = bytes(batch_of(10_000)[61:])
    data = compress(codec, payload)

    def drain() -> None:
        for _chunk in iter_decompress(codec, data):
            pass

    measure(benchmark, drain, size=len(payload))


@pytest.mark.benchmark(group="header")
def test_read_header(benchmark: Any) -> None:
    batch = memoryview(batch_of(1))
    benchmark(read_header, batch)


@pytest.mark.benchmark(group="header")
def test_read_header_reference(benchmark: Any) -> None:
    batch = bytes(batch_of(1))
    benchmark(reference.decode_header, batch)


@pytest.mark.benchmark(group="header")
def test_stamp(benchmark: Any) -> None:
    batch = memoryview(batch_of(1))
    benchmark(stamp, batch, 0, 1, 1)


@pytest.mark.benchmark(group="objects")
def test_iterate_records(benchmark: Any) -> None:
    batch = batch_of(1000)
    measure(benchmark, lambda: sum(1 for _ in iterate_records(batch)), records=1000)


@pytest.mark.benchmark(group="objects")
def test_decode_records(benchmark: Any) -> None:
    batch = batch_of(1000)
    info = read_header(batch)
    measure(benchmark, lambda: decode_records(batch[61:], info, Record), records=1000)


@pytest.mark.benchmark(group="objects")
def test_iterate_records_reference(benchmark: Any) -> None:
    payload = bytes(batch_of(1000)[61:])
    measure(benchmark, lambda: reference.walk(payload, 1000), records=1000)


@pytest.mark.benchmark(group="objects")
def test_build(benchmark: Any) -> None:
    def build() -> None:
        builder = RecordBatchBuilder()
        for _ in range(100):
            builder.append(b"key", b"v" * RECORD_BYTES, NOW_MS)
        builder.build()

    measure(benchmark, build, records=100)


@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.benchmark(group="recovery")
def test_scan_segment(benchmark: Any, tmp_path: pathlib.Path, check_crc: bool) -> None:
    path = tmp_path / "segment"
    batch = batch_of(150)
    with path.open("wb") as file:
        for index in range(4000):
            stamp(batch, 0, index * 150, 0)
            file.write(batch)
    size = path.stat().st_size
    fd = os.open(path, os.O_RDONLY)
    try:
        measure(benchmark, lambda: scan_segment(fd, 0, size, check_crc=check_crc), size=size)
    finally:
        os.close(fd)
