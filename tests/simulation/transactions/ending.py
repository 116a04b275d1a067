"""What is seen of transactions in the end: none is under way, each is there as a whole or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kbroker.error_codes import ErrorCode
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.schemas import wire
from tests.simulation.client import Client
from tests.simulation.records import ReadBatch, read_batches
from tests.simulation.transactions.ledger import delivered
from tests.simulation.transactions.offsets import judge_offsets

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

SETTLED_WITHIN_SECONDS = 60.0
FETCH_VERSION = 11
READ_COMMITTED = 1


async def judge_transactions(world: World) -> None:
    """Read all that transactions wrote, and hold it against what producers were told."""
    ledger = world.transactions
    if not ledger:
        return
    reader = Client(world, "committed")
    visible: dict[Partition, set[bytes]] = {}
    logs: dict[Partition, list[ReadBatch]] = {}
    for partition in sorted({partition for each in ledger.all for partition in (*each.values, *each.added)}):
        values, logs[partition] = await _read_ended(reader, partition)
        visible[partition] = set(values.values())
    ledger.judge_whole(visible)
    groups = sorted({place[0] for each in ledger.all for place in each.offsets})
    for group in groups:
        await judge_offsets(reader, group)
    if groups and world.group_partitions == 1:
        offsets = (GROUP_METADATA_TOPIC, 0)
        logs[offsets] = (await _read(reader, offsets))[1]
    for partition, batches in logs.items():
        ledger.judge_markers(partition, batches, exact=not world.fails)


async def _read_ended(reader: Client, partition: Partition) -> tuple[dict[int, bytes], list[ReadBatch]]:
    """As `_read`, once the markers are there of transactions that were left open, and wrote nothing there."""
    world = reader.world
    until = world.loop.time() + SETTLED_WITHIN_SECONDS
    while True:
        found = await _read(reader, partition)
        if world.fails or world.loop.time() > until or not world.transactions.lacks_markers(partition, found[1]):
            return found
        await asyncio.sleep(0.5)


async def _read(reader: Client, partition: Partition) -> tuple[dict[int, bytes], list[ReadBatch]]:
    """What a consumer of committed records gets, and all batches; once no transaction is under way there."""
    world = reader.world
    until = world.loop.time() + SETTLED_WITHIN_SECONDS
    while True:
        connection = await reader.connect(await world.leader(partition))
        found = None
        if connection is not None:
            found = await _read_once(connection, world, partition)
            connection.finish(reader.rng)
        if found is not None:
            return found
        if world.loop.time() > until:
            world.judge.fail(f"a transaction in {partition} does not come to its end")
        world.forget_leader(partition)
        await asyncio.sleep(0.05)


async def _read_once(
    connection: ModelConnection, world: World, partition: Partition
) -> tuple[dict[int, bytes], list[ReadBatch]] | None:
    request = wire.FetchRequest
    values: dict[int, bytes] = {}
    batches: list[ReadBatch] = []
    position, end = 0, -1
    while position != end:
        row = request.FetchPartition(partition=partition[1], fetch_offset=position, partition_max_bytes=1 << 20)
        topic = request.FetchTopic(topic=partition[0], partitions=[row])
        answer = await connection.answer(
            request(isolation_level=READ_COMMITTED, min_bytes=0, max_bytes=1 << 24, topics=[topic], session_epoch=-1),
            FETCH_VERSION,
        )
        if answer is None:
            return None
        got = answer.responses[0].partitions[0]
        if got.error_code != 0:
            if not world.tolerates(got.error_code):
                world.judge.fail(f"{partition} cannot be read: {ErrorCode(got.error_code).name}")
            return None
        end = got.high_watermark
        if got.last_stable_offset != end:
            return None
        read = list(read_batches(got.records))
        values.update(delivered(read, got.aborted_transactions or ()))
        batches += read
        if not read and position != end:
            world.judge.fail(f"{partition} has nothing at {position}, and ends at {end}")
        position = read[-1].last_offset + 1 if read else end
    return values, batches
