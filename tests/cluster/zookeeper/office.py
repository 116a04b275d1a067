"""A controller over the model of ZooKeeper, and brokers that answer what it sends: all in one loop, in no time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.protocol_version import protocol_version
from kbroker.cluster.requests import BrokerEpoch, IsrChange, NewTopic
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.administration import Administration
from kbroker.cluster.zookeeper.channels import Answered
from kbroker.cluster.zookeeper.election import Election, Fence
from kbroker.cluster.zookeeper.entity_configs import EntityConfigs
from kbroker.cluster.zookeeper.registration import make_roots
from kbroker.cluster.zookeeper.session import ConnectionLossError, Create, Operation, Stat
from kbroker.cluster.zookeeper.term import Term, TermServices, TermState
from kbroker.cluster.zookeeper.znodes import BrokerEndpoint, BrokerZnode, encode_broker
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode
from kbroker.protocol.messages import Message
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession
from tests.unbroken import UNBROKEN

LISTENER = "PLAINTEXT"
T0 = TopicPartition("t", 0)


@dataclass
class FakeBroker:
    """What a broker was told, by the newest controller epoch alone."""

    node_id: int
    controller_epoch: int = -1
    states: dict[TopicPartition, Any] = field(default_factory=dict)
    metadata: dict[TopicPartition, Any] = field(default_factory=dict)
    live: list[int] = field(default_factory=list)
    stopped: list[tuple[TopicPartition, bool]] = field(default_factory=list)
    failed: set[TopicPartition] = field(default_factory=set)
    asked: list[list[TopicPartition]] = field(default_factory=list)
    """The partitions of each LeaderAndIsr."""

    def answer(self, request: Message, version: int) -> Any:
        if request.controller_epoch < self.controller_epoch:  # type: ignore[attr-defined]
            return None
        self.controller_epoch = request.controller_epoch  # type: ignore[attr-defined]
        if isinstance(request, wire.LeaderAndIsrRequest):
            return self._lead(request)
        if isinstance(request, wire.UpdateMetadataRequest):
            self.live = [each.id for each in request.live_brokers]
            for topic in request.topic_states:
                for row in topic.partition_states:
                    self.metadata[TopicPartition(topic.topic_name, row.partition_index)] = row
            return wire.UpdateMetadataResponse()
        assert isinstance(request, wire.StopReplicaRequest)
        for topic in request.topic_states:
            for row in topic.partition_states:
                name = TopicPartition(topic.topic_name, row.partition_index)
                self.stopped.append((name, row.delete_partition))
                self.states.pop(name, None)
        return wire.StopReplicaResponse(partition_errors=[])

    def _lead(self, request: wire.LeaderAndIsrRequest) -> wire.LeaderAndIsrResponse:
        response = wire.LeaderAndIsrResponse
        self.asked.append(
            [
                TopicPartition(topic.topic_name, row.partition_index)
                for topic in request.topic_states
                for row in topic.partition_states
            ]
        )
        topics = []
        for topic in request.topic_states:
            rows = []
            for row in topic.partition_states:
                name = TopicPartition(topic.topic_name, row.partition_index)
                known = self.states.get(name)
                code = ErrorCode.NONE
                if name in self.failed:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif known is not None and row.leader_epoch <= known.leader_epoch:
                    code = ErrorCode.STALE_CONTROLLER_EPOCH
                else:
                    self.states[name] = row
                rows.append(response.LeaderAndIsrPartitionError(partition_index=row.partition_index, error_code=code))
            topics.append(response.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows))
        return response(topics=topics)


class FakeChannels:
    """Delivers at once, in order, what the bytes of each request say."""

    def __init__(self, brokers: Mapping[int, FakeBroker]) -> None:
        self._brokers = brokers
        self._open: set[int] = set()
        self.sent: list[tuple[int, str]] = []

    def open(self, node_id: int) -> None:
        self._open.add(node_id)

    def close(self, node_id: int) -> None:
        self._open.discard(node_id)

    def send(self, node_id: int, request: Message, version: int, answered: Answered | None = None) -> None:
        if node_id not in self._open:
            return
        self.sent.append((node_id, type(request).__name__.removesuffix("Request")))
        program = type(request).program(version)
        answer = self._brokers[node_id].answer(program.decode(program.encode(request)), version)
        if answer is not None and answered is not None:
            answered(answer)

    def close_all(self) -> None:
        self._open.clear()


class Office:
    """A broker that stands for election over a session of its own."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.session = cluster.ensemble.session()
        self.configs = EntityConfigs(self.session)
        self.channels = FakeChannels(cluster.brokers)
        self.term: Term | None = None
        self.terms: list[Fence] = []
        config = BrokerConfig.from_mapping(cluster.settings)
        self._surroundings = TermServices(
            self.session, self.channels, self.configs, lambda: config, protocol_version("3.9"), LISTENER
        )
        self.election = Election(self.session, node_id, SYSTEM_CLOCK, self._elected, self._resigned)
        self._task = asyncio.ensure_future(self.election.run())

    def _elected(self, fence: Fence) -> None:
        self.terms.append(fence)
        self.term = Term(self._surroundings, self.node_id, "cluster", fence, self.election.resign)

    def _resigned(self) -> None:
        assert self.term is not None
        self.term.end()
        self.term = None

    @property
    def is_active(self) -> bool:
        return self.term is not None and self.term.state is TermState.ACTIVE

    @property
    def administration(self) -> Administration:
        assert self.term is not None
        return Administration(self.term, self.session, UNBROKEN)

    def close(self) -> None:
        self._task.cancel()
        if self.term is not None:
            self.term.end()


