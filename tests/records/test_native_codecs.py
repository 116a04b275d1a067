"""The codecs by the C interfaces of their libraries and by Python: the same bytes, the same refusals.

Also of `kbroker._fast.records.native_codecs`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.records.compressed_walk import walk_compressed
from kbroker._fast.records.native_payloads import pack_bytes, unpack_bytes
from kbroker._fast.records.record_batch import InvalidRecordsError, read_header, seal
from kbroker._fast.records.record_stream import walk_decompressed
from kbroker.records.codec_libraries import native_codecs_loaded
from kbroker.records.compression import Codec, CompressionError, compress, decompress, iter_decompress
from tests.records import reference
from tests.records.native import without_native_codecs
from tests.records.strategies import damaged_payloads

NATIVE = [Codec.LZ4, Codec.ZSTD]
LIMIT = 1 << 30
DAMAGED_BLOCK = {
    f"CompressionError: zstd: zstd decompress error: {words}"
    for words in ("Data corruption detected", "Destination buffer is too small")
}
native_codecs_loaded()
TEXT = b"".join(b"record %d of many, much like the others\n" % index for index in range(5000))
LARGE = b"".join(bytes([at % 251]) * (at % 300) for at in range(12_000))


def outcome(codec: int, data: bytes, limit_bytes: int) -> bytes | str:
    try:
        return decompress(codec, data, limit_bytes)
    except CompressionError as error:
        return f"{type(error).__name__}: {error}"


def frames(payload: bytes) -> list[tuple[Codec, bytes]]:
    """The payload as all sorts of clients would write it."""
    writer = zstandard.ZstdCompressor(level=3)
    streamed = writer.compressobj()
    return [
        (Codec.LZ4, lz4.frame.compress(payload, block_linked=False)),
        (Codec.LZ4, lz4.frame.compress(payload, block_linked=False, content_checksum=True, block_checksum=True)),
        (Codec.LZ4, lz4.frame.compress(payload, block_linked=False, store_size=False, block_size=7)),
        (Codec.LZ4, lz4.frame.compress(payload, block_linked=True)),
        (Codec.ZSTD, writer.compress(payload)),
        (Codec.ZSTD, streamed.compress(payload) + streamed.flush()),
        (Codec.ZSTD, zstandard.ZstdCompressor(level=1, write_checksum=True).compress(payload)),
        (Codec.ZSTD, writer.compress(payload[: len(payload) // 2]) + writer.compress(payload[len(payload) // 2 :])),
    ]


def test_the_libraries_are_found() -> None:
    """Compressed batches would be judged and compacted at half the speed, and nobody would notice."""
    assert native_codecs_loaded() == {3, 4}


@pytest.mark.parametrize("payload", [b"", b"x", TEXT, LARGE, TEXT * 12], ids=["empty", "byte", "text", "large", "4 MB"])
def test_both_ways_read_the_same(payload: bytes) -> None:
    """A consumer would get other records than the producer sent."""
    for codec, data in frames(payload):
        taken = unpack_bytes(codec, data, LIMIT)
        assert taken is None or taken == payload
        with without_native_codecs():
            expected = outcome(codec, data, LIMIT)
        assert outcome(codec, data, LIMIT) == expected


@pytest.mark.parametrize("codec", NATIVE)
@settings(max_examples=80)
@given(st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 2000))
def test_what_c_packs_python_reads(codec: Codec, chunks: list[bytes], repeat: int) -> None:
    """Compaction would write batches that no client can read."""
    payload = b"".join(chunk * repeat for chunk in chunks)
    packed = pack_bytes(codec, payload)
    assert packed is not None
    assert unpack_bytes(codec, packed, LIMIT) == payload
    assert b"".join(map(bytes, iter_decompress(codec, packed))) == payload


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(frames(TEXT[:3000]) + frames(LARGE[:200_000])), st.data())
def test_damage_has_the_same_words(framed: tuple[Codec, bytes], data: st.DataObject) -> None:
    """Damaged data would be taken for good, or be refused with another error than documented.

    Which of zstd's two words for a damaged block it uses was seen to differ between two readings of the same bytes.
    """
    codec, whole = framed
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))]) if data.draw(st.booleans()) else bytes(damaged)
    limit_bytes = data.draw(st.sampled_from([LIMIT, 100_000, 70_000, 1000, 1]))
    with without_native_codecs():
        expected = outcome(codec, cut, limit_bytes)
    found = outcome(codec, cut, limit_bytes)
    assert found == expected or {found, expected} <= DAMAGED_BLOCK


def test_a_block_longer_than_its_window_is_refused_both_ways() -> None:
    """A batch would be stored here that a consumer's library, which reads it as a stream, refuses."""
    frame = bytes.fromhex("28b52ffd0100000000003af70000010000")
    with pytest.raises(CompressionError) as refused:
        decompress(Codec.ZSTD, frame, LIMIT)
    assert f"CompressionError: {refused.value}" in DAMAGED_BLOCK


