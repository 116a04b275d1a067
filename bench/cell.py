"""What a cell is, what it is run with and what comes of it.  One cell is one row of `bench.cells.CELLS`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

#: Figures of one run of a cell, and `note`s.  Names say their units; `broker_cpu_s` is user and system time.
Result = dict[str, Any]

SMALL_RECORD_BYTES = 100
SMALL_BATCH_RECORDS = 150


class CellError(Exception):
    """A client gave up or a broker refused; the message is its own."""


class NotServedError(Exception):
    """The broker does not serve what the cell needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload.  Which fields count depends on `kind`, a key of `bench.runners.RUNNERS`.

    `apart` cells run on a pair of brokers of their own, because what they leave behind would spoil the others.
    `system_congestion` cells run on brokers, and with clients, that leave TCP congestion control to the system.
    `sweep` names the axis of a plot that this cell is a point of: `partitions` or `connections`.
    """

    name: str
    title: str
    kind: str
    connections: int = 1
    records: int = 1
    record_bytes: int = SMALL_RECORD_BYTES
    codec: str = "none"
    acks: int = 1
    fetch_bytes: int = 0
    partitions: int = 16
    cold: bool = False
    rate: int = 0
    depth: int = 1
    max_bytes: int = 1 << 30
    consumers: int = 0
    settings: tuple[str, ...] = ()
    records_per_s: int = 0
    gigabytes: float = 0.0
    apart: bool = False
    system_congestion: bool = False
    sweep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """How long and how a cell is run.  `around` is entered right around the client's run, nothing else."""

    seconds: float = 3.0
    warm_seconds: float = 1.0
    congestion: str = ""
    scale: float = 1.0
    around: Callable[[], AbstractContextManager[object]] = field(default=nullcontext)
