"""Waiting for what a coordinator has written, in a coroutine."""

from __future__ import annotations

from typing import TypeVar

from kbroker.coordinator.runtime.plan import Outcome, write_error
from kbroker.errors import KafkaError
from kbroker.replication.commit_wait import CommitWait

T = TypeVar("T")


async def committed(outcome: Outcome[T], timeout_ms: int) -> T:
    """The answer of an outcome, once it may be given.  Raises the client's error where it may not, within the time."""
    wait = CommitWait()
    outcome.when_committed(wait.expect())
    await wait.within(timeout_ms)
    if wait.error is not None:
        raise KafkaError.of(write_error(wait.error))
    return outcome.answer
