"""A controller that a test moves by hand: it decides what it is told to, sends LeaderAndIsr and UpdateMetadata as a
ZooKeeper controller does, and grants the ISRs that leaders propose."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from kbroker.cluster.client import ClientSettings, NodeClient, NodeError
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.coordinator.runtime.partitioner import partition_for
from kbroker.metadata.image import NO_LEADER, Endpoint, PartitionImage
from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message, wire
from kbroker.types import TopicPartition, random_uuid

if TYPE_CHECKING:
    from kbroker.cluster.client import Transport

VERSIONS = {
    ApiKey.API_VERSIONS: 4,
    ApiKey.ALTER_PARTITION: 3,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
}
CONTROLLER = 100
INVALID_UPDATE_VERSION, FENCED_LEADER_EPOCH, INELIGIBLE_REPLICA = 95, 74, 107
COORDINATOR_NOT_AVAILABLE = 15
STATE_TOPICS = ("__consumer_offsets", "__transaction_state")


@dataclass(slots=True)
class Node:
    """A broker as the controller knows it."""

    host: str
    port: int
    epoch: int
    client: NodeClient
    alive: bool = True
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: list[PartitionImage] = field(default_factory=list)


class HandController:
    """Node 100 of a cluster."""

    def __init__(self, epoch: int = 1, transport: Transport | None = None) -> None:
        self._transport = transport
        self.epoch = epoch
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.next_producer_id = 1000
        self.alterations: list[tuple[TopicPartition, tuple[int, ...]]] = []
        self.named_epochs: list[dict[int, int]] = []
        self.grants = True
        self.port = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for node in self.nodes.values():
            node.client.close()
        for task in self._tasks:
            task.cancel()
        self._server.close()

    # What it is told

    async def came(self, node_id: int, port: int, epoch: int, host: str = "127.0.0.1") -> None:
        """A broker has registered: it is told everything, and the others that it is there."""
        loop = asyncio.get_running_loop()
        endpoint = Endpoint(host, port)
        settings = ClientSettings(str(CONTROLLER), backoff_seconds=0.02, max_backoff_seconds=0.1)
        if node_id in self.nodes:
            self.nodes[node_id].client.close()
        client = NodeClient(loop, self._transport or TcpTransport(loop), lambda: endpoint, settings, Random(epoch))
        self.nodes[node_id] = Node(host, port, epoch, client)
        all_at_once = {node_id: self._all()}
        await asyncio.gather(
            *(self._send(each, partial(self._metadata, all_at_once.get(each, []), each), 8) for each in self._alive())
        )
        await self.tell(self._all())

    async def died(self, node_id: int, *, unclean: bool = False) -> None:
        """A broker's session has ended: it leaves the ISRs, and its leaders are elected anew."""
        self.nodes[node_id].alive = False
        self.nodes[node_id].client.close()
        await self.move_away(node_id, unclean=unclean)

    async def move_away(self, node_id: int, *, unclean: bool = False) -> None:
        changed = []
        for topic in self.topics.values():
            for image in topic.partitions:
                if node_id not in image.replicas:
                    continue
                alive = [each for each in image.replicas if self.nodes[each].alive and each != node_id]
                isr = tuple(each for each in image.isr if each != node_id) or image.isr
                leader = image.leader
                if leader == node_id:
                    candidates = [each for each in alive if each in isr]
                    leader = candidates[0] if candidates else NO_LEADER
                    if leader == NO_LEADER and unclean and alive:
                        leader, isr = alive[0], (alive[0],)
                if (leader, isr) != (image.leader, image.isr):
                    self._put(topic, replace(image, leader=leader, isr=isr, leader_epoch=image.leader_epoch + 1))
                    changed.append(TopicPartition(topic.name, image.partition))
        await self.tell(changed)

    async def create(self, name: str, assignments: Sequence[Sequence[int]]) -> None:
        topic = self.topics[name] = Topic(name, random_uuid())
        for index, replicas in enumerate(assignments):
            isr = tuple(each for each in replicas if self.nodes[each].alive)
            topic.partitions.append(PartitionImage(index, isr[0], 0, tuple(replicas), isr))
        await self.tell([TopicPartition(name, index) for index in range(len(assignments))])

    async def elect(self, name: TopicPartition, leader: int, isr: tuple[int, ...] | None = None) -> None:
        topic = self.topics[name.topic]
        image = topic.partitions[name.partition]
        self._put(topic, replace(image, leader=leader, leader_epoch=image.leader_epoch + 1, isr=isr or image.isr))
        await self.tell([name])

    def image(self, topic: str, index: int = 0) -> PartitionImage:
        return self.topics[topic].partitions[index]

    def _put(self, topic: Topic, image: PartitionImage) -> None:
        topic.partitions[image.partition] = replace(image, partition_epoch=image.partition_epoch + 1)

    def _all(self) -> list[TopicPartition]:
        return [TopicPartition(topic.name, row.partition) for topic in self.topics.values() for row in topic.partitions]

    # What it sends

    async def tell(self, names: Iterable[TopicPartition]) -> list[Any]:
        """LeaderAndIsr to the replicas, then UpdateMetadata to all; each broker's in order, brokers side by side."""
        names = list(names)
        await asyncio.gather(*(self._tell_one(node_id, names) for node_id in self._alive()))
        return []

    async def _tell_one(self, node_id: int, names: list[TopicPartition]) -> None:
        await self.leader_and_isr(node_id, names)
        await self._send(node_id, lambda: self._metadata(names, node_id), 8)

    async def tell_metadata(self, names: list[TopicPartition]) -> None:
        await asyncio.gather(*(self._send(each, partial(self._metadata, names, each), 8) for each in self._alive()))

    def _alive(self) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.alive]

    async def leader_and_isr(self, node_id: int, names: list[TopicPartition], **head: Any) -> Any:
        return await self._send(node_id, lambda: self._states(node_id, names, head), 7)

    def _states(self, node_id: int, names: list[TopicPartition], head: dict[str, Any]) -> Any:
        request = wire.LeaderAndIsrRequest
        topics: dict[str, list[Any]] = {}
        for name in names:
            image = self.topics[name.topic].partitions[name.partition]
            if node_id in image.replicas:
                row = request.LeaderAndIsrPartitionState(
                    partition_index=image.partition,
                    controller_epoch=self.epoch,
                    leader=image.leader,
                    leader_epoch=image.leader_epoch,
                    isr=list(image.isr),
                    partition_epoch=image.partition_epoch,
                    replicas=list(image.replicas),
                )
                topics.setdefault(name.topic, []).append(row)
        if not topics:
            return None
        states = [
            request.LeaderAndIsrTopicState(
                topic_name=topic, topic_id=self.topics[topic].topic_id, partition_states=rows
            )
            for topic, rows in topics.items()
        ]
        leaders = [
            request.LeaderAndIsrLiveLeader(broker_id=each, host_name=self.nodes[each].host, port=self.nodes[each].port)
            for each in self._alive()
        ]
        values = {"controller_epoch": self.epoch, "broker_epoch": self.nodes[node_id].epoch, **head}
        return request(controller_id=CONTROLLER, topic_states=states, live_leaders=leaders, **values)

    async def stop_replica(self, node_id: int, name: TopicPartition, *, delete: bool, epoch: int) -> Any:
        request = wire.StopReplicaRequest
        row = request.StopReplicaPartitionState(
            partition_index=name.partition, leader_epoch=epoch, delete_partition=delete
        )
        state = request.StopReplicaTopicState(topic_name=name.topic, partition_states=[row])
        body = request(
            controller_id=CONTROLLER,
            controller_epoch=self.epoch,
            broker_epoch=self.nodes[node_id].epoch,
            topic_states=[state],
        )
        return await self._send(node_id, lambda: body, 4)

    def _metadata(self, names: list[TopicPartition], node_id: int) -> Any:
        request = wire.UpdateMetadataRequest
        topics: dict[str, list[Any]] = {}
        for name in names:
            image = self.topics[name.topic].partitions[name.partition]
            row = request.UpdateMetadataPartitionState(
                partition_index=image.partition,
                controller_epoch=self.epoch,
                leader=image.leader,
                leader_epoch=image.leader_epoch,
                isr=list(image.isr),
                zk_version=image.partition_epoch,
                replicas=list(image.replicas),
                offline_replicas=[each for each in image.replicas if not self.nodes[each].alive],
            )
            topics.setdefault(name.topic, []).append(row)
        own = ("127.0.0.1" if self._transport is None else str(CONTROLLER), self.port)
        addresses = {
            CONTROLLER: own,
            **{each: (self.nodes[each].host, self.nodes[each].port) for each in self._alive()},
        }
        brokers = [
            request.UpdateMetadataBroker(
                id=each,
                endpoints=[
                    request.UpdateMetadataEndpoint(port=port, host=host, listener="PLAINTEXT", security_protocol=0)
                ],
                rack=None,
            )
            for each, (host, port) in addresses.items()
        ]
        return request(
            controller_id=CONTROLLER,
            controller_epoch=self.epoch,
            broker_epoch=self.nodes[node_id].epoch,
            topic_states=[
                request.UpdateMetadataTopicState(
                    topic_name=topic, topic_id=self.topics[topic].topic_id, partition_states=rows
                )
                for topic, rows in topics.items()
            ],
            live_brokers=brokers,
        )

    async def _send(self, node_id: int, make: Callable[[], Any], version: int) -> Any:
        """As a ZooKeeper controller: each broker's one after the other, until it is answered or the broker is gone.

        A request is made in its turn, as what was so before may not reach a broker later; None: there is nothing."""
        node = self.nodes[node_id]
        async with node.turn:
            body = make()
            while body is not None and node.alive and self.nodes.get(node_id) is node:
                try:
                    return await node.client.send(body, version)
                except NodeError:
                    await asyncio.sleep(0.05)
        return None

    # What it serves

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header = decode_request_header(frame)
                request = request_message(header.api_key).program(header.api_version).decode(frame, header.size)
                answer = await self.answer(header, request)
                encoded: Any = (
                    type(answer)
                    .program(header.api_version)
                    .encode_response(
                        answer,
                        header.correlation_id,
                        response_header_version(ApiKey(header.api_key), header.api_version) > 0,
                    )
                )
                writer.write(encoded if isinstance(encoded, bytes) else b"".join(bytes(part) for part in encoded))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, header: Any, request: Any) -> Any:
        if header.api_key == ApiKey.API_VERSIONS:
            response = wire.ApiVersionsResponse
            rows = [response.ApiVersion(api_key=key, min_version=0, max_version=most) for key, most in VERSIONS.items()]
            return response(api_keys=rows)
        if header.api_key == ApiKey.ALTER_PARTITION:
            return self._alter(request)
        if header.api_key == ApiKey.ALLOCATE_PRODUCER_IDS:
            first, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1000
            return wire.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=1000)
        if header.api_key == ApiKey.CONTROLLED_SHUTDOWN:
            await self.move_away(request.broker_id)
            return wire.ControlledShutdownResponse()
        # A client takes the controller for a broker like the others.
        if header.api_key == ApiKey.FIND_COORDINATOR:
            return self._coordinator(request)
        if header.api_key == ApiKey.INIT_PRODUCER_ID:
            return wire.InitProducerIdResponse(error_code=COORDINATOR_NOT_AVAILABLE)
        assert header.api_key == ApiKey.METADATA
        return self._described()

    def _described(self) -> Any:
        response = wire.MetadataResponse
        ports = {CONTROLLER: self.port, **{each: self.nodes[each].port for each in self._alive()}}
        topics = [
            response.MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    response.MetadataResponsePartition(
                        error_code=0 if row.leader >= 0 else 5,
                        partition_index=row.partition,
                        leader_id=row.leader,
                        leader_epoch=row.leader_epoch,
                        replica_nodes=list(row.replicas),
                        isr_nodes=list(row.isr),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in self.topics.values()
        ]
        brokers = [
            response.MetadataResponseBroker(node_id=each, host="127.0.0.1", port=at) for each, at in ports.items()
        ]
        return response(brokers=brokers, controller_id=CONTROLLER, topics=topics)

    def _coordinator(self, request: Any) -> Any:
        topic = self.topics.get(STATE_TOPICS[request.key_type])
        leader = -1 if topic is None else topic.partitions[partition_for(request.key, len(topic.partitions))].leader
        if leader < 0:
            return wire.FindCoordinatorResponse(error_code=COORDINATOR_NOT_AVAILABLE)
        return wire.FindCoordinatorResponse(node_id=leader, host="127.0.0.1", port=self.nodes[leader].port)

    def _may_join(self, state: Any) -> bool:
        node = self.nodes[state.broker_id]
        return node.alive and state.broker_epoch in (-1, node.epoch)

    def _alter(self, request: Any) -> Any:
        if not self.grants:
            return wire.AlterPartitionResponse(error_code=41)
        response = wire.AlterPartitionResponse
        names = {topic.topic_id: topic for topic in self.topics.values()}
        topics = []
        for each in request.topics:
            topic = names[each.topic_id]
            rows = []
            for row in each.partitions:
                image = topic.partitions[row.partition_index]
                isr = tuple(state.broker_id for state in row.new_isr_with_epochs)
                code = 0
                if row.leader_epoch != image.leader_epoch:
                    code = FENCED_LEADER_EPOCH
                elif isr == image.isr:
                    pass  # Granted before, and the answer was lost.
                elif row.partition_epoch != image.partition_epoch:
                    code = INVALID_UPDATE_VERSION
                elif not all(self._may_join(state) for state in row.new_isr_with_epochs):
                    code = INELIGIBLE_REPLICA
                else:
                    name = TopicPartition(topic.name, image.partition)
                    self.alterations.append((name, isr))
                    self.named_epochs.append({state.broker_id: state.broker_epoch for state in row.new_isr_with_epochs})
                    self._put(topic, replace(image, isr=isr))
                    image = topic.partitions[row.partition_index]
                    task = asyncio.get_running_loop().create_task(self.tell_metadata([name]))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                rows.append(
                    response.PartitionData(
                        partition_index=image.partition,
                        error_code=code,
                        leader_id=image.leader,
                        leader_epoch=image.leader_epoch,
                        isr=list(image.isr),
                        partition_epoch=image.partition_epoch,
                    )
                )
            topics.append(response.TopicData(topic_id=each.topic_id, partitions=rows))
        return response(topics=topics)
