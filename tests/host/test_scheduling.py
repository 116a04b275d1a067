"""What the broker's threads are to the kernel's scheduler."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import threading
from pathlib import Path

import pytest

from kbroker.host.scheduling import CLEANER_SLICE_NS, LOOP_SLICE_NS, ask_for_short_slices
from tests.broker_process import BrokerProcess

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
FIRST_KERNEL = (6, 12)


def kernel() -> tuple[int, int]:
    major, minor = platform.release().split(".")[:2]
    return int(major), int(minor)


def slice_ns(thread: int) -> int | None:
    """What a thread's slice is, as the kernel tells it; None for one that has ended."""
    attributes = ctypes.create_string_buffer(48)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SCHED_GETATTR[platform.machine()], thread, attributes, 48, 0) != 0:
        assert ctypes.get_errno() == errno.ESRCH
        return None
    runtime: int = struct.unpack_from("=Q", attributes.raw, 24)[0]
    return runtime


@pytest.mark.skipif(kernel() < FIRST_KERNEL, reason="the kernel gives all threads slices of one length")
def test_the_loop_is_let_in_at_once_and_other_threads_are_as_usual(tmp_path: Path) -> None:
    """Clients would wait for milliseconds while a log is compacted."""
    broker = BrokerProcess(tmp_path).start()
    try:
        threads = [int(path.name) for path in Path(f"/proc/{broker.pid}/task").iterdir()]
        assert slice_ns(broker.pid) == LOOP_SLICE_NS
        of_others = [slice_ns(thread) for thread in threads if thread != broker.pid]
        others = [each for each in of_others if each is not None]
        assert others
        assert all(each != LOOP_SLICE_NS for each in others)
    finally:
        broker.stop()


@pytest.mark.skipif(kernel() < FIRST_KERNEL, reason="the kernel gives all threads slices of one length")
def test_a_cleaner_keeps_its_share_and_the_other_threads_theirs() -> None:
    """Compaction gives its processor away after each buffer, and would get next to nothing where others want it."""
    seen: list[int | None] = []

    def ask() -> None:
        assert ask_for_short_slices(CLEANER_SLICE_NS)
        seen.append(slice_ns(threading.get_native_id()))

    before = slice_ns(threading.get_native_id())
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == [CLEANER_SLICE_NS]
    assert slice_ns(threading.get_native_id()) == before
