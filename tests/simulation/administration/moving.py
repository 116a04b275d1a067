"""Replicas that move: to other brokers, called off or not, to another directory; and leaders that change places."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire

if TYPE_CHECKING:
    from tests.simulation.administration.administrator import Administrator
    from tests.simulation.administration.lives import Life
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

PREFERRED = 0
NOT_TO_ELECT = frozenset({ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE})


async def move_replicas(admin: Administrator, life: Life) -> None:
    """Have a partition's replicas be others, and at times call that off."""
    rng, world = admin.rng, admin.world
    number = rng.randrange(life.partitions)
    target = rng.sample(list(world.nodes), life.replicas)
    life.moved_at = min(life.moved_at, world.loop.time())
    admin.judge.note("%s: %s-%d moves to %s", admin.name, life.key, number, target)
    before = life.places.pop(number, None)
    await _reassign(admin, life, number, target)
    life.places[number] = [target]
    if before is None or rng.random() < 0.6:
        return
    await asyncio.sleep(rng.choice((0.0, 0.001, 0.1)) * rng.random())
    admin.judge.note("%s: that %s-%d moves is called off", admin.name, life.key, number)
    # It may have moved by then, or be asked for twice as the first answer was lost.
    life.places[number] = [target, *before]
    if await _reassign(admin, life, number, None) == 0:
        life.places[number] = before
        if world.scale.forgets_late:
            # The move before that may have been under way still, and is called off as well.
            del life.places[number]


async def _reassign(admin: Administrator, life: Life, number: int, target: list[int] | None) -> int:
    request = wire.AlterPartitionReassignmentsRequest
    row = request.ReassignablePartition(partition_index=number, replicas=target)
    topic = request.ReassignableTopic(name=life.name, partitions=[row])

    def code_of(answer: Any) -> int:
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    done = None if target is not None else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    return await admin.insist(
        request(timeout_ms=10_000, topics=[topic]), 0, code_of, done, f"{life.key}-{number} moves to {target}", done
    )


async def elect(admin: Administrator, life: Life) -> None:
    """Have the preferred replica of each partition lead."""
    request = wire.ElectLeadersRequest
    topic = request.TopicPartitions(topic=life.name, partitions=list(range(life.partitions)))
    asked = request(election_type=PREFERRED, topic_partitions=[topic], timeout_ms=10_000)
    life.moved_at = min(life.moved_at, admin.world.loop.time())
    admin.judge.note("%s: the preferred replicas of %s are to lead", admin.name, life.key)

    def code_of(answer: Any) -> int:
        codes = [row.error_code for topic in answer.replica_election_results for row in topic.partition_result]
        return int(answer.error_code or next((code for code in codes if code not in {0, *NOT_TO_ELECT}), 0))

    await admin.insist(asked, admin.rng.choice((1, 2)), code_of, None, f"leaders of {life.key} are not elected")


async def move_directory(admin: Administrator, life: Life) -> None:
    """Have a partition lie in another directory of its broker."""
    rng, world = admin.rng, admin.world
    node = rng.choice(list(world.nodes))
    folders = world.log_dirs(node)
    if len(folders) < 2:
        return
    number, folder = rng.randrange(life.partitions), rng.choice(folders)
    request = wire.AlterReplicaLogDirsRequest
    topic = request.AlterReplicaLogDirTopic(name=life.name, partitions=[number])
    asked = request(dirs=[request.AlterReplicaLogDir(path=folder, topics=[topic])])
    admin.judge.note("%s: %s-%d of broker %d is to lie in %s", admin.name, life.key, number, node, Path(folder).name)
    connection = await admin.connect(node)
    if connection is None:
        return
    answer = await connection.answer(asked, rng.choice((1, 2)))
    if not connection.gone:
        connection.finish(rng)
    if answer is None:
        return
    code = answer.results[0].partitions[0].error_code
    if not may_refuse(world, code, folder, (life.name, number)):
        admin.judge.fail(f"{admin.name}: {life.key}-{number} does not move to {folder}: {ErrorCode(code).name}")


def may_refuse(world: World, code: int, folder: str, partition: Partition) -> bool:
    """Whether a broker may answer so when it is to have a partition in another directory; 0: it does."""
    is_elsewhere = world.scale.nodes > 1 and code in (
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    # Kafka refuses a directory that is offline, or fails as the copy is made, in the same way.
    is_ailing = code == ErrorCode.KAFKA_STORAGE_ERROR and world.disks.takes_no_copy(folder)
    return code == 0 or is_elsewhere or is_ailing or world.tolerates(code, partition)