def test_a_block_that_expands_beyond_its_bound_is_refused_both_ways() -> None:
    """A damaged batch would be stored here that a consumer's library, which reads it as a stream, refuses."""
    streamed = zstandard.ZstdCompressor(level=3).compressobj()
    frame = bytearray(streamed.compress(LARGE[:200_000]) + streamed.flush())
    accepted = [at for at in range(800, 900) if isinstance(outcome(Codec.ZSTD, changed(frame, at), LIMIT), bytes)]
    with without_native_codecs():
        assert accepted == [
            at for at in range(800, 900) if isinstance(outcome(Codec.ZSTD, changed(frame, at), LIMIT), bytes)
        ]


@pytest.mark.parametrize("content", [b"", b"a", TEXT[:100], LARGE[:70_000]], ids=len)
@pytest.mark.parametrize("native", [True, False], ids=["c", "python"])
@pytest.mark.parametrize("chunks", [True, False], ids=["chunks", "whole"])
def test_a_frame_of_another_size_than_it_says_is_refused(content: bytes, native: bool, chunks: bool) -> None:
    """librdkafka asks for the size and refuses what is longer or shorter: the batch would stop its consumers."""

    def read(frame: bytes) -> bytes:
        with contextlib.nullcontext() if native else without_native_codecs():
            if chunks:
                return b"".join(bytes(chunk) for chunk in iter_decompress(Codec.ZSTD, frame, LIMIT))
            return decompress(Codec.ZSTD, frame, LIMIT)

    frame = bytearray(zstandard.ZstdCompressor().compress(content))
    assert read(bytes(frame)) == content
    for change in (-1, 1):
        other = frame.copy()
        other[5] = (frame[5] + change) % 256
        with pytest.raises(CompressionError):
            read(bytes(other))


@pytest.mark.parametrize("header", ["2000", "0000"], ids=["size", "no size"])
def test_a_compressed_block_without_content_is_refused_both_ways(header: str) -> None:
    """The library reads it as an empty block in some ways and refuses it in others, as RFC 8878 has it."""
    frame = bytes.fromhex("28b52ffd" + header + "050000")
    refused = "CompressionError: zstd: a compressed block without content"
    assert outcome(Codec.ZSTD, frame, LIMIT) == refused
    with without_native_codecs():
        assert outcome(Codec.ZSTD, frame, LIMIT) == refused


def test_a_frame_that_says_nothing_of_what_it_holds_is_refused_both_ways() -> None:
    """A size of 0 above one byte of content: the way through Python took it as empty."""
    frame = bytes.fromhex("28b52ffd200009000078")
    assert outcome(Codec.ZSTD, frame, LIMIT) != b""
    with without_native_codecs():
        assert outcome(Codec.ZSTD, frame, LIMIT) != b""


def changed(frame: bytearray, at: int) -> bytes:
    return bytes(frame[:at]) + bytes([frame[at] ^ 12]) + bytes(frame[at + 1 :])


