"""What clients of changing topics have in common: what they know of the topics, and which errors they may be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.error_codes import ErrorCode
from tests.simulation.client import Client

if TYPE_CHECKING:
    from tests.simulation.administration.lives import ChangingTopic, Life
    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

Place = tuple["Life", int]
"""A partition of a life."""
FIRST_PRODUCE_BY_ID = 13
FIRST_FETCH_BY_ID = 13
ABSENT = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""What is said of a topic that is not there, not yet, or not any more."""


class ChangingClient(Client):
    """A client of topics that are made and deleted meanwhile; `known` is what it takes for there."""

    def __init__(self, world: World, name: str, requests: int, topics: list[ChangingTopic]) -> None:
        super().__init__(world, name)
        self.requests = requests
        self.topics = topics
        self.known: dict[str, Life] = {}

    def topic(self, name: str) -> ChangingTopic:
        return next(each for each in self.topics if each.name == name)

    def learn(self) -> None:
        """As after a request for metadata."""
        self.known = {each.name: each.life for each in self.topics if each.life is not None}

    async def reach(self) -> tuple[int, ModelConnection | None]:
        """A connection to a broker that leads one of the topics."""
        if not self.known:
            return 0, None
        life = self.rng.choice(list(self.known.values()))
        partition = (life.name, self.rng.randrange(life.partitions))
        node = await self.world.find_leader(partition)
        if node is None:
            return 0, None
        connection = await self.connect(node)
        if connection is None:
            self.world.forget_leader(partition)
        return node, connection

    def partitions(self, node: int) -> list[Place]:
        """Some partitions that the broker leads, of one topic or several."""
        rng = self.rng
        found = [
            (life, number)
            for life in self.known.values()
            for number in range(life.partitions)
            if self.world.leads(node, (life.name, number))
        ]
        return rng.sample(found, rng.choice((1, 1, min(2, len(found)), len(found)))) if found else []

    def tolerates(self, code: int, place: Place, since: float, until: float, *, by_name: bool) -> bool:
        """Whether a request that was sent and answered then may be told this of the topic."""
        life, number = place
        topic = self.topic(life.name)
        if code in ABSENT and life.moved_at <= until:
            return True  # Another broker leads it, or this one has no replica any more.
        if code in ABSENT:
            if by_name:
                met = topic.between(since, until)
                lacks = any(number >= each.partitions or each.grown_at + topic.lag >= since for each in met)
                return lacks or topic.may_be_absent(since, until)
            return life.deletion_asked_at <= until or max(life.made_at, life.grown_at) + topic.lag >= since
        return self.world.tolerates(code)

    def story(self, life: Life) -> str:
        """What is known of a topic's lives, for a violation."""
        return ", ".join(
            f"{each.key}: asked {each.asked_at:.6f}, made {each.made_at:.6f}, deletion asked "
            f"{each.deletion_asked_at:.6f}, ended {each.ended_at:.6f}"
            for each in self.topic(life.name).lives
        )
