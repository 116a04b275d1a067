"""Brokers of a made-up cluster, as judges of administration ask them: each says what a test has it say."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.simulation.judge import Judge

Saying = Callable[[int, Any], Any]
"""The answer of a broker to a request; None: the connection ends instead."""


class Told(SimpleNamespace):
    """A connection to one of them."""

    def __init__(self, node: int, says: Saying) -> None:
        super().__init__(name=f"told.{node}", node=node, gone=False, _says=says)

    async def answer(self, request: Any, _version: int) -> Any:
        found = self._says(self.node, request)
        self.gone = found is None
        return found

    def finish(self, _rng: random.Random) -> None:
        self.gone = True


class MadeUp(SimpleNamespace):
    """A world without brokers; each look at its clock takes a minute, so that nobody waits."""

    def __init__(self, says: Saying, nodes: int = 2, **others: Any) -> None:
        self.minutes = 0
        super().__init__(
            nodes=range(1, nodes + 1),
            scale=SimpleNamespace(nodes=nodes),
            judge=Judge(lambda: 0.0),
            loop=SimpleNamespace(time=self._time),
            rng=random.Random(1),
            controllers_lost_at=-math.inf,
            crashed_at={},
            tolerates=lambda code, _partition=None: False,
            disks=SimpleNamespace(may_hang_up=lambda _: False, takes_no_copy=lambda _: False),
            may_lose_leaders=False,
            **others,
        )
        self.says = says

    def _time(self) -> float:
        self.minutes += 1
        return 60.0 * self.minutes

    async def connect(self, node: int, _name: str, _client_id: str) -> Told | None:
        return Told(node, self.says)


__all__ = ["MadeUp", "Told"]
