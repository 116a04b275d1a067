"""Finding a partition that this broker leads or follows, and the only way to append to it as its leader.

What it leads and follows is the matter of `ReplicaRoles`, the logs that of `ReplicaLogs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kbroker.errors import (
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.judging import Judging
from kbroker.replication.partition import Partition
from kbroker.replication.replica_roles import ReplicaRoles
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kbroker.config import LogConfig
    from kbroker.metrics.readiness import Problem
    from kbroker.replication.partition import IsrChanges
    from kbroker.replication.replica_selector import RackAwareSelector
    from kbroker.replication.replication_traffic import ReplicationTraffic
    from kbroker.storage.log.group_commit import CommittedLog
    from kbroker.storage.log.log_validator import AnalyzedBatch, AppendOrigin
    from kbroker.storage.log.log_values import AppendResult
    from kbroker.storage.manager.log_manager import LogManager


class ReplicaManager:
    """`log_config(topic_configs)` merges a topic's own settings with the broker's."""

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.log_manager = log_manager
        self.purgatory = FetchPurgatory(loop)
        self.roles = ReplicaRoles(node_id, log_manager, log_config, self.purgatory, loop)
        self.logs = self.roles.logs
        self.topics = self.roles.topics
        self.followed = self.roles.followed
        self.names = self.roles.names
        self.selector: RackAwareSelector | None = None
        self.traffic: ReplicationTraffic | None = None
        self.exists: Callable[[str, int], bool] = self._has_topic
        self.judging = Judging()
        self._closed = False

    @property
    def isr_changes(self) -> IsrChanges | None:
        """Where changes of ISRs are proposed; None where no other broker has replicas."""
        return self.roles.isr_changes

    def close(self) -> None:
        """Lead nothing any more: a batch that a thread is still checking then finds no partition to be written to."""
        self._closed = True
        self.roles.close()

    # Lookup

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it; else the error that sends a client to look elsewhere."""
        partitions = self.topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        return self._explain_absence(topic, index)

    def replica(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads or follows it; else the error of `partition`."""
        followed = self.followed.get(TopicPartition(topic, index)) if self.followed else None
        return self.partition(topic, index) if followed is None else followed

    def sent_to_follower(self, replica_id: int, topic: str, index: int, size_bytes: int) -> None:
        """So many bytes of a partition's records are in an answer to a follower."""
        partition = self.topics.get(topic, {}).get(index)
        if partition is not None and self.traffic is not None:
            self.traffic.sent(partition, replica_id, size_bytes)

    def hosted(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica that this broker has, whether it leads or follows."""
        return self.roles.hosted(topic_partition)

    def problems(self) -> Iterator[Problem]:
        """For readiness: partitions that are offline."""
        return self.logs.problems(serves_any=any(self.topics.values()))

    @property
    def offline_count(self) -> int:
        """Partitions that have no log because of a disk."""
        return len(self.logs.offline)

    def _explain_absence(self, topic: str, index: int) -> Partition:
        topic_partition = TopicPartition(topic, index)
        if self.roles.take_late(topic_partition):
            return self.partition(topic, index)
        if topic_partition in self.logs.offline:
            raise KafkaStorageError(f"Partition {topic}-{index} is offline")
        if self._closed:
            raise NotLeaderOrFollowerError()
        if not self.exists(topic, index):
            raise UnknownTopicOrPartitionError()
        raise NotLeaderOrFollowerError()

    def _has_topic(self, topic: str, index: int) -> bool:
        return 0 <= index < len(self.topics.get(topic, ()))

    def topic_name(self, topic_id: bytes) -> str:
        """The name behind a topic id.  UnknownTopicIdError when no topic has it."""
        name = self.names.get(topic_id)
        if name is None:
            raise UnknownTopicIdError()
        return name

    def __iter__(self) -> Iterator[Partition]:
        """Those that are led."""
        return iter(self.roles)

    # Data

    def append(
        self,
        partition: Partition,
        records: memoryview | bytearray,
        *,
        origin: AppendOrigin,
        analyzed: AnalyzedBatch | None = None,
        guard: VerificationGuard = NO_GUARD,
    ) -> AppendResult:
        """Append one batch as leader.  Whether it may be acknowledged says `Partition.is_acknowledged`."""
        log = partition.log
        try:
            result = log.append_as_leader(
                records, partition.leader_epoch, origin=origin, analyzed=analyzed, guard=guard
            )
        except OSError as error:
            raise log.storage_error("appending records", error) from error
        if not result.duplicate:
            partition.appended()
        return result

    def _led(self, log: CommittedLog) -> Partition | None:
        partition = self.topics.get(log.topic_partition.topic, {}).get(log.topic_partition.partition)
        return partition if partition is not None and partition.log is log else None

    def on_durable(self, log: CommittedLog) -> None:
        """An fsync has covered more of a log whose appends wait for that."""
        partition = self._led(log)
        if partition is not None:
            partition.advance()

    def on_refused(self, log: CommittedLog, error: KafkaError) -> None:
        """What a log holds and is not durable will not be: refuse what waits for that."""
        partition = self._led(log)
        if partition is not None:
            partition.refuse_waits(error)
