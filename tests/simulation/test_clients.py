"""Clients that only ask: what their judge has to see, and what it may not invent."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from tests.simulation.clients import Asker
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.replication_witness import Witness

PARTITION = ("t", 0)


def told() -> Any:
    """What a broker says of the producers of a partition: one with a transaction under way, and one without."""
    rows = [
        SimpleNamespace(
            producer_id=number, producer_epoch=0, last_sequence=4, last_timestamp=99, current_txn_start_offset=begin
        )
        for number, begin in ((7, 3), (8, -1))
    ]
    return SimpleNamespace(error_code=0, active_producers=rows)


def judged(found: Any) -> None:
    world: Any = SimpleNamespace(
        rng=random.Random(1),
        judge=Judge(lambda: 0.0),
        producer_ids={7, 8},
        now_ms=lambda: 100,
        witness=Witness(),
        tolerates=lambda code, _: code == ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    Asker(world, "asker", 1).judge_producers(found, PARTITION, 1, 0.0)


def test_the_producers_that_there_are_are_no_violation() -> None:
    """Nobody would look at what is reported."""
    judged(told())
    judged(SimpleNamespace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, active_producers=[]))


def of_first(name: str, value: int) -> Callable[[Any], object]:
    return lambda found: setattr(found.active_producers[0], name, value)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: setattr(found, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR),
        lambda found: found.active_producers.append(found.active_producers[0]),
        of_first("producer_id", 9),
        of_first("producer_epoch", -1),
        of_first("last_sequence", -2),
        of_first("last_timestamp", 101),
        of_first("current_txn_start_offset", -2),
    ],
)
def test_a_producer_that_is_not_as_it_was_made_is_seen(change: Callable[[Any], object]) -> None:
    """Tools would end the transactions of producers that there are not, or miss those that hang."""
    found = told()
    change(found)
    with pytest.raises(ViolationError, match="asker"):
        judged(found)
