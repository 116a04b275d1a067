"""What malloc keeps of freed memory goes back to the kernel, and a heap with nothing to give is left alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from ctypes import CDLL

import pytest

from kbroker.host.freed_memory import FreedMemory, Heap, HeapUse, heap

MB = 1 << 20
# Pieces of malloc's, as Python allocates objects of 512 bytes or less by itself; each hundredth lives on.
PROGRAM = """
import asyncio
from kbroker.host.freed_memory import FreedMemory, heap

mine = heap()
memory = FreedMemory(mine)
for turn in range(2):
    pieces = [bytes(10_000) for _ in range(10_000)]
    del pieces[::100]
    kept = pieces[::100]
    pieces.clear()
    before = mine.use().resident_bytes
    asyncio.run(memory.run())
    print(before - mine.use().resident_bytes >> 20, len(kept))
"""


class Said(Heap):
    """A heap in the state that a test says."""

    def __init__(self) -> None:
        self.resident_mb, self.used_mb, self.free_mb = 60, 10, 0
        self.elsewhere_mb = 50
        self.freed_meanwhile_mb = 0
        self.trims = 0
        self.trim = self.give_back

    def use(self) -> HeapUse:
        return HeapUse(self.resident_mb * MB, self.used_mb * MB, self.free_mb * MB)

    def give_back(self, _: int) -> None:
        self.trims += 1
        self.resident_mb = self.elsewhere_mb + self.used_mb
        self.used_mb -= self.freed_meanwhile_mb
        self.free_mb += self.freed_meanwhile_mb

    def is_now(self, *, used_mb: int, free_mb: int, resident_mb: int) -> None:
        self.used_mb, self.free_mb, self.resident_mb = used_mb, free_mb, resident_mb


def looked(memory: FreedMemory, said: Said) -> int:
    """How often the heap has been trimmed after one more look."""
    asyncio.run(memory.run())
    return said.trims


@pytest.mark.skipif(heap() is None, reason="another library of C than glibc")
def test_memory_between_pieces_that_live_on_is_given_back() -> None:
    """What a burst of connections has used would stay with the process, and be missing to the page cache."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    turns = [line.split() for line in done.stdout.splitlines()]
    assert len(turns) == 2
    assert all(int(given) >= 50 for given, _ in turns), done.stdout


def test_a_heap_with_little_to_give_is_left_alone() -> None:
    """The loop would wait for the heap each time that memory is allocated and used."""
    said = Said()
    memory = FreedMemory(said)
    assert looked(memory, said) == 0
    said.is_now(used_mb=200, free_mb=0, resident_mb=250)
    assert looked(memory, said) == 0
    said.is_now(used_mb=200, free_mb=15, resident_mb=265)
    assert looked(memory, said) == 0
    said.is_now(used_mb=200, free_mb=1, resident_mb=300)  # Python's own objects, which are none of malloc's.
    assert looked(memory, said) == 0


def test_what_was_given_back_is_not_asked_for_again() -> None:
    """malloc counts it as free for ever: the heap would be walked with each look."""
    said = Said()
    memory = FreedMemory(said)
    said.is_now(used_mb=10, free_mb=200, resident_mb=260)
    assert looked(memory, said) == 1
    assert looked(memory, said) == 1
    said.is_now(used_mb=110, free_mb=100, resident_mb=160)
    assert looked(memory, said) == 1
    said.is_now(used_mb=10, free_mb=200, resident_mb=160)
    assert looked(memory, said) == 2


def test_what_is_freed_while_the_heap_is_trimmed_is_given_back_with_the_next_look() -> None:
    """Connections that close meanwhile would leave theirs for good."""
    said = Said()
    memory = FreedMemory(said)
    said.is_now(used_mb=110, free_mb=100, resident_mb=260)
    said.freed_meanwhile_mb = 50
    assert looked(memory, said) == 1 and said.resident_mb == 160
    said.freed_meanwhile_mb = 0
    assert looked(memory, said) == 2 and said.resident_mb == 110
    assert looked(memory, said) == 2


def test_another_library_of_c_is_left_alone() -> None:
    """The broker would not start where there is no such call."""
    assert isinstance(heap(), Heap) or not hasattr(CDLL(None), "malloc_trim")
    asyncio.run(FreedMemory(None).run())