class Cluster:
    """The tree, the brokers that are registered in it, and those that may be the controller."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = dict(settings or {})
        self.ensemble = FakeEnsemble()
        self.brokers: dict[int, FakeBroker] = {}
        self.sessions: dict[int, FakeSession] = {}
        self.offices: list[Office] = []

    async def begin(self, brokers: Sequence[int], offices: int = 1) -> None:
        await make_roots(self.ensemble.session())
        for node_id in brokers:
            await self.come(node_id)
        self.offices = [Office(self, number) for number in range(1, offices + 1)]
        await self.settled()

    async def come(self, node_id: int) -> None:
        """A broker registers, with nothing in its memory."""
        session = self.sessions[node_id] = self.ensemble.session()
        failed = self.brokers[node_id].failed if node_id in self.brokers else set()
        self.brokers[node_id] = FakeBroker(node_id, failed=failed)
        content = encode_broker(BrokerZnode((BrokerEndpoint(LISTENER, LISTENER, "h", 9000 + node_id),)))
        await session.multi([Create(paths.broker(node_id), content, ephemeral=True)])

    def go(self, node_id: int) -> None:
        """A broker's session ends."""
        self.sessions.pop(node_id).drop()

    @property
    def office(self) -> Office:
        (active,) = [each for each in self.offices if each.is_active]
        return active

    async def settled(self) -> None:
        """Let the loop go on until nobody asks ZooKeeper for anything more."""
        quiet, last = 0, -1
        while quiet < 20:
            await asyncio.sleep(0)
            now = self.ensemble.zxid + sum(each.session.calls for each in self.offices)
            quiet, last = (quiet + 1, last) if now == last else (0, now)

    # What ZooKeeper has

    def json(self, path: str) -> Any:
        return json.loads(self.ensemble.content(path) or b"null")

    def state(self, topic: str, index: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.json(paths.state(topic, index))
        return found

    def states(self) -> dict[TopicPartition, dict[str, Any]]:
        return {
            TopicPartition(path.split("/")[3], int(path.split("/")[5])): self.json(path)
            for path in self.ensemble.nodes
            if path.endswith("/state")
        }

    async def create(self, name: str, assignment: Sequence[Sequence[int]], **configs: str) -> None:
        new = NewTopic(
            name,
            assignments=[(index, replicas) for index, replicas in enumerate(assignment)],
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        (outcome,) = await self.office.administration.create_topics([new], False, None)
        if outcome.error is not None:
            raise outcome.error
        await self.settled()

    def epoch_of(self, node_id: int) -> BrokerEpoch:
        return BrokerEpoch(node_id, self.ensemble.nodes[paths.broker(node_id)].czxid)

    def close(self) -> None:
        for each in self.offices:
            each.close()


def in_cluster(
    body: Callable[[Cluster], Any],
    brokers: Sequence[int] = (1, 2, 3),
    offices: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run `body` in a cluster that has begun."""

    async def main() -> None:
        cluster = Cluster(settings)
        await cluster.begin(brokers, offices)
        try:
            await body(cluster)
        finally:
            cluster.close()

    asyncio.run(main())


def brief(state: dict[str, object]) -> tuple[object, object, object]:
    return state["leader"], state["leader_epoch"], state["isr"]


async def take_isr(cluster: Cluster, name: TopicPartition, isr: list[int]) -> int:
    """The leader asks for an ISR; the error code."""
    state = cluster.state(name.topic, name.partition)
    version = cluster.ensemble.nodes[paths.state(name.topic, name.partition)].version
    change = IsrChange(name, state["leader_epoch"], version, [(each, -1) for each in isr])
    broker = cluster.epoch_of(state["leader"])
    (outcome,) = await cluster.office.administration.alter_partitions(broker, [change])
    await cluster.settled()
    return 0 if outcome.error is None else outcome.error.code


def before_each_write(session: FakeSession, act: Callable[[Sequence[Operation]], None]) -> None:
    """Have `act` called before what a session writes."""
    write = session.multi

    async def multi(operations: Sequence[Operation]) -> list[Stat | None]:
        act(operations)
        return await write(operations)

    session.multi = multi  # type: ignore[method-assign]


def ends_behind(session: FakeSession, writes: int, *, sees_last: bool) -> None:
    """The session ends when so much has been written; unless it `sees_last`, the next is written, too, unanswered."""
    left = writes

    def count(_operations: Sequence[Operation]) -> None:
        nonlocal left
        if not left and sees_last:
            session.drop()
            raise ConnectionLossError("the controller stands still")
        if not left:
            session.lose_next_answer()
        left -= 1

    before_each_write(session, count)
