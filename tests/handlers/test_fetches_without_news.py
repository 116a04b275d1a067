"""Fetches of a session that end without news: see `TargetsRead.attempt_unmarked`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.handlers.records.fetch import FetchResponse
from tests.handlers.frames import plain
from tests.handlers.many_consumers import ALL, DIRECT, Consumers
from tests.handlers.served_fetch import LONG_MS


def time_is_up(side: Consumers) -> None:
    for waiting in list(side.manager.purgatory._waiting):
        side.manager.purgatory.time_is_up(waiting)


def answers(side: Consumers) -> list[Any]:
    """What was answered, each fetch once."""
    frames = [plain(ctx.answers[0])[8 + (side.version >= 12) :] for ctx in side.asked]
    return [FetchResponse.program(side.version).decode(frame, 0, len(frame)) for frame in frames]


@pytest.mark.parametrize("version", range(7, 19))
def test_a_fetch_without_news_ends_without_another_look_and_the_next_one_tells_what_came_unmarked(
    tmp_path: Path, version: int
) -> None:
    """Idle followers would have their leader look at thousands of partitions twice; or a log's new start be lost."""
    side = Consumers(tmp_path / DIRECT, DIRECT)
    side.open(version, ALL)
    asks = {"max_wait_ms": LONG_MS, "min_bytes": 1}
    side.go_on(dict.fromkeys(ALL, 0), [], **asks)
    time_is_up(side)
    for _ in range(2):
        side.go_on({}, [], **asks)
        side.trim(0)
        time_is_up(side)
    # A mark counts, even where nobody has looked since.
    side.go_on({}, [], **asks)
    side.append(1)
    time_is_up(side)
    told = answers(side)
    assert [len(answer.responses) for answer in told[2:]] == [0, 1, 1]
    assert len(told[-1].responses[0].partitions[0].records) > 0
    side.close()
