"""What viewers share."""

from __future__ import annotations

import asyncio

import pytest

from kbroker.console.shared_values import LEAST_SECONDS, MOST_SECONDS, SHARE, SharedValue


class Gathered:
    """Counts how often it is gathered; a clock that is moved by hand, and on by `takes` with each."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 100.0
        self.takes = 0.0
        self.fails = False
        self.value = SharedValue(self.gather, lambda: self.now)

    async def gather(self) -> int:
        await asyncio.sleep(0)
        self.now += self.takes
        self.count += 1
        if self.fails:
            raise OSError("no")
        return self.count


def test_viewers_who_ask_at_once_share_one_look() -> None:
    """Ten viewers would cost ten times as much as one."""

    async def scenario() -> None:
        gathered = Gathered()
        assert await asyncio.gather(*(gathered.value.get() for _ in range(10))) == [1] * 10
        gathered.now += LEAST_SECONDS - 0.01
        assert await gathered.value.get() == 1
        gathered.now += 0.02
        assert await gathered.value.get() == 2

    asyncio.run(scenario())


def test_what_takes_long_is_kept_long() -> None:
    """Looks at ten thousand partitions would take more than a hundredth of the loop's time."""

    async def scenario() -> None:
        gathered = Gathered()
        gathered.takes = 0.05
        await gathered.value.get()
        gathered.now += SHARE * 0.05 - 0.01
        assert await gathered.value.get() == 1
        gathered.now += 0.02
        gathered.takes = 60
        assert await gathered.value.get() == 2
        gathered.now += MOST_SECONDS + 0.01
        assert await gathered.value.get() == 3

    asyncio.run(scenario())


def test_a_failure_is_not_kept() -> None:
    """The console would say for ever what was wrong for a moment."""

    async def scenario() -> None:
        gathered = Gathered()
        gathered.fails = True
        with pytest.raises(OSError, match="no"):
            await gathered.value.get()
        gathered.fails = False
        assert await gathered.value.get() == 2
        gathered.value.forget()
        assert await gathered.value.get() == 3

    asyncio.run(scenario())
