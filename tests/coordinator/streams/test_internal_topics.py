"""Internal topics are made while the heartbeat is answered, once, and a failure is told for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kbroker._fast.gate.gate import Gate as FastGate
from kbroker.cluster.requests import NewTopic, TopicOutcome
from kbroker.coordinator.streams.configuration import InternalTopic
from kbroker.coordinator.streams.internal_topics import InternalTopics
from kbroker.errors import InvalidReplicationFactorError, KafkaError, PolicyViolationError, TopicAlreadyExistsError
from kbroker.security.authorizer import Operation, ResourceKind
from tests.coordinator.harness import T1_ID, T2_ID, ManualLoop, World
from tests.coordinator.streams.kafka_settings import SETTINGS
from tests.coordinator.streams.script import StreamsScript
from tests.coordinator.wire import Client

TOPICS = {
    "c": InternalTopic("c", 3, None, {"cleanup.policy": "compact"}),
    "r": InternalTopic("r", 2, 3),
}


class Controller:
    """Makes topics when it is let go on; `errors` are what becomes of them."""

    def __init__(self) -> None:
        self.asked: list[list[NewTopic]] = []
        self.errors: dict[str, KafkaError] = {}
        self.refusal: KafkaError | None = None
        self.go_on = asyncio.Event()

    async def create_group_topics(self, requests: Sequence[NewTopic], quota: object = None) -> list[TopicOutcome]:
        self.asked.append(list(requests))
        await self.go_on.wait()
        if self.refusal is not None:
            raise self.refusal
        return [TopicOutcome(each.name, None, self.errors.get(each.name)) for each in requests]


async def turn() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def test_topics_are_asked_for_once_and_as_the_topology_says() -> None:
    """Each heartbeat of each member would make the topics again, or with other settings than the application's."""

    async def run() -> None:
        controller = Controller()
        topics = InternalTopics(controller, ManualLoop())  # type: ignore[arg-type]
        topics.create("g", TOPICS, 1_000)
        topics.create("g", TOPICS, 1_000)
        await turn()
        assert controller.asked == [
            [NewTopic("c", 3, configs={"cleanup.policy": "compact"}), NewTopic("r", 2, 3, configs={})]
        ]
        controller.go_on.set()
        await turn()
        # They were deleted meanwhile.
        topics.create("g", TOPICS, 1_000)
        await turn()
        assert len(controller.asked) == 2

    asyncio.run(run())


def test_a_failure_is_told_for_a_while_and_tried_again() -> None:
    """An operator would not learn why an application does not begin."""

    async def run() -> None:
        controller, clock = Controller(), ManualLoop()
        controller.errors = {
            "c": TopicAlreadyExistsError(),
            "r": InvalidReplicationFactorError("Replication factor: 3 larger than available brokers: 1."),
        }
        controller.go_on.set()
        topics = InternalTopics(controller, clock)  # type: ignore[arg-type]
        topics.create("g", TOPICS, 1_000)
        await turn()
        why = {"r": "Replication factor: 3 larger than available brokers: 1."}
        assert topics.failures(TOPICS) == why
        assert topics.failures(["c"]) == {}
        clock.advance(1.1)
        assert topics.failures(TOPICS) == {}
        controller.refusal = PolicyViolationError("Too many.")
        topics.create("g", TOPICS, 1_000)
        await turn()
        assert topics.failures(TOPICS) == {"c": "Too many.", "r": "Too many."}

    asyncio.run(run())


class Gate(FastGate):
    """Lets everything pass but making topics of some names."""

    def __init__(self, forbidden: str) -> None:
        super().__init__()
        self._forbidden = forbidden

    def is_authorized(self, operation: int, kind: int, name: str) -> bool:
        return operation != Operation.CREATE or (kind == ResourceKind.TOPIC and not name.endswith(self._forbidden))


def joined(forbidden: str) -> tuple[str, World]:
    """What the first heartbeat says of missing topics, to a client that may not make some of them."""
    world = World(SETTINGS)
    script = StreamsScript(Client(world, gate=Gate(forbidden)), {"t1": T1_ID, "t2": T2_ID}, lambda: None)
    (status,) = script.join("joins", "a").status
    world.loop.advance(1.0)
    return status.status_detail, world


def test_only_who_may_make_topics_has_them_made() -> None:
    """Anybody who may join a group could make topics; or would not learn why there are none."""
    detail, world = joined("changelog")
    assert detail.endswith("; Unauthorized to CREATE on topics g-c-changelog.")
    assert world.cache.topic("g-r-repartition") is None
    detail, world = joined("nothing")
    assert "Unauthorized" not in detail
    assert world.cache.topic("g-c-changelog") is not None
