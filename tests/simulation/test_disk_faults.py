"""Bad disks of the simulation: that Python's and C's calls meet them, and that a broker's end by one is seen.

Also of `kbroker._fast.files.system_calls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from tests.simulation.bad_disks import BadDisks, Wrong
from tests.simulation.disk import Disk
from tests.simulation.loop import Process
from tests.simulation.playing import play
from tests.simulation.runner import kind_of, play_seed
from tests.simulation.surroundings import surroundings
from tests.simulation.workers import Workers
from tests.simulation.world import Scale, ViolationError, World
from tests.storage.batches import append, batch, open_log

FILE = "log"


@contextlib.contextmanager
def put(folder: Path, wrong: Wrong) -> Iterator[Disk]:
    disk = Disk()
    disk.bad = BadDisks(random.Random(1))
    patches = disk.patches()
    for each in patches:
        each.start()
    try:
        disk.bad.put(str(folder), wrong)
        yield disk
    finally:
        disk.bad.put(str(folder), None)
        for each in reversed(patches):
            each.stop()


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_a_disk_fails_below_its_directory_alone(tmp_path: Path) -> None:
    """Faults that nobody meets would test nothing, and those that a neighbour meets would not be the broker's."""
    bad, good = tmp_path / "bad", tmp_path / "bad-not"
    for each in (bad, good):
        each.mkdir()
    fds = [opened(each / FILE) for each in (bad, good)]
    with put(bad, Wrong(write_error=errno.EIO, read_error=errno.EIO, sync_error=errno.EIO)):
        for call in (
            lambda fd: SYSTEM_FILES.pwrite(fd, b"x", 0),
            lambda fd: SYSTEM_FILES.pread(fd, 1, 0),
            lambda fd: SYSTEM_FILES.pread_into(fd, bytearray(1), 0),
            lambda fd: SYSTEM_FILES.ftruncate(fd, 1),
            SYSTEM_FILES.fdatasync,
        ):
            call(fds[1])
            with pytest.raises(OSError, match="Input/output"):
                call(fds[0])
        for change in (FileSystem.mkdir, FileSystem.unlink, FileSystem.list_directory):
            with pytest.raises(OSError, match="Input/output"):
                change(SYSTEM_FILES, str(bad / "x"))
    SYSTEM_FILES.pwrite(fds[0], b"x", 0)
    for fd in fds:
        os.close(fd)


def test_short_writes_are_finished(tmp_path: Path) -> None:
    """A batch of which a part was written could be taken for the whole, or be there twice."""
    with put(tmp_path, Wrong(short_writes=1.0)):
        log = open_log(tmp_path / "t-0")
        for number in range(20):
            append(log, batch([b"%d" % number * 100]))
        assert log.log_end_offset == 20
    path = tmp_path / "t-0" / "00000000000000000000.log"
    assert path.stat().st_size == log.local.segments.active.size


def test_a_full_disk_takes_what_there_is_room_for(tmp_path: Path) -> None:
    """Nothing would show what becomes of a write that is cut off."""
    with put(tmp_path, Wrong(room=10)):
        assert os.statvfs(tmp_path).f_bavail == 0
    target = opened(tmp_path / FILE)
    with put(tmp_path, Wrong(room=10)):
        with pytest.raises(OSError, match="No space"):
            SYSTEM_FILES.pwrite(target, b"x" * 20, 0)
        assert os.fstat(target).st_size == 10
    os.close(target)


def test_what_a_failed_fsync_did_not_write_is_lost(tmp_path: Path) -> None:
    """A broker that goes on after one could lose what it acknowledged, and no history would show it."""
    source = tmp_path / "source"
    source.mkdir()
    fd = opened(source / FILE)
    os.write(fd, b"synced")
    sizes = set()
    with put(source, Wrong()) as disk:
        os.fsync(fd)
        os.write(fd, b"unsynced")
        assert disk.bad is not None
        disk.bad.put(str(source), Wrong(sync_error=errno.EIO, loses=True))
        with pytest.raises(OSError, match="Input/output"):
            os.fsync(fd)
        doomed = dict(disk._doomed)
        for seed in range(30):
            disk._doomed = dict(doomed)
            disk.after_kill(source, tmp_path / str(seed), random.Random(seed))
            left = (tmp_path / str(seed) / FILE).read_bytes()
            assert left.startswith(b"synced")
            sizes.add(len(left))
    assert len(b"synced") in sizes
    os.close(fd)


def test_a_broker_that_halts_without_a_reason_is_seen() -> None:
    """Brokers could end by themselves in histories without a fault, and nobody would know."""

    class Halting(World):
        async def start(self, node: int) -> None:
            await super().start(node)
            self.loop.call_later(0.01, self.brokers[node].node.halt, "no reason")

    with pytest.raises(ViolationError, match="halts"):
        play(3, Scale(crashes=0.0), Halting)


def test_a_broker_with_a_bad_disk_is_played_again_alike() -> None:
    """A failure could not be played again."""
    seed = next(each for each in range(1, 1000) if takes_part(each))
    assert play_seed(seed) == play_seed(seed)


def takes_part(seed: int) -> bool:
    kind, scale = kind_of(seed)
    if kind is Workers:
        return False  # It holds sockets of this machine.
    world = kind(seed, Path("none"), scale)
    world.loop.close()
    return world.disks.take_part


def test_a_broker_may_be_gone_before_anybody_watches_for_its_end(tmp_path: Path) -> None:
    """A machine that loses its power just as a broker has started ended the history with a failure of its own."""
    world = World(1, tmp_path, Scale())
    manager = SimpleNamespace(drop_failed=list, get_or_create_log=None)
    node = SimpleNamespace(stopping=asyncio.Event(), failed=False)
    started: Any = SimpleNamespace(node=node, log_manager=manager)

    async def history() -> None:
        world.processes[1] = Process("broker-1")
        world.disks.watch(1, started)
        del world.processes[1]
        node.stopping.set()
        await asyncio.sleep(1.0)

    with surroundings(world.loop):
        world.loop.run_until_complete(history())
    world.loop.close()
    assert not world.loop.failures
