"""Waiting for what a coordinator has written, in a coroutine."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from kbroker.coordinator.runtime.plan import Outcome, write_error
from kbroker.errors import KafkaError

T = TypeVar("T")


async def committed(outcome: Outcome[T], timeout_ms: int) -> T:
    """The answer of an outcome, once it may be given.  Raises the client's error where it may not, within the time."""
    if not outcome.is_committed:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[KafkaError | None] = loop.create_future()
        outcome.settle_within(
            timeout_ms, loop.call_later, lambda error: None if done.done() else done.set_result(error)
        )
        error = await done
        if error is not None:
            raise KafkaError.of(write_error(error))
    return outcome.answer
