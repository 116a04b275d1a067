"""Partitions as the brokers that lead them have them: their offsets, and their records, asked for as a consumer does.

    reader = PartitionReader(ask, lambda: cache.image)
    fetched = await reader.read("orders", 0, position, most_bytes=1 << 20, wait_ms=500)

Each leader is asked for all of its partitions at once.  Where a partition has another leader by then, the leader
refuses, and the call raises NotLeaderOrFollowerError: the next one goes by the image of then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kbroker.cluster.client import NodeError
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import schema, wire
from kbroker.types import LATEST, READ_UNCOMMITTED

if TYPE_CHECKING:
    from kbroker.cluster.client import NodeClient
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.metadata.image import ClusterImage
    from kbroker.protocol.messages import Message

logger = logging.getLogger("kbroker.metrics")

A = TypeVar("A")
Place = tuple[str, int]

CONSUMER = -1
NO_SESSION = -1
ENDS_SECONDS = 2.0
ENDS_VERSION = schema("ListOffsetsRequest").first_version("topics.partitions.current_leader_epoch")
"""The last version whose fields `ends_elsewhere` asks for, of leaders of any release."""

ListOffsets = wire.ListOffsetsRequest
Fetch = wire.FetchRequest


class Ask(Protocol):
    """Asks brokers."""

    async def __call__(self, kind: type[A], request: Message, node_id: int, /) -> A:
        """The answer of a broker, of its `kind`; what this raises the reader raises."""


class Fetched(NamedTuple):
    """Whole batches, in bytes.  `aborted`: producer ids and first offsets of transactions."""

    records: bytes
    aborted: list[tuple[int, int]]
    high_watermark: int
    log_start_offset: int


def offsets_request(
    topics: Mapping[str, Collection[int]], at: int, *, isolation: int = READ_UNCOMMITTED, replica_id: int = CONSUMER
) -> wire.ListOffsetsRequest:
    """Asks for the offsets of partitions at a time, LATEST or EARLIEST."""
    return ListOffsets(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[
            ListOffsets.ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsets.ListOffsetsPartition(partition_index=each, timestamp=at) for each in indexes],
            )
            for topic, indexes in topics.items()
        ],
    )


def leader_of(image: ClusterImage, topic: str, partition: int) -> int:
    """The broker that leads a partition.  KafkaError."""
    found = image.topics.get(topic)
    if found is None or not 0 <= partition < len(found.partitions):
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {topic}")
    leader = found.partitions[partition].leader
    if leader < 0:
        raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"no broker leads partition {partition} of {topic}")
    return leader


def by_leader(image: ClusterImage, places: Iterable[Place]) -> dict[int, dict[str, list[int]]]:
    """Partitions by the broker that leads them and by topic, without those that none leads or that are not there."""
    found: dict[int, dict[str, list[int]]] = {}
    for topic, index in places:
        known = image.topics.get(topic)
        if known is not None and index < len(known.partitions) and (leader := known.partitions[index].leader) >= 0:
            found.setdefault(leader, {}).setdefault(topic, []).append(index)
    return found


class PartitionReader:
    """Reads through `ask`, by the leaders of `image()`."""

    def __init__(self, ask: Ask, image: Callable[[], ClusterImage]) -> None:
        self._ask = ask
        self._image = image

    async def read(
        self, topic: str, partition: int, position: int, most_bytes: int, *, isolation: int = 0, wait_ms: int = 0
    ) -> Fetched:
        """What is there from an offset on, one batch at least unless there is none after `wait_ms`.  KafkaError."""
        image = self._image()
        leader = leader_of(image, topic, partition)
        row = Fetch.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=position,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=most_bytes,
        )
        request = Fetch(
            replica_id=CONSUMER,
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            max_bytes=most_bytes,
            isolation_level=isolation,
            session_epoch=NO_SESSION,
            topics=[Fetch.FetchTopic(topic=topic, topic_id=image.topics[topic].topic_id, partitions=[row])],
            forgotten_topics_data=[],
            rack_id="",
        )
        answer = await self._ask(wire.FetchResponse, request, leader)
        refuse(answer.error_code)
        found = answer.responses[0].partitions[0]
        refuse(found.error_code)
        # What a client decodes is no part of a file.
        records = bytes(found.records) if isinstance(found.records, bytes | memoryview) else b""
        aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
        return Fetched(records, aborted, found.high_watermark, found.log_start_offset)


async def ends_elsewhere(
    wanted: Iterable[Place], image: ClusterImage, node_id: int, clients: NodeClients
) -> Mapping[tuple[str, int], int]:
    """Where partitions end that other brokers lead than `node_id`: the lag of groups that are coordinated here asks for
    it.

    Each leader is given ENDS_SECONDS; what it does not tell is left out."""
    led = by_leader(image, wanted)
    led.pop(node_id, None)
    found: dict[tuple[str, int], int] = {}
    for part in await asyncio.gather(*(_ends(clients.of(leader), topics) for leader, topics in led.items())):
        found.update(part)
    return found


async def _ends(client: NodeClient, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int], int]:
    request = offsets_request(topics, LATEST)
    try:
        async with asyncio.timeout(ENDS_SECONDS):
            answer = await client.ask(wire.ListOffsetsResponse, request, ENDS_VERSION, seconds=ENDS_SECONDS)
    except (NodeError, TimeoutError) as error:
        logger.debug("a leader does not say where partitions end: %s", error)
        return {}
    return {
        (topic.name, row.partition_index): row.offset
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
    }
