"""What an active controller of the model answers brokers for themselves: their life, their ISRs, their directories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbroker.cluster.partitions import change, take_isr
from kbroker.cluster.requests import IsrChange
from kbroker.error_codes import ErrorCode
from kbroker.errors import KafkaError
from kbroker.metadata.image import NO_LEADER
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.simulation.kraft.deciding import RECOVERED, Batch
from tests.simulation.kraft.state import change_record

if TYPE_CHECKING:
    from tests.simulation.kraft.state import MetadataState

PRODUCER_IDS = 1000


class Active:
    """One controller's time in one epoch.  `state` has what it has written, committed or not."""

    def __init__(self, state: MetadataState, epoch: int, now: Callable[[], float], session_seconds: float) -> None:
        self.state = state
        self.epoch = epoch
        self.is_ready = False
        """Whether the first record of its epoch is committed."""
        self._now = now
        self._session_seconds = session_seconds
        self._heard: dict[int, float] = {}
        self._offsets: dict[int, int] = {}
        """Up to where a broker's image is, as its last heartbeat says."""
        self._leaving_since: dict[int, int] = {}

    def begin(self) -> None:
        """It is active from now on: sessions begin anew."""
        self.is_ready = True
        self._heard = {node: self._now() for node, each in self.state.members.items() if not each.is_fenced}

    def _has_session(self, node: int) -> bool:
        return self._now() < self._heard.get(node, -1e9) + self._session_seconds

    def overdue(self) -> list[int]:
        """Brokers whose session is over."""
        members = self.state.members
        return [node for node, each in members.items() if not each.is_fenced and not self._has_session(node)]

    # Their life

    def register(self, request: wire.BrokerRegistrationRequest, batch: Batch) -> wire.BrokerRegistrationResponse:
        node, before = request.broker_id, self.state.members.get(request.broker_id)
        if before is not None and bytes(before.value.incarnation_id) == bytes(request.incarnation_id):
            return wire.BrokerRegistrationResponse(broker_epoch=before.epoch)
        if self._has_session(node):
            return wire.BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        batch.register(request)
        self._offsets.pop(node, None)
        self._leaving_since.pop(node, None)
        return wire.BrokerRegistrationResponse(broker_epoch=batch.member(node).epoch)

    def beat(self, request: wire.BrokerHeartbeatRequest, batch: Batch) -> wire.BrokerHeartbeatResponse:
        node, answer = request.broker_id, wire.BrokerHeartbeatResponse
        member = self.state.members.get(node)
        if member is None or member.epoch != request.broker_epoch:
            return answer(error_code=ErrorCode.STALE_BROKER_EPOCH)
        self._heard[node] = self._now()
        self._offsets[node] = request.current_metadata_offset
        is_caught_up = request.current_metadata_offset >= member.offset
        if lost := {bytes(each) for each in request.offline_log_dirs} & set(member.log_dirs):
            batch.lose_directories(node, lost)
        may_go = False
        if request.want_shut_down:
            may_go = self._lets_go(node, batch)
        elif member.is_fenced and not request.want_fence and is_caught_up:
            batch.unfence(node)
        elif not member.is_fenced and request.want_fence:
            batch.fence(node)
        is_fenced = self.state.members[node].is_fenced
        return answer(is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=may_go)

    def _lets_go(self, node: int, batch: Batch) -> bool:
        """Whether a broker may stop now: it leads nothing, and all others know that."""
        member = self.state.members[node]
        if member.is_fenced:
            return True
        if not member.is_leaving and batch.leads_something(node):
            batch.begin_leaving(node)
            self._leaving_since[node] = batch.base + len(batch.records) - 1
            return False
        # One that has begun under another controller waits for all of its log.
        since = self._leaving_since.setdefault(node, batch.base - 1) if member.is_leaving else -1
        others = self.state.alive() - {node}
        if batch.leads_something(node) or any(self._offsets.get(each, -1) < since for each in others):
            return False
        batch.fence(node)
        return True

    # Their partitions

    def alter_partitions(self, request: wire.AlterPartitionRequest, batch: Batch) -> wire.AlterPartitionResponse:
        answer = wire.AlterPartitionResponse
        if self._is_stale(request):
            return answer(error_code=ErrorCode.STALE_BROKER_EPOCH)
        topics = []
        for topic in request.topics:
            rows = [self._alter(request.broker_id, bytes(topic.topic_id), each, batch) for each in topic.partitions]
            topics.append(answer.TopicData(topic_id=topic.topic_id, partitions=rows))
        return answer(topics=topics)

    def _is_stale(self, request: Any) -> bool:
        member = self.state.members.get(request.broker_id)
        return member is None or member.epoch != request.broker_epoch

    def _alter(
        self, node: int, topic_id: bytes, asked: wire.AlterPartitionRequest.PartitionData, batch: Batch
    ) -> wire.AlterPartitionResponse.PartitionData:
        made = wire.AlterPartitionResponse.PartitionData
        topic = self.state.topics.get(topic_id)
        old = None if topic is None else topic.partitions.get(asked.partition_index)
        if topic is None or old is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return made(partition_index=asked.partition_index, error_code=code)
        wanted = [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]
        name = TopicPartition(topic.name, asked.partition_index)
        epochs = {each: member.epoch for each, member in self.state.members.items()}
        change = IsrChange(name, asked.leader_epoch, asked.partition_epoch, wanted, topic_id)
        try:
            new = take_isr(batch.viewed(old), node, change, batch.context(topic), epochs)
        except KafkaError as error:
            return made(partition_index=asked.partition_index, error_code=error.code)
        if new.partition_epoch != old.partition_epoch:
            new = replace(new, leader_recovery_state=RECOVERED)
        now = batch.alter(topic, old, new)
        return made(
            partition_index=now.partition,
            leader_id=now.leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            leader_recovery_state=now.leader_recovery_state,
            partition_epoch=now.partition_epoch,
        )

    def assign(self, request: wire.AssignReplicasToDirsRequest, batch: Batch) -> wire.AssignReplicasToDirsResponse:
        answer = wire.AssignReplicasToDirsResponse
        if self._is_stale(request):
            return answer(error_code=ErrorCode.STALE_BROKER_EPOCH)
        made = []
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                rows = [
                    answer.PartitionData(
                        partition_index=each.partition_index,
                        error_code=self._assign(
                            request.broker_id, bytes(directory.id), bytes(topic.topic_id), each.partition_index, batch
                        ),
                    )
                    for each in topic.partitions
                ]
                topics.append(answer.TopicData(topic_id=topic.topic_id, partitions=rows))
            made.append(answer.DirectoryData(id=directory.id, topics=topics))
        return answer(directories=made)

    def _assign(self, node: int, directory: bytes, topic_id: bytes, number: int, batch: Batch) -> int:
        topic = self.state.topics.get(topic_id)
        if topic is None:
            return int(ErrorCode.UNKNOWN_TOPIC_ID)
        old = topic.partitions.get(number)
        if old is None:
            return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if node not in old.replicas:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        known = dict(zip(old.replicas, old.directories, strict=True)) | {node: directory}
        told = tuple(known[each] for each in old.replicas)
        if told != old.directories:
            batch.put(change_record(topic_id, old, replace(old, directories=told)))
            batch.leave_if_lost(node, topic, topic.partitions[number])
        elif old.leader == NO_LEADER:
            # Only now: a change is decided by the directories that were known before it.
            batch.alter(topic, old, change(batch.viewed(old), batch.context(topic)))
        return 0

    def producer_ids(self, request: wire.AllocateProducerIdsRequest, batch: Batch) -> wire.AllocateProducerIdsResponse:
        answer = wire.AllocateProducerIdsResponse
        if self._is_stale(request):
            return answer(error_code=ErrorCode.STALE_BROKER_EPOCH)
        first = self.state.next_producer_id
        batch.put(
            wire.ProducerIdsRecord(
                broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + PRODUCER_IDS
            )
        )
        return answer(producer_id_start=first, producer_id_len=PRODUCER_IDS)
