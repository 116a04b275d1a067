"""A move between log directories that is stopped at every one of its calls to the file system.

Whatever was appended, before the move and between its steps, is there once and in order after the restart, in one
directory; the restart goes on with the move and brings it to its end.  Run with `-s` to see what each crash leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import KafkaStorageError
from kbroker.replication.alter_log_dirs import DirectoryMoves
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.log_values import AppendOrigin
from tests.storage.batches import append, batch, marker
from tests.storage.faulty_files import OF_THE_MACHINE, CrashedError, Fault, FaultyFiles
from tests.storage.moves import TP, Inline, Storage, records_of

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SLOW = pytest.mark.slow
CONFIGS = {"segment.bytes": "1048576", "internal.segment.bytes": "600", "index.interval.bytes": "64"}
LATE = 3
QUICK = {(Fault.KEEP, LATE), (Fault.FORGET, LATE), (Fault.REORDER, LATE)}


@pytest.fixture
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kbroker-move-crash-", dir=MEMORY))
    yield path
    shutil.rmtree(path)


def opened(root: Path, files: FileSystem) -> Storage:
    return Storage(root, files, configs=CONFIGS, executor=Inline())


async def prepare(root: Path) -> None:
    """A log of a few segments, durable; with producers and transactions, and a start above its first segment's."""
    storage = opened(root, FaultyFiles())
    storage.lead()
    log = storage.log
    for at in range(4):
        append(log, batch([b"x" * 60 + b"%d" % at]))
        append(log, batch([b"p%d" % at], producer_id=5, epoch=0, sequence=at))
        append(log, batch([b"t%d" % at], producer_id=6, epoch=0, sequence=at, transactional=True))
        append(log, marker(6, 0, abort=at % 2 == 0), origin=AppendOrigin.COORDINATOR)
    log.delete_records_before(1)
    log.flush()
    for saved in storage.logs.checkpoints.save_log_starts():
        saved.result()
    storage.logs.release()


class ArmedFiles(FaultyFiles):
    """Counts, and fails, only while it is armed."""

    armed = False

    def _count(self, what: str) -> bool:
        return super()._count(what) if self.armed or self.crashed else False


class Busy(DirectoryMoves):
    """Appends a batch before each of the first steps."""

    __slots__ = ("left",)

    left: int

    async def _carry_out(self, future: Any, steps: Any, throttle: Any) -> None:
        if self.left:
            self.left -= 1
            append(future.log, batch([b"meanwhile"]))
        await super()._carry_out(future, steps, throttle)


async def crash(root: Path, files: ArmedFiles, late: int) -> tuple[list[Any], int]:
    """Moves the log until the fault: the records that were durable before, and the log end that appends came to."""
    storage = opened(root, files)
    durable = records_of(storage.log)
    storage.lead()
    moves = Busy(storage.config, storage.logs, storage.replicas, asyncio.get_running_loop())
    moves.left = late
    log = storage.log
    files.armed = True
    tasks = []
    try:
        # The directory of the copy is made before the answer.
        with contextlib.suppress(CrashedError, KafkaStorageError):
            moves.alter(TP, storage.b)
        while moves.tasks:
            tasks = list(moves.tasks)
            await asyncio.wait(tasks)
        moves._pool().shutdown(wait=True)
    finally:
        files.armed = False
        for directory in storage.logs.directories:
            directory.release()
    for task in tasks:
        assert task.exception() is None or isinstance(task.exception(), CrashedError)
    return durable, log.log_end_offset


def names(root: Path) -> list[str]:
    return sorted(f"{name}/{entry}" for name in "ab" for entry in os.listdir(root / name) if entry.startswith("orders"))


async def check(root: Path, durable: list[Any], end: int) -> None:
    """Reopens: one usable log with all that was durable; a move that was on its way comes to its end."""
    storage = opened(root, FaultyFiles())
    log = storage.log
    log.check_invariants()
    found = records_of(log)
    assert found[: len(durable)] == durable
    assert log.log_end_offset >= end
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    assert log.log_start_offset == 1
    producer = log.producer_state.producers.get(5)
    assert producer is not None
    assert producer.last_sequence == 3
    moves = storage.lead()
    on_the_way = bool(storage.logs.plans.found)
    moves.resume_found()
    await storage.settled()
    if on_the_way:
        assert log.parent == storage.b
    assert records_of(log) == found
    append(log, batch([b"on"]))
    storage.clock.now += 100_000
    storage.logs.run_due()
    await moves.stop()
    storage.logs.shutdown()
    again = opened(root, FaultyFiles())
    assert records_of(again.log)[:-1] == found
    again.logs.run_due()
    again.logs.release()
    assert [name for name in names(root) if not name.endswith("-stray")] == [f"{log.parent[-1]}/orders-0"]


def total_calls(scratch: Path, late: int) -> int:
    asyncio.run(prepare(scratch / "before"))
    root = scratch / "whole"
    shutil.copytree(scratch / "before", root)
    files = ArmedFiles()
    asyncio.run(crash(root, files, late))
    assert names(root)[-1] == "b/orders-0"
    return files.calls


@pytest.mark.parametrize(
    ("fault", "late"),
    [
        pytest.param(fault, late, marks=() if (fault, late) in QUICK else SLOW, id=f"{fault.value}-{late}")
        for fault in Fault
        for late in (0, LATE)
    ],
)
def test_every_call(scratch: Path, fault: Fault, late: int) -> None:
    """A crash or an error of the disk during a move would cost records, or leave a partition that cannot be opened."""
    calls = total_calls(scratch, late)
    assert calls > 60
    states: dict[tuple[str, ...], int] = {}
    for crash_at in range(1, calls + 1):
        root = scratch / f"{fault.value}-{late}-{crash_at}"
        shutil.copytree(scratch / "before", root)
        files = ArmedFiles(crash_at, fault)
        durable, end = asyncio.run(crash(root, files, late))
        assert files.calls >= crash_at
        files.after_crash()
        state = tuple(re.sub(r"-0\.[0-9a-f]+", "-0", name) for name in names(root))
        states[state] = states.get(state, 0) + 1
        asyncio.run(check(root, durable, durable[-1].offset + 1 if fault in OF_THE_MACHINE else end))
        shutil.rmtree(root)
    for state, count in states.items():
        print(f"{fault.value}, {late} appends: {count} crash points leave {', '.join(state)}")
    if fault is not Fault.ERROR:
        assert any("-future" in " ".join(state) and "a/orders-0" not in state for state in states), states
