"""Hands over the partitions that this broker leads on a disk without space, to in-sync replicas that have room.

    FULL      a log directory finds no space for HOLD_SECONDS: nothing could be deleted
    asked     the other brokers of the ISRs, for the room of their directories (DescribeLogDirs)
    given up  partitions that another replica has room for: the controller hears that the replica here is offline, as
              for a failed disk, and elects another leader; this broker answers KAFKA_STORAGE_ERROR for them
    back      the directory has had room for HOLD_SECONDS: the broker registers anew, as after a new session, and
              follows

A new partition for whose log there was no room is offline for the controller, too, from then on: it would neither be
led here nor, if it is deleted, ever be gone.  So the broker registers anew for that as well.

A partition for which no other replica has room, or whose ISR is this broker alone, is kept: its records can be read, at
least.  Registering anew costs the broker all that it leads for a moment, so it does not happen more often than once in
CALM_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kbroker.cluster.client import NodeError
from kbroker.cluster.requests import ReplicaReport
from kbroker.errors import KafkaError
from kbroker.metrics.readiness import Problem
from kbroker.outage import Outage
from kbroker.schemas import wire
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.replication.partition import Partition
    from kbroker.replication.replica_manager import ReplicaManager

logger = logging.getLogger("kbroker.replication")

HOLD_SECONDS = 5.0
CALM_SECONDS = 60.0
ROOM_BYTES = 256 << 20
LATEST_VERSION = 4


class Cluster(Protocol):
    """What a handover needs of the cluster."""

    @property
    def node_id(self) -> int:
        """This broker."""

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is there."""

    async def report(self, report: ReplicaReport) -> None:
        """Tell the controller what became of replicas here.  KafkaError."""

    def renew(self) -> None:
        """Register anew."""


class Handover:
    """Call `look` every second or so; `now()` is monotonic."""

    def __init__(
        self, replicas: ReplicaManager, cluster: Cluster, clients: NodeClients, now: Callable[[], float]
    ) -> None:
        self._replicas = replicas
        self._cluster = cluster
        self._clients = clients
        self._now = now
        self._full_since: dict[str, float] = {}
        self._given: dict[TopicPartition, str] = {}
        self._roomy_since = math.inf
        self._renewed_at = -math.inf
        self._outage = Outage(logger, now=now)
        replicas.roles.given_up = self._given

    def problems(self) -> Iterator[Problem]:
        """What was handed over, for `/readyz`."""
        for path in sorted(set(self._given.values())):
            count = sum(each == path for each in self._given.values())
            yield Problem(f"{count} partitions of log directory {path}, which has no space, were handed over to others")

    async def look(self) -> None:
        """Hand over, or take back, what is due."""
        now = self._now()
        manager = self._replicas.log_manager
        space_guards = manager.space_guards
        for name in [each for each in self._given if manager.get_log(each) is None]:
            del self._given[name]
        self._full_since = {
            guard.path: self._full_since.get(guard.path, now) for guard in space_guards if guard.is_refusing
        }
        refused = self._replicas.logs.without_room.refused
        if (self._given or refused) and all(
            guard.is_roomy(ROOM_BYTES) for guard in space_guards if refused or guard.path in self._given.values()
        ):
            self._roomy_since = min(self._roomy_since, now)
            if now - self._roomy_since >= HOLD_SECONDS and now - self._renewed_at >= CALM_SECONDS:
                self._take_back()
            return
        self._roomy_since = math.inf
        held = {path for path, since in self._full_since.items() if now - since >= HOLD_SECONDS}
        if held and now - self._renewed_at >= CALM_SECONDS:
            led = [each for each in self._replicas if each.log.parent in held and self._others(each)]
            if led:
                await self._hand_over(led)

    def _others(self, partition: Partition) -> list[int]:
        own = self._cluster.node_id
        return [each for each in partition.isr if each != own and self._cluster.is_alive(each)]

    async def _hand_over(self, led: Sequence[Partition]) -> None:
        known = [each for each in led if each.topic_partition in self._given]
        asked = [each for each in led if each.topic_partition not in self._given]
        nodes = sorted({node for each in asked for node in self._others(each)})
        roomy = dict(zip(nodes, await asyncio.gather(*(self._roomy(node, asked) for node in nodes)), strict=True))
        given = [
            each for each in asked if any(each.topic_partition in roomy.get(node, ()) for node in self._others(each))
        ]
        for each in given:
            self._given[each.topic_partition] = each.log.parent
        if given:
            logger.error(
                "%d partitions in %s are handed over to in-sync replicas that have room: %s",
                len(given),
                ", ".join(sorted({each.log.parent for each in given})),
                ", ".join(str(each) for each in given[:20]),
            )
        if given or known:
            # Partitions handed over before are reported again: the controller that knew of them may be gone.
            await self._report(ReplicaReport(offline=frozenset(each.topic_partition for each in (*given, *known))))

    async def _report(self, report: ReplicaReport) -> None:
        try:
            await self._cluster.report(report)
        except KafkaError as error:
            text = "the controller does not know of partitions that are to be handed over yet: %s"
            self._outage.failed(text, error)
        else:
            self._outage.over("the controller knows of partitions that are to be handed over")

    async def _roomy(self, node_id: int, partitions: Iterable[Partition]) -> Collection[TopicPartition]:
        """The partitions that a broker has in a directory with room, and those of directories whose room it does not
        say."""
        names = {each.topic_partition for each in partitions}
        topics: dict[str, list[int]] = {}
        for name in names:
            topics.setdefault(name.topic, []).append(name.partition)
        request = wire.DescribeLogDirsRequest
        asked = request(
            topics=[request.DescribableLogDirTopic(topic=topic, partitions=rows) for topic, rows in topics.items()]
        )
        client = self._clients.of(node_id)
        try:
            answer = await client.ask(wire.DescribeLogDirsResponse, asked, LATEST_VERSION)
        except NodeError as error:
            logger.info("broker %d does not say what room it has: %s", node_id, error)
            return ()
        return [
            name
            for directory in answer.results
            if not directory.error_code and not 0 <= directory.usable_bytes < ROOM_BYTES
            for topic in directory.topics
            for row in topic.partitions
            if not row.is_future_key and (name := TopicPartition(topic.name, row.partition_index)) in names
        ]

    def _take_back(self) -> None:
        refused = self._replicas.logs.without_room.refused
        logger.warning("%d partitions are followed again: there is room for them", len(self._given) + len(refused))
        self._given.clear()
        self._replicas.logs.retry_refused()
        self._roomy_since = math.inf
        self._renewed_at = self._now()
        self._cluster.renew()
