"""A log directory full of keyed records, written straight into segment files: quicker than through appends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from kbroker._fast.records.record_batch import seal
from kbroker.records.batch import HEADER
from kbroker.records.compression import Codec, compress

NOW_MS = 1_700_000_000_000
RECORD_BYTES = 115
BATCH_RECORDS = 140
VALUE_BYTES = RECORD_BYTES - 28


def batches(records: int, keys: int, codec: int, seed: int = 1) -> Iterator[tuple[int, bytearray]]:
    """(base offset, batch) of records of RECORD_BYTES with 16-byte keys, each key about as often as the others."""
    draw = random.Random(seed)
    words = [b"%08x" % draw.getrandbits(32) for _ in range(64)]
    values = [b" ".join(draw.choice(words) for _ in range(12))[:VALUE_BYTES] for _ in range(64)]
    # length, attributes, timestamp delta | offset delta, key length, key | value length, value, no headers
    tails = [_varint(len(value)) + value + b"\x00" for value in values]
    heads = [_varint(at) + b"\x20" for at in range(BATCH_RECORDS)]
    prefixes = {size: _varint(size) + b"\x00\x00" for size in range(100, 130)}
    offset = 0
    while offset < records:
        count = min(BATCH_RECORDS, records - offset)
        parts = []
        for at in range(count):
            head, tail = heads[at], tails[at & 63]
            parts += [prefixes[2 + len(head) + 16 + len(tail)], head, b"%016d" % int(draw.random() * keys), tail]
        payload = b"".join(parts)
        batch = bytearray(HEADER.pack(offset, 0, 0, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count))
        batch += compress(codec, payload) if codec else payload
        seal(batch, codec)
        yield offset, batch
        offset += count


def _varint(value: int) -> bytes:
    raw = value << 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def write_log(directory: Path, records: int, keys: int, segment_bytes: int, codec: int = Codec.NONE) -> int:
    """Segment files without indexes (a load makes those); says how many bytes they hold."""
    directory.mkdir(parents=True)
    size = total = 0
    file = None
    for base, batch in batches(records, keys, codec):
        if file is None or size + len(batch) > segment_bytes:
            if file is not None:
                file.close()
            file = (directory / f"{base:020d}.log").open("wb", buffering=1 << 20)
            size = 0
        file.write(batch)
        size += len(batch)
        total += len(batch)
    if file is not None:
        file.close()
    return total
