"""The topics of a history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.schemas import wire

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Topic:
    """What clients know of a topic."""

    name: str
    topic_id: bytes
    partitions: int
    is_old: bool = False
    """Whether it is stored in a format from before batches, which has neither leader epochs nor producers."""


async def create_topics(world: World) -> None:
    rng = world.rng
    request = wire.CreateTopicsRequest
    wanted = [(f"t{number}", rng.choice((1, 1, 2, 5))) for number in range(rng.randint(1, 3))]
    old = {name for name, _ in wanted if rng.random() < world.scale.old_formats}
    config = request.CreatableTopicConfig(name="message.format.version", value=rng.choice(("0.9.0", "0.10.2")))
    rows = [
        request.CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=world.replicas,
            configs=[config] if name in old else [],
        )
        for name, count in wanted
    ]
    answer = await world.make_topics(request(topics=rows, timeout_ms=10_000))
    for (name, count), row in zip(wanted, answer.topics, strict=True):
        if row.error_code != 0:
            world.judge.fail(f"{name} cannot be made: {row.error_code} {row.error_message}")
        world.topics[name] = Topic(name, bytes(row.topic_id), count, name in old or world.has_old_formats)
        world.topic_names[bytes(row.topic_id)] = name
