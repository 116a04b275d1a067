"""A topic whose records are over before its followers have them: its client waits for the leader alone, and retention
takes whole segments within a fraction of a second.

Retention has to leave what is not committed, however old it is: `states.py` looks at where logs start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kbroker.schemas import wire
from tests.scenarios.batches import Batch
from tests.simulation.log_life import PRODUCE, LogLife

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.world import World

TAKING_PART = 0.3
"""The share of histories of several brokers with such a client."""


class HurriedLog(LogLife):
    """See the module."""

    kind = "hurried"

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, world.later)
        self.steps = self.rng.choice((10, 30))

    def configs(self) -> dict[str, str]:
        return {
            **super().configs(),
            "segment.ms": self.rng.choice(("10", "50")),
            "cleanup.policy": "delete",
            "retention.ms": self.rng.choice(("20", "100")),
        }

    async def step(self) -> None:
        rng, request = self.rng, wire.ProduceRequest
        for _ in range(rng.randint(1, 6)):
            values = [self.world.next_value(0) for _ in range(rng.choice((1, 3)))]
            now = self.world.now_ms()
            data = Batch([(b"k", value) for value in values], [now] * len(values)).encoded()
            row = request.PartitionProduceData(index=0, records=data)
            topic = request.TopicProduceData(name=self.topic, partition_data=[row])
            answer: Any = await self.ask(request(acks=1, timeout_ms=20_000, topic_data=[topic]), PRODUCE)
            if answer is None or not self.passes(answer.responses[0].partition_responses[0].error_code):
                await self.try_later()
            await asyncio.sleep(rng.choice((0.02, 0.1)) * rng.random())

    async def read_back(self) -> None:
        """Nothing of it is to be there."""


def draw_hurried(world: World) -> list[Client]:
    """Those of a history, mostly none."""
    has_times = world.has_virtual_time and not world.has_old_formats
    if world.scale.nodes == 1 or not has_times or world.later.random() > TAKING_PART:
        return []
    made = HurriedLog(world, 0)
    world.lasting_topics.add(made.topic)
    return [made]


__all__ = ["HurriedLog", "draw_hurried"]
