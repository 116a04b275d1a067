"""What holds some time after the last change: all brokers say the same of the topics, which is what was asked for, and
of those that were deleted nothing is left on any disk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration.lives import FOREVER, ChangingTopic, Life
from tests.simulation.reading_back import read_whole

if TYPE_CHECKING:
    from tests.simulation.world import World

SETTLE_SECONDS = 60.0
LOOK_SECONDS = 0.5
METADATA_VERSION = 12
TOPIC = 2
STRAY = "stray"
DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<number>\d+)(\.\w+-(?P<mark>\w+))?")
"""Of a partition, or of what is to become of it or to go."""


async def settle(world: World, topics: Sequence[ChangingTopic]) -> None:
    """Wait for all to be as it has to be, for so long as it may take."""
    until = world.loop.time() + SETTLE_SECONDS
    while (wrong := await _wrong(world, topics)) is not None:
        if world.loop.time() > until:
            world.judge.fail(f"{wrong}, {SETTLE_SECONDS} s after the last change")
        await asyncio.sleep(LOOK_SECONDS)
    for topic in topics:
        life = topic.life
        if life is not None and life.deletion_asked_at == FOREVER:
            for number in range(life.partitions):
                world.judge.read_back(
                    (life.key, number), *await read_whole(world, (life.name, number), (life.key, number))
                )


async def _wrong(world: World, topics: Sequence[ChangingTopic]) -> str | None:
    """What is not yet as it has to be."""
    told: dict[str, tuple[int, object]] = {}
    for node in world.nodes:
        found = await _ask(
            world,
            node,
            wire.MetadataRequest(
                topics=[wire.MetadataRequest.MetadataRequestTopic(name=topic.name) for topic in topics]
            ),
            METADATA_VERSION,
        )
        if found is None:
            return f"broker {node} does not answer"
        for topic, row in zip(topics, sorted(found.topics, key=lambda each: each.name), strict=True):
            rows = [
                (each.partition_index, each.leader_id, each.leader_epoch, sorted(each.replica_nodes), each.error_code)
                for each in sorted(row.partitions, key=lambda each: each.partition_index)
            ]
            says = (row.error_code, bytes(row.topic_id), rows)
            other, before = told.setdefault(topic.name, (node, says))
            if before != says:
                return f"broker {node} says {says} of {topic.name}, and broker {other} says {before}"
            if (wrong := _differs(topic, row)) is not None:
                return f"broker {node} says {says} of {topic.name}: {wrong}"
        if (differs := await _settings_differ(world, node, topics)) is not None:
            return differs
        if (left := _left(world.log_dirs(node), topics, world.fails)) is not None:
            return f"broker {node} has {left} on its disk"
    return None


def _differs(topic: ChangingTopic, row: Any) -> str | None:
    life = topic.life
    if life is None or life.deletion_asked_at < FOREVER:
        return None if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else "it was deleted"
    if row.error_code != 0 or bytes(row.topic_id) != life.topic_id:
        return f"{life.topic_id!r} is there"
    if len(row.partitions) != life.partitions:
        return f"it has {life.partitions} partitions"
    for each in row.partitions:
        has_all = len(each.replica_nodes) == life.replicas or each.partition_index in life.grown_amid_moves
        if each.error_code != 0 or not has_all:
            return f"partition {each.partition_index} is not well"
        wanted = life.places.get(each.partition_index)
        if wanted is not None and list(each.replica_nodes) not in wanted:
            return f"partition {each.partition_index} is to be on {wanted}"
    return None


async def _settings_differ(world: World, node: int, topics: Sequence[ChangingTopic]) -> str | None:
    lives = [topic.life for topic in topics if topic.life is not None and topic.life.deletion_asked_at == FOREVER]
    request = wire.DescribeConfigsRequest
    resources = [
        request.DescribeConfigsResource(resource_type=TOPIC, resource_name=life.name, configuration_keys=None)
        for life in lives
    ]
    answer = await _ask(world, node, request(resources=resources), 4)
    if answer is None:
        return f"broker {node} does not answer"
    for life, result in zip(lives, answer.results, strict=True):
        if result.error_code != 0:
            return f"broker {node} does not tell the settings of {life.key}: {result.error_code}"
        for name, value in expected(life).items():
            said = next((each.value for each in result.configs if each.name == name), None)
            if said != str(value):
                return f"broker {node} says that {name} of {life.key} is {said}, where {value} was set"
    return None


def expected(life: Life) -> dict[str, int]:
    """The settings that were asked for, those that are as a topic has them from its beginning left out."""
    return {name: setting.last for name, setting in life.settings.items() if setting.last != 0}


def _left(folders: Sequence[str], topics: Sequence[ChangingTopic], fails: bool) -> str | None:
    """What a disk has of topics, partitions or copies that are not there any more.  What went while a broker or a disk
    was away is set aside, and stays."""
    lives = {topic.name: topic.life for topic in topics}
    for folder in map(Path, folders):
        for each in sorted(folder.iterdir()):
            found = DIRECTORY.fullmatch(each.name)
            if found is None or found["topic"] not in lives or not each.is_dir():
                continue
            if found["mark"] == STRAY and fails:
                continue
            life = lives[found["topic"]]
            is_there = life is not None and life.deletion_asked_at == FOREVER
            if not is_there or found["mark"] or int(found["number"]) >= life.partitions:  # type: ignore[union-attr]
                return each.name
    return None


async def _ask(world: World, node: int, request: Any, version: int) -> Any:
    connection = await world.connect(node, "settled", "admin")
    if connection is None:
        return None
    answer = await connection.answer(request, version)
    connection.finish(world.rng)
    return answer
