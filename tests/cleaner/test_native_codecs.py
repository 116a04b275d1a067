"""Compaction of compressed batches in C against the way batch by batch through Python."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.clean.clean import END, SPECIAL, Compaction
from kbroker._fast.clean.offset_map import OffsetMap
from kbroker._fast.records.batch_info import CorruptBatchError, InvalidRecordsError
from kbroker._fast.records.record_batch import iterate_batches, seal
from kbroker.records.batch import iterate_records
from kbroker.records.codec_libraries import native_codecs_loaded
from kbroker.records.compression import Codec, compress
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import Pair, clean, cleaner, config, pairs_batch
from tests.records.native import without_native_codecs
from tests.storage.batches import START_MS, append, open_log

KEYS = st.sampled_from([b"a", b"b", b"c", b"d" * 40, b"e"])
LONG = {b"long": b"long" * 4000, b"longer": bytes(400_000)}
VALUES = st.one_of(st.none(), st.binary(max_size=60), st.sampled_from(sorted(LONG)))
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
        st.sampled_from([Codec.LZ4, Codec.ZSTD, Codec.LZ4, Codec.ZSTD, *Codec]),
        st.sampled_from([-1, -1, 1, 2]),
    ),
    min_size=2,
    max_size=25,
)

native_codecs_loaded()


def filled(directory: Path, batches: list[tuple[list[Pair], Codec, int]]) -> UnifiedLog:
    log = open_log(directory, config(internal_segment_bytes=3_000_000, max_message_bytes=8 << 20))
    sequences = {1: 0, 2: 0}
    for at, (pairs, codec, producer) in enumerate(batches):
        sequence = sequences.get(producer, -1)
        epoch = 0 if producer > 0 else -1
        batch = pairs_batch(
            [(key, LONG.get(value or b"", value)) for key, value in pairs],
            codec=codec,
            producer_id=producer,
            epoch=epoch,
            sequence=sequence,
            timestamp=START_MS + at * 10,
        )
        append(log, batch)
        if producer > 0:
            sequences[producer] += len(pairs)
    log.roll()
    return log


def stored(log: UnifiedLog) -> list[object]:
    """What every batch says, but for the sizes of what was packed anew, and its records."""
    found: list[object] = []
    for segment in log.local.segments:
        data = Path(segment.path).read_bytes()[: segment.size]
        for info in iterate_batches(data):
            header = (info.base_offset, info.last_offset, info.attributes, info.records_count, info.producer_id)
            times = (info.base_timestamp, info.max_timestamp, info.base_sequence, info.producer_epoch)
            found.append((segment.base_offset, header, times, list(iterate_records(data, info))))
    return found


@settings(max_examples=40, deadline=None)
@given(BATCHES, st.integers(0, 3))
def test_both_ways_keep_the_same(batches: list[tuple[list[Pair], Codec, int]], later_days: int) -> None:
    """Records of compressed topics would be lost, or deleted ones come back, only because a library is there."""
    with tempfile.TemporaryDirectory() as folder:
        logs = []
        for name in ("native-0", "python-0"):
            log = filled(Path(folder, name), batches)
            for day in (0, later_days):
                now_ms = START_MS + 1000 + day * 86_400_000
                if name == "native-0":
                    clean(log, now_ms=now_ms, worker=cleaner(buffer_bytes=4096))
                else:
                    with without_native_codecs():
                        clean(log, now_ms=now_ms, worker=cleaner(buffer_bytes=4096))
            logs.append(stored(log))
            log.close()
        assert logs[0] == logs[1]


def packed(values: list[bytes], codec: Codec) -> bytearray:
    data = bytearray()
    for at, value in enumerate(values):
        batch = pairs_batch([(b"k%d" % at, value), (b"same", value)], codec=codec)
        batch[:8] = (2 * at).to_bytes(8, "big")
        data += batch
    return data


def run(data: bytearray) -> tuple[int, int, list[tuple[bytes | None, bytes | None]]]:
    work = Compaction(OffsetMap(24_000, 1.0))
    work.start_clean(START_MS, 1000, 1 << 40, [])
    assert work.index(data, 0, len(data), 0) == (len(data), END)
    work.start_segment(0, 4096, 1 << 20)
    position, stop = work.clean(data, 0, len(data))
    out = bytes(work.written())
    return position, stop, [(r.key, r.value) for info in iterate_batches(out) for r in iterate_records(out, info)]


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_payloads_of_many_sizes_share_the_room(codec: Codec) -> None:
    """A batch whose payload does not fit behind the others' would overwrite them."""
    sizes = [10, 700_000, 400_000, 300_000, 5, 3_000_000, 20, 900_000, 1_048_576, 1, 2_500_000]
    values = [bytes([at]) * size for at, size in enumerate(sizes)]
    data = packed(values, codec)
    expected: list[tuple[bytes | None, bytes | None]] = [(b"k%d" % at, value) for at, value in enumerate(values)]
    assert run(data) == (len(data), END, [*expected, (b"same", values[-1])])


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("way", ["cut payload", "bad record", "bad checksum"])
def test_a_damaged_batch_stops_the_clean(codec: Codec, way: str) -> None:
    """Damage on the disk would get a new, valid checksum, or memory of others be read."""
    good = pairs_batch([(b"a", b"1" * 50)], codec=codec)
    payload = b"".join(bytes(good[61:]) for _ in range(1))
    if way == "cut payload":
        bad = bytearray(good[:61]) + payload[:-5]
        seal(bad, codec)
    elif way == "bad record":
        bad = bytearray(good[:61]) + compress(codec, b"\x30\x00\x00\x00\xfe\xff")
        seal(bad, codec)
    else:
        bad = bytearray(good)
        bad[-1] ^= 1
    work = Compaction(OffsetMap(24_000, 1.0))
    work.start_clean(START_MS, 1000, 1 << 40, [])
    if way == "cut payload":
        # The caller's way through Python finds the words.
        assert work.index(good + bad, 0, len(good) + len(bad), 0) == (len(good), SPECIAL)
        return
    with pytest.raises(CorruptBatchError if way == "bad checksum" else InvalidRecordsError):
        work.index(good + bad, 0, len(good) + len(bad), 0)
