"""What connections send and the page cache lacks: read by threads, with what follows it, in the right order."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.files.page_cache import bring_in
from kbroker.network.cold_reads import AHEAD_BYTES, NEAR_BYTES, ColdReads
from tests.network.later import is_cold
from tests.network.served_connection import ECHO, FILE, answer, frame, running

MB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)


class Postponed(Executor):
    """An executor whose work is done when the test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.work.append(fn)
        return Future()


class Told:
    """What a `ColdReads` did, without a loop: it tells at once."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []
        self.executor = Postponed()
        self.reads = ColdReads(self, self.executor, lambda connection, region, error: self.errors.append(error))  # type: ignore[arg-type]

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)

    def read(self, *ranges: tuple[FileRegion, int, int]) -> None:
        self.reads.read(None, list(ranges))  # type: ignore[arg-type]

    def work(self) -> None:
        self.executor.work.pop(0)()


@contextmanager
def cold_file(size: int) -> Iterator[tuple[int, bytes]]:
    """A file out of the page cache that the kernel does not read ahead by itself."""
    with tempfile.TemporaryFile() as file:
        content = os.urandom(size)
        file.write(content)
        file.flush()
        drop(file.fileno())
        yield file.fileno(), content


def drop(fd: int) -> None:
    """Take a whole file out of the page cache; pages that the kernel is still at work with stay for a moment."""
    size = os.fstat(fd).st_size
    for _ in range(1000):
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        if not any(residency(fd, 0, size)):
            return
    pytest.skip("this file system does not drop pages")


def residency(fd: int, position: int, size: int) -> list[bool]:
    """Of each page whether it is in the page cache, asked of a mapping that is not touched, so that none is read."""
    begin = position // mmap.PAGESIZE * mmap.PAGESIZE
    size += position - begin
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    # Writable, as ctypes takes its address of no other; private, so nothing is written.
    with mmap.mmap(fd, size, mmap.MAP_PRIVATE, offset=begin) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        try:
            if LIBC.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages):
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del start
    return [bool(page & 1) for page in pages]


def resident(fd: int, position: int, size: int) -> bool:
    """Whether it is in the page cache, but for what the kernel has taken back since.

    Some machines look for pages that no processor touches, and take them, all the time.
    """
    pages = residency(fd, position, size)
    return sum(pages) > len(pages) * 0.9


def region(fd: int, position: int, size: int) -> FileRegion:
    return FileRegion(fd, position, size)


def test_a_range_that_was_brought_in_lies_in_the_page_cache() -> None:
    """The loop would wait for the disk on a range that it takes for read."""
    with cold_file(2 * MB) as (fd, _), open(os.devnull, "wb") as sink:
        assert bring_in(fd, 5, MB, sink.fileno()) == MB
        assert resident(fd, 0, MB) and not resident(fd, MB + MB // 2, mmap.PAGESIZE)
        assert bring_in(fd, MB, 2 * MB, sink.fileno()) == MB
        closed = os.dup(fd)
        os.close(closed)
        with pytest.raises(OSError):
            bring_in(closed, 0, MB, sink.fileno())


def test_what_is_queued_behind_a_range_is_brought_in_after_it() -> None:
    """An answer with sixteen partitions of old data would wait for the disk sixteen times in a row."""
    told = Told()
    with cold_file(MB) as (first, _), cold_file(3 * MB) as (second, _):
        told.read((region(first, 0, MB), 512, 100_000), (region(second, MB, MB), MB, MB))
        told.work()
        assert told.errors == [None]
        assert resident(first, 0, 100_512) and resident(second, MB, MB) and not resident(second, 0, mmap.PAGESIZE)


def test_a_reader_that_goes_on_finds_what_comes_next() -> None:
    """A consumer that catches up would wait for the disk at every fetch, and the disk for the consumer."""
    told = Told()
    with cold_file(16 * MB) as (fd, _):
        told.read((region(fd, 2 * MB, MB), 2 * MB, MB))
        told.work()
        assert not resident(fd, 3 * MB, mmap.PAGESIZE)
        drop(fd)
        told.read((region(fd, 3 * MB, MB), 3 * MB, MB))
        told.work()
        assert resident(fd, 3 * MB, MB + AHEAD_BYTES) and not resident(fd, 5 * MB + AHEAD_BYTES, mmap.PAGESIZE)
    with cold_file(16 * MB) as (fd, _):
        told.read((region(fd, 0, MB), 0, MB))
        told.work()
        assert resident(fd, 0, MB + AHEAD_BYTES)


def test_a_reader_that_jumps_costs_no_more_than_it_asks_for() -> None:
    """Look-ups of single records in old data would each read four megabytes that nobody wants."""
    told = Told()
    with cold_file(4 * MB + NEAR_BYTES) as (fd, _):
        for position in (3 * MB, MB, MB + NEAR_BYTES + 4096):
            told.read((region(fd, position, 4096), position, 4096))
            told.work()
            assert resident(fd, position, 4096) and not resident(fd, position + 8192, mmap.PAGESIZE)


def test_reading_ahead_makes_way_for_those_who_wait() -> None:
    """Readers of a slow disk would wait for what others may want later."""
    told = Told()
    with cold_file(8 * MB) as (first, _), cold_file(MB) as (second, _):
        told.read((region(first, 0, MB), 0, MB))
        told.read((region(second, 0, 4096), 0, 4096))
        told.work()
        assert resident(first, 0, MB) and not resident(first, 2 * MB, mmap.PAGESIZE) and len(told.errors) == 1
        told.work()
        assert resident(second, 0, 4096) and told.errors == [None, None]


def test_an_error_of_the_range_is_told_and_one_ahead_is_not() -> None:
    """A reader of a good range would lose its connection for a bad one that it never asks for."""
    told = Told()
    with cold_file(MB) as (fd, _):
        closed = os.dup(fd)
        os.close(closed)
        told.read((region(fd, 0, 4096), 0, 4096), (region(closed, 0, 4096), 0, 4096))
        told.work()
        told.read((region(closed, 0, 4096), 0, 4096))
        told.work()
        assert told.errors[0] is None and isinstance(told.errors[1], OSError)


@pytest.mark.usefixtures("every_kind")
def test_regions_of_cold_files_arrive_whole_and_in_order_on_many_connections() -> None:
    """Consumers that catch up together would get each other's bytes, or holes."""

    async def one(harness: Any, content: bytes, seed: int) -> None:
        reader, writer = await harness.connect()
        for n in range(40):
            position = (seed * 77_777 + n * 650_003) % (len(content) - MB)
            size = (n * 131_071 + seed) % MB
            writer.write(frame(FILE, n, struct.pack(">qq", position, size)) + frame(ECHO, 1000 + n, b"after"))
            assert await answer(reader) == (n, b"<" + content[position : position + size] + b">")
            assert await answer(reader) == (1000 + n, b"after")
            if n % 8 == seed % 8:
                os.posix_fadvise(harness.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        writer.close()

    async def main() -> None:
        async with running() as harness:
            content = os.urandom(24 * MB)
            harness.file.write(content)
            harness.file.flush()
            drop(harness.file.fileno())
            cold = is_cold(harness.file.fileno())
            await asyncio.gather(*(one(harness, content, seed) for seed in range(8)))
            assert harness.listener.cold_reads_count > 0 or not cold

    uvloop.run(main())
