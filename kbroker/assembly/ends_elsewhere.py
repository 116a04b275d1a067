"""Where partitions end that other brokers lead: the lag of groups that are coordinated here asks for it.

Each leader is asked by one ListOffsets, as any consumer may, and given SECONDS; what it does not tell is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kbroker.cluster.client import NodeError
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import NO_LEADER
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.client import NodeClient
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.metadata.image import ClusterImage

logger = logging.getLogger("kbroker.metrics")

SECONDS = 2.0
LATEST = -1
CONSUMER = -1
#: The last version whose fields this asks for, of leaders of any release.
LAST_VERSION = schema("ListOffsetsRequest").first_version("topics.partitions.current_leader_epoch")

Request = wire.ListOffsetsRequest


async def ends_elsewhere(
    wanted: Collection[TopicPartition], image: ClusterImage, node_id: int, clients: NodeClients
) -> Mapping[tuple[str, int], int]:
    """The high watermarks of partitions, as far as their leaders tell them."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for name in wanted:
        topic = image.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            continue
        leader = topic.partitions[name.partition].leader
        if leader not in (NO_LEADER, node_id):
            by_leader.setdefault(leader, {}).setdefault(name.topic, []).append(name.partition)
    found: dict[tuple[str, int], int] = {}
    for part in await asyncio.gather(*(_ask(clients.of(leader), topics) for leader, topics in by_leader.items())):
        found.update(part)
    return found


async def _ask(client: NodeClient, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int], int]:
    request = Request(
        replica_id=CONSUMER,
        topics=[
            Request.ListOffsetsTopic(
                name=topic,
                partitions=[Request.ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in indexes],
            )
            for topic, indexes in topics.items()
        ],
    )
    try:
        async with asyncio.timeout(SECONDS):
            await client.connect()
            version = client.version_of(ApiKey.LIST_OFFSETS, LAST_VERSION)
            answer = await client.send(request, version, seconds=SECONDS)
    except (NodeError, TimeoutError) as error:
        logger.debug("a leader does not say where partitions end: %s", error)
        return {}
    return {
        (topic.name, row.partition_index): row.offset
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
    }
