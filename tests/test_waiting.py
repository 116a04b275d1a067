"""`kbroker/waiting.py` and `client/readable.py`: waiting for a condition, or for bytes, with and without a time-out."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource

from kbroker.client.readable import readable
from kbroker.waiting import Changes


def test_a_condition_is_looked_at_again_after_each_change() -> None:
    """A request that waits for a topic would wait for ever, or go on without it."""

    async def work() -> None:
        changes, values = Changes(), [0]
        waiting = [asyncio.ensure_future(changes.wait_until(lambda: values[0] == 2, 60)) for _ in range(3)]
        for values[0] in (1, 2):
            assert not any(each.done() for each in waiting)
            changes.announce()
            for _ in range(5):
                await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == [True] * 3

    asyncio.run(work())


def test_what_holds_already_is_not_waited_for() -> None:
    """Each request would wait for a change that may never come."""
    assert asyncio.run(Changes().wait_until(lambda: True))


def test_a_wait_ends_with_its_time_and_leaves_nothing() -> None:
    """A client would hang, and each wait would keep memory."""

    async def work() -> None:
        changes = Changes()
        assert not await changes.wait_until(lambda: False, 0.01)
        cancelled = asyncio.ensure_future(changes.wait_until(lambda: False))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait((cancelled,))
        assert not changes._waiting

    asyncio.run(work())


def test_a_descriptor_of_a_high_number_is_waited_for() -> None:
    """A replay with many files open would end where a descriptor is above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ours, theirs = os.pipe()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    high = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 2000)
    try:
        assert not readable(high, 0)
        os.write(theirs, b"x")
        assert readable(high, 60)
        os.close(theirs)
        assert os.read(high, 10) == b"x"
        assert readable(high, 60), "the end of the stream is read as well"
    finally:
        os.close(ours)
        os.close(high)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
