"""Producer ids that many ask for at once, with a controller that answers late, or not at all.

Also of `kbroker.metadata.producer_id_manager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from kbroker.error_codes import ErrorCode
from kbroker.errors import KafkaError
from kbroker.metadata.producer_id_manager import ProducerIdManager
from kbroker.metadata.store import ProducerIdBlock

AWAY = ErrorCode.NOT_CONTROLLER


class Controller:
    """Answers when it is told; `asked` counts the requests."""

    def __init__(self) -> None:
        self.asked = 0
        self._next = 0
        self._answer: asyncio.Future[int] | None = None

    async def allocate(self) -> ProducerIdBlock:
        self.asked += 1
        self._answer = asyncio.get_running_loop().create_future()
        length = await self._answer
        first, self._next = self._next, self._next + length
        return ProducerIdBlock(first, length)

    def answers(self, length: int) -> None:
        assert self._answer is not None
        self._answer.set_result(length)

    def is_lost(self) -> None:
        assert self._answer is not None
        self._answer.set_exception(KafkaError.of(AWAY))


def play(
    story: Callable[[Controller, list[asyncio.Task[int]]], Coroutine[Any, Any, None]],
    count: int,
    wait_seconds: float = 60,
) -> None:
    """So many ask at once."""

    async def main() -> None:
        controller = Controller()
        manager = ProducerIdManager(controller.allocate)
        asking = [asyncio.create_task(manager.next_id()) for _ in range(count)]
        await asyncio.sleep(0)
        await story(controller, asking)

    uvloop.run(main())


def test_all_who_wait_hear_at_once_that_the_controller_is_away() -> None:
    """Each would wait for it in turn, the last of a crowd for longer than any client does."""

    async def story(controller: Controller, asking: list[asyncio.Task[int]]) -> None:
        controller.is_lost()
        errors = await asyncio.gather(*asking, return_exceptions=True)
        assert [getattr(error, "code", None) for error in errors] == [AWAY] * 20 and controller.asked == 1

    play(story, 20)


def test_each_gets_an_id_of_its_own_though_a_block_has_too_few() -> None:
    """Two producers with one id would take each other's batches for repetitions."""

    async def story(controller: Controller, asking: list[asyncio.Task[int]]) -> None:
        while not all(each.done() for each in asking):
            controller.answers(3)
            for _ in range(5):
                await asyncio.sleep(0)
        assert sorted(each.result() for each in asking) == list(range(10)) and controller.asked == 4

    play(story, 10)


def test_one_whose_client_goes_leaves_the_others_their_turn() -> None:
    """Who asked first asked for all; its end would leave them waiting, or end them as well."""

    async def story(controller: Controller, asking: list[asyncio.Task[int]]) -> None:
        asking[1].cancel()
        asking[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking[0]
        for _ in range(5):
            await asyncio.sleep(0)
        assert controller.asked == 2
        controller.answers(10)
        assert sorted(await asyncio.gather(*asking[2:])) == [0, 1, 2]

    play(story, 5)
