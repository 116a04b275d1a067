"""The codecs: what other programs write is read, ours is what they can read, and nothing expands without bound."""

from __future__ import annotations

import gzip
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.records.compression import (
    CHUNK_BYTES,
    Codec,
    CompressionError,
    DecompressionLimitError,
    codec_of,
    compress,
    compress_chunks,
    decompress,
    iter_decompress,
)

MEGABYTE = 1 << 20
TEXT = b"".join(b"record %d of many, much like the others\n" % index for index in range(5000))
CODECS = list(Codec)
REAL_CODECS = CODECS[1:]


@settings(max_examples=60)
@given(st.sampled_from(CODECS), st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 2000))
def test_round_trip(codec: Codec, chunks: list[bytes], repeat: int) -> None:
    """Recompressed records would come back changed."""
    payload = [chunk * repeat for chunk in chunks]
    assert decompress(codec, compress_chunks(codec, payload)) == b"".join(payload)


@pytest.mark.parametrize("codec", CODECS)
def test_chunks_are_small(codec: Codec) -> None:
    """Memory would grow with what a client sends."""
    data = compress(codec, TEXT * 10)
    if codec:
        assert max(map(len, iter_decompress(codec, data))) <= CHUNK_BYTES
    assert b"".join(map(bytes, iter_decompress(codec, memoryview(data)))) == TEXT * 10


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("level", [1, 6, 9])
def test_levels(codec: Codec, level: int) -> None:
    """compression.*.level would make a topic's batches unreadable."""
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def raw_snappy(payload: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(payload))


def xerial(payload: bytes, block_bytes: int) -> bytes:
    out = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    for start in range(0, len(payload), block_bytes):
        block = raw_snappy(payload[start : start + block_bytes])
        out += len(block).to_bytes(4, "big") + block
    return out


