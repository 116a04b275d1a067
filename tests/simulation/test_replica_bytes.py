"""The judge of replicas' bytes: what it has to see."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from tests.simulation.records import encode_batch
from tests.simulation.replica_bytes import compare_logs


def log(*values: bytes, high: int, change: int | None = None) -> Any:
    parts = bytearray()
    for offset, value in enumerate(values):
        batch = bytearray(encode_batch([value], 0))
        struct.pack_into(">q", batch, 0, offset)
        parts += batch
    if change is not None:
        parts[change] ^= 1
    return SimpleNamespace(high_watermark=high, log_start_offset=0, read_bytes=lambda *_: bytes(parts))


def found(one: Any, other: Any) -> list[str]:
    said: list[str] = []
    compare_logs("t-0", {1: one, 2: other}, said.append)
    return said


def test_a_byte_that_differs_below_what_is_committed_is_seen() -> None:
    """A follower could stamp an epoch of its own, and no record would tell."""
    for change in (15, 40, -1):
        assert "has other bytes from" in found(log(b"a", b"b", high=2), log(b"a", b"b", high=2, change=change))[0]


def test_what_is_not_committed_may_differ() -> None:
    """Replicas that have not agreed yet would be called different."""
    assert not found(log(b"a", b"b", high=1), log(b"a", b"c", high=2))
    assert not found(log(b"a", b"b", high=2), log(b"a", high=1))
