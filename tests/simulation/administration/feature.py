"""What a history has of administration: drawn once, before its brokers start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.administration.administrator import Administrator
from tests.simulation.administration.asker import ChangingAsker
from tests.simulation.administration.limited import Quotas
from tests.simulation.administration.lives import FOREVER, ChangingTopic
from tests.simulation.administration.reader import ChangingFetcher
from tests.simulation.administration.settling import settle
from tests.simulation.administration.writer import ChangingProducer

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.world import World

CHANGING = 0.25
"""The share of histories in which topics change."""
ASKING = 0.5
"""The share of these in which somebody asks what there is."""
LIMITED = 0.15
"""The share of histories in which clients have quotas: those of one broker, and of several that stay."""
LAG_SECONDS = 2.0
"""Within so long all brokers of a cluster without faults know of a change."""


class Administration:
    """The topics that change, and their clients."""

    def __init__(self, world: World) -> None:
        rng = world.rng
        self._world = world
        self.topics: list[ChangingTopic] = []
        self._administrators: list[Administrator] = []
        self._quotas = Quotas(world, LIMITED)
        if rng.random() < CHANGING and not world.scale.is_focused:
            lag = 0.0 if world.scale.nodes == 1 else FOREVER if world.fails else LAG_SECONDS
            for number in range(rng.choice((1, 1, 2))):
                topic = ChangingTopic(f"changing{number}", world.judge, lag=lag, goes_late=world.scale.forgets_late)
                self.topics.append(topic)
                self._administrators.append(
                    Administrator(world, f"administrator-{number}", topic, rng.choice((2, 5, 12)))
                )

    def settings(self) -> dict[str, str]:
        """What a broker is set to for its sake."""
        own = {"log.segment.delete.delay.ms": "1000"} if self.topics else {}
        return {**own, **self._quotas.settings()}

    @property
    def muted_until(self) -> float:
        """Until when a client that goes may be one that a broker throttles, which sees that later."""
        return self._quotas.muted_until

    async def begin(self) -> None:
        """Make the topics for the first time."""
        await self._quotas.begin()
        for each in self._administrators:
            await each.make()

    def clients(self) -> list[Client]:
        """Who changes topics, and who is at work there meanwhile."""
        made = self._quotas.clients()
        if not self.topics:
            return made
        world, rng = self._world, self._world.rng
        made += self._administrators
        for number in range(rng.randint(1, 4)):
            made.append(ChangingProducer(world, f"changing-producer-{number}", rng.choice((10, 30, 60)), self.topics))
        for number in range(rng.randint(1, 3)):
            made.append(ChangingFetcher(world, f"changing-fetcher-{number}", rng.choice((10, 30, 60)), self.topics))
        if rng.random() < ASKING:
            made.append(ChangingAsker(world, "changing-asker", rng.choice((10, 30)), self.topics))
        return made

    async def end(self) -> None:
        """All clients are through, all brokers are there."""
        if self.topics:
            await settle(self._world, self.topics)
