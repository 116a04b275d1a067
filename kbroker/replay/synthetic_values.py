"""Values of a given size and compressibility, the same for the same seeds wherever they are made.

A value is a sequence of pieces of up to `PIECE_WORDS` words of 8 bytes.  A piece begins with incompressible words and
ends with words of one fixed text.  The share of incompressible words is the ratio, to which zstd, gzip, lz4 and snappy
compress a batch of such values approximately.  Where the share is not a whole number of words, the value's seed decides
whether it is rounded up or down, so that many small values have the right ratio on average.

The words are SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) counted from the
value's seed: no two values share bytes that a compressor could find, and all values of a batch are made in one go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIECE_WORDS = 64
BATCH_BYTES = 8 << 20
"""Values are made in batches of about this size, so that large values do not fill an executor's memory."""

_TEXT = np.frombuffer((b"kbroker synthetic value " * 22)[: PIECE_WORDS * 8], dtype="<u8")
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def make_values(sizes: NDArray[np.int64], seeds: NDArray[np.uint64], ratio: float) -> pa.Array:
    """Binary values of `sizes` bytes each, all together not over 2 GB, out of which `ratio` (0 to 1) stays."""
    if not len(sizes):
        return pa.array([], pa.binary())
    words = (sizes + 7) // 8
    data = _words(sizes, words, seeds, ratio).view(np.uint8)
    padding = words * 8 - sizes
    if padding.any():
        ends = np.cumsum(words * 8)
        kept = np.ones(len(data), dtype=bool)
        for short in range(1, 8):
            kept[(ends - short)[padding >= short]] = False
        data = data[kept]
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def fill_batch(batch: pa.RecordBatch, seed_column: str, ratio: float) -> Iterator[pa.RecordBatch]:
    """The same rows without `seed_column`, in batches of about `BATCH_BYTES`, with a value where only a size was."""
    sizes = _numpy(pc.fill_null(batch.column("value_size"), 0)).astype(np.int64)
    wanted = pc.and_(pc.is_null(batch.column("value")), pc.is_valid(batch.column("value_size")))
    sizes = np.where(_numpy(wanted), sizes, 0)
    seeds = _numpy(batch.column(seed_column)).view(np.uint64)
    rest = batch.drop_columns([seed_column])
    index = rest.schema.get_field_index("value")
    for start, end in _slices(sizes):
        part = rest.slice(start, end - start)
        made = make_values(sizes[start:end], seeds[start:end], ratio)
        mask = wanted.slice(start, end - start)
        value = made if mask.true_count == len(part) else pc.if_else(mask, made, part.column("value"))
        yield part.set_column(index, part.schema.field(index), value)


def _words(
    sizes: NDArray[np.int64], words: NDArray[np.int64], seeds: NDArray[np.uint64], ratio: float
) -> NDArray[np.uint64]:
    starts = np.cumsum(words) - words
    place = np.arange(int(words.sum()), dtype=np.int64) - np.repeat(starts, words)
    in_piece = place % PIECE_WORDS
    piece = np.minimum(np.repeat(sizes, words) - (place - in_piece) * 8, PIECE_WORDS * 8) / 8
    # Mixed, so that seeds may be near each other.  Its fraction rounds the number of words that do not compress.
    own = np.repeat(_mixed(seeds), words)
    fraction = (own >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    random = in_piece < np.floor(piece * ratio + fraction).astype(np.int64)
    result = _TEXT[in_piece]
    chosen = np.flatnonzero(random)
    result[chosen] = _mixed(own[chosen] + place[chosen].astype(np.uint64) * _GOLDEN)
    return result


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state + _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def _slices(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Parts of rows of at least one row, and not much over `BATCH_BYTES` unless one row is."""
    ends = np.cumsum(sizes)
    start, done = 0, 0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(ends, done + BATCH_BYTES, side="right")))
        yield start, end
        start, done = end, int(ends[end - 1])


def _numpy(array: pa.Array) -> NDArray[np.int64]:
    values: NDArray[np.int64] = array.to_numpy(zero_copy_only=False)
    return values