def test_a_frame_cut_off_does_not_spoil_the_next_one() -> None:
    """After one damaged batch all good ones of the codec would be refused, or go the slow way for ever."""
    sized = lz4.frame.compress(TEXT, block_linked=False, store_size=True)
    assert unpack_bytes(Codec.LZ4, sized[:-20], LIMIT) is None
    assert unpack_bytes(Codec.LZ4, compress(Codec.LZ4, TEXT), LIMIT) == TEXT


@pytest.mark.parametrize("codec", NATIVE)
def test_a_bomb_takes_no_memory(codec: Codec) -> None:
    """A few kilobytes from a client would fill the broker's memory."""
    bomb = compress(codec, bytes(1 << 28))
    program = (
        "import resource, sys; from kbroker._fast.records.native_payloads import unpack_bytes;"
        "from kbroker.records.codec_libraries import native_codecs_loaded as load; load();"
        "data = sys.stdin.buffer.read(); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        f"assert unpack_bytes({int(codec)}, data, 8 << 20) is None;"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=bomb, capture_output=True, check=True)
    assert int(done.stdout) < 20_000


def batch_of(codec: Codec, payload: bytes, count: int) -> bytearray:
    plain = reference.encode_batch(payload, count, base_timestamp=1_700_000_000_000)
    batch = bytearray(plain[:61]) + compress(codec, payload)
    seal(batch, codec)
    return batch


@pytest.mark.parametrize("codec", NATIVE)
@settings(max_examples=300)
@given(damaged_payloads(), st.integers(0, 3))
def test_records_are_judged_alike(codec: Codec, damaged: tuple[bytes, int], more: int) -> None:
    """A malformed record in a compressed batch would be stored and stop every consumer of the partition."""
    payload, count = damaged
    payload += bytes([6, 0, 0, 2 * count, 1, 1, 0]) * (more == 3)
    batch = batch_of(codec, payload, count)
    quick, slow = read_header(batch), read_header(batch)
    taken = walk_compressed(quick, batch, LIMIT)
    try:
        walk_decompressed(slow, iter_decompress(codec, memoryview(batch)[61:]))
    except InvalidRecordsError:
        assert not taken
        assert not quick.walked
    else:
        assert taken
        assert quick.walked
        names = ("keyless_count", "max_record_timestamp", "min_record_timestamp", "offset_of_max_timestamp")
        assert [getattr(quick, name) for name in names] == [getattr(slow, name) for name in names]


@pytest.mark.parametrize("codec", NATIVE)
@pytest.mark.parametrize("size", [100, 40_000, 131_000, 700_000])
def test_a_long_batch_is_walked_in_pieces(codec: Codec, size: int) -> None:
    """Records that lie across two pieces would be refused."""
    record = reference.encode_record(reference.ReferenceRecord(0, 0, b"key", bytes(range(256)) * (size // 256), ()))
    batch = batch_of(codec, record, 1)
    info = read_header(batch)
    assert walk_compressed(info, batch, LIMIT)
    assert not walk_compressed(read_header(batch), batch, size // 2)
    assert info.keyless_count == 0


@pytest.mark.parametrize("size", [100, 700_000])
def test_a_batch_whose_frame_is_of_another_size_than_it_says_is_not_walked(size: int) -> None:
    """It would be stored, in one piece or in several, and librdkafka would refuse it."""
    record = reference.encode_record(reference.ReferenceRecord(0, 0, b"key", bytes(range(256)) * (size // 256), ()))
    frame = bytearray(compress(Codec.ZSTD, record))
    for change in (0, 1):
        frame[5] += change
        batch = bytes(reference.encode_batch(bytes(frame), 1, attributes=Codec.ZSTD))
        assert walk_compressed(read_header(batch), batch, LIMIT) == (change == 0)


def test_a_batch_longer_than_its_buffer_is_refused() -> None:
    """Memory behind a request would be read."""
    batch = batch_of(Codec.LZ4, TEXT, 1)
    with pytest.raises(ValueError, match="in a buffer of"):
        walk_compressed(read_header(batch), batch[:-1], LIMIT)
