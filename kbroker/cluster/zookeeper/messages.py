"""The requests of a ZooKeeper controller to brokers, built from its context: pure.

LeaderAndIsr goes to the replicas' brokers and says which partitions they lead and follow.  UpdateMetadata goes to all
brokers, with what they answer to clients.  StopReplica goes to the brokers of replicas that are stopped.  Which
versions depends on `inter.broker.protocol.version` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kbroker.cluster.protocol_version import (
    ENDPOINTS_IN_UPDATE,
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    STATES_IN_STOP,
    TOPICS_IN_LEADER_AND_ISR,
    TOPICS_IN_STOP,
    TOPICS_IN_UPDATE,
    ProtocolVersion,
)
from kbroker.cluster.zookeeper.context import ControllerContext, lacks_state
from kbroker.cluster.zookeeper.znodes import SECURITY_PROTOCOLS
from kbroker.metadata.image import PartitionImage
from kbroker.schemas import wire
from kbroker.types import TopicPartition

Request = wire.LeaderAndIsrRequest | wire.UpdateMetadataRequest | wire.StopReplicaRequest


class Messages:
    """Builds requests as one context, IBP and inter-broker listener have them."""

    __slots__ = ("_context", "_listener", "_versions")

    def __init__(self, context: ControllerContext, versions: ProtocolVersion, listener: str) -> None:
        self._context = context
        self._versions = versions
        self._listener = listener

    # LeaderAndIsr

    def leader_and_isr(
        self, names: Iterable[TopicPartition], new_replicas: Mapping[TopicPartition, Collection[int]] | None = None
    ) -> dict[int, tuple[wire.LeaderAndIsrRequest, int]]:
        """For each live replica's broker, the states of its partitions.  `new_replicas` have no log yet."""
        context, new = self._context, new_replicas or {}
        by_broker: dict[int, list[tuple[TopicPartition, PartitionImage]]] = {}
        for name in names:
            partition = context.partition(name)
            if partition is None or lacks_state(partition):
                continue
            for node_id in partition.replicas:
                if node_id in context.image.brokers:
                    by_broker.setdefault(node_id, []).append((name, partition))
        return {node_id: self._leader_and_isr(node_id, states, new) for node_id, states in by_broker.items()}

    def _leader_and_isr(
        self,
        node_id: int,
        states: Sequence[tuple[TopicPartition, PartitionImage]],
        new: Mapping[TopicPartition, Collection[int]],
    ) -> tuple[wire.LeaderAndIsrRequest, int]:
        context, version = self._context, self._versions.leader_and_isr
        rows: dict[str, list[wire.LeaderAndIsrRequest.LeaderAndIsrPartitionState]] = {}
        leaders = set()
        for name, each in states:
            leaders.add(each.leader)
            rows.setdefault(name.topic, []).append(
                wire.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                    topic_name=name.topic,
                    partition_index=name.partition,
                    controller_epoch=context.state_epochs.get(name, context.fence.epoch),
                    leader=each.leader,
                    leader_epoch=each.leader_epoch,
                    isr=list(each.isr),
                    partition_epoch=each.partition_epoch,
                    replicas=list(each.replicas),
                    adding_replicas=list(each.adding_replicas),
                    removing_replicas=list(each.removing_replicas),
                    is_new=node_id in new.get(name, ()),
                    leader_recovery_state=int(name in context.recovering),
                )
            )
        request = wire.LeaderAndIsrRequest(
            controller_id=context.node_id,
            controller_epoch=context.fence.epoch,
            broker_epoch=context.image.brokers[node_id].epoch,
            live_leaders=self._live_leaders(leaders),
        )
        if version < TOPICS_IN_LEADER_AND_ISR:
            request.ungrouped_partition_states = [row for of_topic in rows.values() for row in of_topic]
        else:
            request.topic_states = [
                wire.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=context.image.topics[topic].topic_id, partition_states=of_topic
                )
                for topic, of_topic in rows.items()
            ]
        return request, version

    def _live_leaders(self, leaders: Iterable[int]) -> list[wire.LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
        found = []
        for node_id in sorted(leaders):
            registration = self._context.registrations.get(node_id)
            endpoint = None if registration is None else registration.endpoint(self._listener)
            if endpoint is not None:
                found.append(
                    wire.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                        broker_id=node_id, host_name=endpoint.host, port=endpoint.port
                    )
                )
        return found

    # UpdateMetadata

    def update_metadata(
        self, names: Iterable[TopicPartition], to: Iterable[int] | None = None
    ) -> dict[int, tuple[wire.UpdateMetadataRequest, int]]:
        """For each live broker, or those in `to`: who is live, and the states of partitions."""
        context, version = self._context, self._versions.update_metadata
        rows: dict[str, list[wire.UpdateMetadataRequest.UpdateMetadataPartitionState]] = {}
        for name in names:
            partition = context.partition(name)
            if partition is not None and not lacks_state(partition):
                rows.setdefault(name.topic, []).append(self._metadata_row(name, partition))
        brokers = self._live_brokers(version)
        return {
            node_id: (self._update_metadata(node_id, rows, brokers, version), version)
            for node_id in (context.live() if to is None else to)
            if node_id in context.image.brokers
        }

    def _update_metadata(
        self,
        node_id: int,
        rows: Mapping[str, list[wire.UpdateMetadataRequest.UpdateMetadataPartitionState]],
        brokers: list[wire.UpdateMetadataRequest.UpdateMetadataBroker],
        version: int,
    ) -> wire.UpdateMetadataRequest:
        context = self._context
        request = wire.UpdateMetadataRequest(
            controller_id=context.node_id,
            controller_epoch=context.fence.epoch,
            broker_epoch=context.image.brokers[node_id].epoch,
            live_brokers=brokers,
        )
        if version < TOPICS_IN_UPDATE:
            request.ungrouped_partition_states = [row for of_topic in rows.values() for row in of_topic]
        else:
            request.topic_states = [
                wire.UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=topic, topic_id=context.image.topics[topic].topic_id, partition_states=of_topic
                )
                for topic, of_topic in rows.items()
            ]
        return request

    def _metadata_row(
        self, name: TopicPartition, partition: PartitionImage
    ) -> wire.UpdateMetadataRequest.UpdateMetadataPartitionState:
        context = self._context
        is_going = name.topic in context.deleting
        return wire.UpdateMetadataRequest.UpdateMetadataPartitionState(
            topic_name=name.topic,
            partition_index=name.partition,
            controller_epoch=context.state_epochs.get(name, context.fence.epoch),
            leader=LEADER_DURING_DELETE if is_going else partition.leader,
            leader_epoch=0 if is_going else partition.leader_epoch,
            isr=[] if is_going else list(partition.isr),
            zk_version=0 if is_going else partition.partition_epoch,
            replicas=list(partition.replicas),
            offline_replicas=[each for each in partition.replicas if not context.is_served(partition, each)],
        )

    def _live_brokers(self, version: int) -> list[wire.UpdateMetadataRequest.UpdateMetadataBroker]:
        found = []
        for node_id, registration in sorted(self._context.registrations.items()):
            broker = wire.UpdateMetadataRequest.UpdateMetadataBroker(id=node_id, rack=registration.rack)
            own = registration.endpoint(self._listener) or registration.endpoints[0]
            if version < ENDPOINTS_IN_UPDATE:
                broker.v0_host, broker.v0_port = own.host, own.port
            else:
                broker.endpoints = [
                    wire.UpdateMetadataRequest.UpdateMetadataEndpoint(
                        port=each.port,
                        host=each.host,
                        listener=each.listener,
                        security_protocol=SECURITY_PROTOCOLS.index(each.protocol),
                    )
                    for each in registration.endpoints
                ]
            found.append(broker)
        return found

    # StopReplica

    def stop_replica(
        self, node_id: int, names: Sequence[TopicPartition], delete: bool
    ) -> list[tuple[wire.StopReplicaRequest, int]]:
        """That a broker stops its replicas of partitions, and with `delete` removes their logs."""
        context, version = self._context, self._versions.stop_replica
        if node_id not in context.image.brokers or not names:
            return []
        request = wire.StopReplicaRequest(
            controller_id=context.node_id,
            controller_epoch=context.fence.epoch,
            broker_epoch=context.image.brokers[node_id].epoch,
            delete_partitions=delete and version < STATES_IN_STOP,
        )
        by_topic: dict[str, list[TopicPartition]] = {}
        for name in names:
            by_topic.setdefault(name.topic, []).append(name)
        if version >= STATES_IN_STOP:
            request.topic_states = [
                wire.StopReplicaRequest.StopReplicaTopicState(
                    topic_name=topic,
                    partition_states=[
                        wire.StopReplicaRequest.StopReplicaPartitionState(
                            partition_index=name.partition,
                            leader_epoch=self._stop_epoch(name),
                            delete_partition=delete,
                        )
                        for name in of_topic
                    ],
                )
                for topic, of_topic in by_topic.items()
            ]
        elif version >= TOPICS_IN_STOP:
            request.topics = [
                wire.StopReplicaRequest.StopReplicaTopicV1(
                    name=topic, partition_indexes=[name.partition for name in of_topic]
                )
                for topic, of_topic in by_topic.items()
            ]
        else:
            request.ungrouped_partitions = [
                wire.StopReplicaRequest.StopReplicaPartitionV0(topic_name=name.topic, partition_index=name.partition)
                for name in names
            ]
        return [(request, version)]

    def _stop_epoch(self, name: TopicPartition) -> int:
        partition = self._context.partition(name)
        if name.topic in self._context.deleting or partition is None:
            return EPOCH_DURING_DELETE
        return partition.leader_epoch
