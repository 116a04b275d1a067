"""Threads that judge batches, and a stop that does not wait for them.

Also of `kbroker.replication.judging`.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker.replication.judging import Judging


def test_a_thread_that_nobody_waits_for_any_more_is_known_to_work() -> None:
    """The process of a broker that was stopped would live on for as long as a codec works."""
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        judging, done = Judging(), list[str]()
        waiting = [loop.create_task(judging.on_thread(each)) for each in (work, lambda: done.append("later"))]
        try:
            while not begun.is_set():
                await asyncio.sleep(0)
            for each in waiting:
                each.cancel()
            for each in waiting:
                with pytest.raises(asyncio.CancelledError):
                    await each
            assert judging.is_under_way
        finally:
            go_on.set()
        # Behind it comes what nobody has cancelled.
        assert await judging.on_thread(lambda: threading.current_thread().name) != threading.current_thread().name
        assert (judging.is_under_way, done) == (False, [])

    asyncio.run(run())


def test_what_a_thread_finds_or_raises_is_told() -> None:
    """A batch would be stored that a thread refused, or the process be ended as if one still worked."""

    def refuse() -> None:
        raise ValueError("no batch")

    async def run() -> None:
        judging = Judging()
        assert await judging.on_thread(lambda: 7) == 7
        with pytest.raises(ValueError, match="no batch"):
            await judging.on_thread(refuse)
        assert not judging.is_under_way

    asyncio.run(run())
