"""The topics of a history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.schemas import wire
from tests.simulation.replication_witness import MIN_IN_SYNC

if TYPE_CHECKING:
    from tests.simulation.world import World


MESSAGE_FORMAT, SEGMENT_MS = "message.format.version", "segment.ms"
SHORT_SEGMENTS = 0.3
"""The share of topics whose segments last so short that what a client looks for lies in several."""
SHORT_MS = ("20", "100", "500")


@dataclass(frozen=True, slots=True)
class Topic:
    """What clients know of a topic."""

    name: str
    topic_id: bytes
    partitions: int
    is_old: bool = False
    """Whether it is stored in a format from before batches, which has neither leader epochs nor producers."""
    replicas: int = 1
    min_in_sync: int = 0
    """What the topic asks for; 0: what its brokers are set to."""


async def create_topics(world: World) -> None:
    rng = world.rng
    request = wire.CreateTopicsRequest
    wanted = [(f"t{number}", rng.choice((1, 1, 2, 5))) for number in range(rng.randint(1, 3))]
    old = {name for name, _ in wanted if rng.random() < world.scale.old_formats}
    config = request.CreatableTopicConfig(name=MESSAGE_FORMAT, value=rng.choice(("0.9.0", "0.10.2")))
    replicas = {name: min(world.replicas, rng.choice((world.replicas, world.replicas, 2))) for name, _ in wanted}
    short = {name: world.later.choice(SHORT_MS) for name, _ in wanted if world.later.random() < SHORT_SEGMENTS}
    least = {name: rng.choice((0, 0, 1, 2)) if world.replicas > 1 else 0 for name, _ in wanted}
    rows = [
        request.CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=replicas[name],
            configs=[
                *([config] if name in old else []),
                *([request.CreatableTopicConfig(name=SEGMENT_MS, value=short[name])] if name in short else []),
                *([request.CreatableTopicConfig(name=MIN_IN_SYNC, value=str(least[name]))] if least[name] else []),
            ],
        )
        for name, count in wanted
    ]
    answer = await world.make_topics(request(topics=rows, timeout_ms=10_000))
    for (name, count), row in zip(wanted, answer.topics, strict=True):
        if row.error_code != 0:
            world.judge.fail(f"{name} cannot be made: {row.error_code} {row.error_message}")
        is_old = name in old or world.has_old_formats
        world.topics[name] = Topic(name, bytes(row.topic_id), count, is_old, replicas[name], least[name])
        world.topic_names[bytes(row.topic_id)] = name