FOREIGN = {
    "gzip of several members": (Codec.GZIP, gzip.compress(TEXT[:50_000]) + gzip.compress(TEXT[50_000:])),
    "gzip with a file name": (Codec.GZIP, b"\x1f\x8b\x08\x08\0\0\0\0\0\xffname\x00" + gzip.compress(TEXT)[10:]),
    "raw snappy": (Codec.SNAPPY, raw_snappy(TEXT)),
    "xerial snappy in small blocks": (Codec.SNAPPY, xerial(TEXT, 1000)),
    "xerial snappy in one block": (Codec.SNAPPY, xerial(TEXT, 1 << 20)),
    "xerial snappy written twice": (Codec.SNAPPY, xerial(TEXT[:70_000], 32768) + xerial(TEXT[70_000:], 32768)),
    "lz4 with size and checksums": (
        Codec.LZ4,
        lz4.frame.compress(TEXT, block_linked=False, content_checksum=True, block_checksum=True, store_size=True),
    ),
    "lz4 without size": (Codec.LZ4, lz4.frame.compress(TEXT, block_linked=False, store_size=False)),
    "lz4 in blocks of 4 MB": (Codec.LZ4, lz4.frame.compress(TEXT, block_linked=False, block_size=7)),
    "zstd with size and checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
    "zstd without size": (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)),
    "zstd level 22": (Codec.ZSTD, zstandard.ZstdCompressor(level=22, write_content_size=False).compress(TEXT)),
    "zstd of several frames, one to skip": (
        Codec.ZSTD,
        zstandard.ZstdCompressor().compress(TEXT[:9])
        + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
        + zstandard.ZstdCompressor().compress(TEXT[9:]),
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_forms_that_clients_write(name: str) -> None:
    """A client whose library writes this form of the codec could not produce."""
    codec, data = FOREIGN[name]
    assert decompress(codec, data) == TEXT


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("payload", [b"x", b"hello " * 20, TEXT])
def test_every_cut_is_an_error(codec: Codec, payload: bytes) -> None:
    """A batch cut off would be stored, and consumers would fail on it."""
    data = compress(codec, payload)
    for size in sorted({0, 1, 3, 7, 12, 16, len(data) // 2, len(data) - 5, len(data) - 1}):
        if not 0 <= size < len(data):
            continue
        try:
            shorter = decompress(codec, data[:size])
        except CompressionError:
            continue
        # No frame at all and a framing that ends between blocks are whole streams of less: the walk misses the records.
        assert (codec is Codec.ZSTD and size == 0) or (codec is Codec.SNAPPY and size == 16)
        assert shorter == b""


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_bytes_behind_the_end_are_an_error(codec: Codec) -> None:
    """Consumers that are strict about it would fail on what we stored."""
    with pytest.raises(CompressionError):
        decompress(codec, compress(codec, TEXT) + b"xxxxxxxxx")


@settings(max_examples=200)
@given(st.sampled_from(REAL_CODECS), st.binary(max_size=100), st.integers(0, 10_000), st.integers(1, 255))
def test_damage_raises_nothing_else(codec: Codec, junk: bytes, at: int, change: int) -> None:
    """A damaged batch would close the connection or stop the broker instead of being refused."""
    data = bytearray(compress(codec, b"some text some text some text " * 30))
    data[at % len(data)] ^= change
    for attempt in (bytes(data), junk, bytes(data[:20]) + junk):
        try:
            decompress(codec, attempt, MEGABYTE)
        except CompressionError:
            pass


def test_linked_lz4_blocks_are_refused_as_by_kafka() -> None:
    """Java consumers could not read what we stored."""
    data = lz4.frame.compress(TEXT * 3, block_linked=True, block_size=4)
    with pytest.raises(CompressionError, match="BLOCK_INDEPENDENCE must be set"):
        decompress(Codec.LZ4, data)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codec(codec: int) -> None:
    """The batch would be taken for uncompressed."""
    with pytest.raises(CompressionError, match=f"Unknown compression type id: {codec}"):
        decompress(codec, b"abc")
    with pytest.raises(CompressionError, match="Unknown"):
        compress(codec, b"abc")


def test_names_of_compression_types() -> None:
    """compression.type would choose another codec."""
    assert [codec_of(name) for name in ("uncompressed", "none", "gzip", "snappy", "lz4", "zstd")] == [0, 0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="producer"):
        codec_of("producer")


ZEROS = bytes(8 * MEGABYTE)
BOMBS = {
    "gzip": (Codec.GZIP, gzip.compress(ZEROS) * 100),
    "snappy": (Codec.SNAPPY, xerial(ZEROS, 32768) * 2),
    "lz4": (Codec.LZ4, lz4.frame.compress(ZEROS, block_linked=False)),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor().compress(ZEROS) * 100),
    "empty gzip members": (Codec.GZIP, gzip.compress(b"") * 20_000),
    "empty zstd frames": (Codec.ZSTD, zstandard.ZstdCompressor().compress(b"") * 20_000),
    "snappy that lies about its size": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 100),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_cut_off(name: str) -> None:
    """A megabyte from a client would cost gigabytes of memory, or minutes."""
    codec, data = BOMBS[name]
    given_out = 0
    with pytest.raises(CompressionError):
        for chunk in iter_decompress(codec, data, 4 * MEGABYTE):
            given_out += len(chunk)
    assert given_out <= 4 * MEGABYTE


def test_exactly_the_limit_is_fine() -> None:
    """A batch at the limit would be refused."""
    data = compress(Codec.LZ4, ZEROS)
    room = 8 * MEGABYTE + MEGABYTE
    assert len(decompress(Codec.LZ4, data, room)) == len(ZEROS)
    with pytest.raises(DecompressionLimitError, match=f"limit of {len(ZEROS) - 1} bytes"):
        decompress(Codec.LZ4, data, len(ZEROS) - 1)


BOMB_PROGRAM = """
import gzip, resource, sys, zstandard, lz4.frame
from kbroker.records.compression import *
zeros = bytes(16 << 20)
piece = zstandard.ZstdCompressor().compressobj()
wide = zstandard.ZstdCompressionParameters(window_log=27)
wide = zstandard.ZstdCompressor(compression_params=wide).compressobj()
bombs = [
    (1, gzip.compress(zeros) * 64),
    (4, b"".join(piece.compress(zeros) for _ in range(64)) + piece.flush()),
    (4, b"".join(wide.compress(zeros) for _ in range(64)) + wide.flush()),
    (3, b"".join([(frame := lz4.frame.LZ4FrameCompressor(block_linked=False)).begin(),
                  *[frame.compress(zeros) for _ in range(8)], frame.flush()])),
]
for codec, data in bombs:
    list(iter_decompress(codec, compress(codec, b"warm up")))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, data in bombs:
    try:
        for chunk in iter_decompress(codec, data, 1 << 30):
            pass
    except DecompressionLimitError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_flat_under_a_gigabyte() -> None:
    """One request could push the broker out of memory."""
    done = subprocess.run([sys.executable, "-c", BOMB_PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 24 * 1024, "KiB of growth"
