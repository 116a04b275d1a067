"""What a row of the tables is, and the little that several of them break."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kbroker.config import LogConfig
from kbroker.metadata.image import PartitionImage
from kbroker.replication.partition import Partition
from kbroker.storage.log.unified_log import UnifiedLog
from tests.storage.batches import append, batch, open_log


class Row(NamedTuple):
    """A bug, the assertion that is to notice it (its module below kbroker/ and a part of its line), and what breaks the
    code or the state as the bug would."""

    bug: str
    module: str
    asserted: str
    broken: Callable[[Path, pytest.MonkeyPatch], object]


def log_of(directory: Path, count: int = 3, *, segment_bytes: int = 1 << 30) -> UnifiedLog:
    """A log with so many batches of two records, in the leader epochs 0, 1, …"""
    log = open_log(directory / "orders-2", LogConfig(segment_bytes=segment_bytes))
    for epoch in range(count):
        append(log, batch([b"one", b"two"]), leader_epoch=epoch)
    return log


def partition_of(directory: Path, *, leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> Partition:
    """A partition of this broker, 1, in leader epoch 5."""
    purgatory: Any = SimpleNamespace(mark=lambda _: None, ready=SimpleNamespace(put=lambda *_: None))
    changes: Any = SimpleNamespace(
        now=lambda: 0.0, is_alive=lambda _: True, is_eligible=lambda _: True, propose=lambda *_: None, max_lag=10.0
    )
    image = PartitionImage(0, leader, 5, (1, 2, 3), isr, 4)
    return Partition("orders", 0, bytes(16), log_of(directory), 1, image, purgatory, changes)


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)
