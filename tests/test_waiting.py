"""`kbroker/waiting.py`: waiting for a condition, with and without a time-out."""

from __future__ import annotations

import asyncio

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
