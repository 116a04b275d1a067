"""The share-partitions of a broker: one for each group that reads a partition which this broker leads.

A share-partition is made when a member first reads it, and dropped when the leader, the topic or the group's state is
replaced by another one.  Fetches that wait for records do so in the purgatory: they are looked at, once per turn of the
loop, after an append, and when records of a share-partition that they name were released, locks timed out, or there is
room again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kbroker._fast.log.log_fields import RecordSource
from kbroker.errors import KafkaError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from kbroker.periodic import PeriodicTask
from kbroker.replication.share.persister import SharePartitionKey
from kbroker.replication.share.settings import BY_DURATION, duration_ms
from kbroker.replication.share.share_partition import SharePartition, SharePartitionContext, SharePartitionState
from kbroker.replication.share.share_session import ShareSession, ShareSessions

if TYPE_CHECKING:
    import asyncio

    from kbroker.clock import Clock
    from kbroker.metadata.image import ClusterImage, MetadataDelta
    from kbroker.replication.partition import Partition
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.replication.share.persister import Persister
    from kbroker.replication.share.settings import GroupSettings

SWEEP_INTERVAL_MS = 1_000
EARLIEST = "earliest"


class SharePartitions:
    """See the module."""

    def __init__(
        self,
        replicas: ReplicaManager,
        persister: Persister,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        settings: GroupSettings,
        session_limit: int,
    ) -> None:
        self.settings = settings
        self.sessions = ShareSessions(session_limit)
        self._replicas = replicas
        self._persister = persister
        self._clock = clock
        self._loop = loop
        self._known: dict[SharePartitionKey, SharePartition] = {}
        self._sources: WeakValueDictionary[SharePartitionKey, RecordSource] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: SharePartitionKey, partition: Partition) -> SharePartition:
        """The share-partition, made now if there is none of this leader's epoch."""
        known = self._known.get(key)
        if known is not None:
            if known.leader_epoch == partition.leader_epoch and known.state is not SharePartitionState.FENCED:
                return known
            assert known.leader_epoch <= partition.leader_epoch, (
                str(known),
                known.leader_epoch,
                partition.leader_epoch,
            )
            self._drop(known, NotLeaderOrFollowerError())
            assert known.state is SharePartitionState.FENCED and key not in self._known, str(known)
        around = SharePartitionContext(
            self._persister,
            self._clock,
            self._loop.call_later,
            partial(self.settings, key.group_id),
            partial(self._reset_offset, partition),
            self._mark,
            self._drop,
        )
        made = self._known[key] = SharePartition(key, partition.leader_epoch, around)
        return made

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        """The share-partition, if a member has read from it."""
        return self._known.get(key)

    def initialize(self, known: SharePartition, settled: Callable[[KafkaError | None], None]) -> None:
        """Have the state read; after a failure the next fetch begins anew."""

        def done(error: KafkaError | None) -> None:
            if error is not None and self._known.get(known.key) is known:
                del self._known[known.key]
            settled(error)
            self._mark(known)

        known.initialize(done)

    def end_session(self, session: ShareSession, settled: Callable[[], None]) -> None:
        """Forget a session and release what its member holds."""
        self.sessions.remove(session)
        held = [each for each in self._known.values() if each.key.group_id == session.group_id]
        left = len(held)

        def released(_error: KafkaError | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                settled()

        if not held:
            settled()
        for each in held:
            each.release(session.member_id, released)

    def periodic_tasks(self) -> Iterable[PeriodicTask]:
        """What is to be run now and then."""
        return (PeriodicTask("end share sessions", SWEEP_INTERVAL_MS, self.sweep),)

    def sweep(self) -> None:
        """End the sessions whose connections are gone."""
        for session in self.sessions.ended():
            self.end_session(session, lambda: None)

    def forget_group(self, group_id: str) -> None:
        """The group's state is gone, or was made anew."""
        for each in [known for known in self._known.values() if known.key.group_id == group_id]:
            self._drop(each, UnknownTopicOrPartitionError())

    # Waking fetches

    def source(self, key: SharePartitionKey) -> RecordSource:
        """Where a fetch waits for what others release of a share-partition; it lasts as long as a fetch has it."""
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = RecordSource()
        return source

    def _mark(self, known: SharePartition) -> None:
        source = self._sources.get(known.key)
        if source is not None and source.waiting:
            self._replicas.purgatory.mark(source)

    # What changes

    def on_metadata(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        """A subscriber of the metadata cache: topics that are gone, and leaders that are others."""
        for topic in (*delta.deleted, *(change.new for change in delta.changed)):
            for known in [known for known in self._known.values() if known.key.topic_id == topic.topic_id]:
                led = self._replicas.topics.get(topic.name, {}).get(known.key.partition)
                if led is None or led.leader_epoch != known.leader_epoch:
                    self._drop(known, NotLeaderOrFollowerError())

    def _drop(self, known: SharePartition, error: KafkaError) -> None:
        if self._known.get(known.key) is known:
            del self._known[known.key]
        if known.state is not SharePartitionState.FENCED:
            known.fence(error)
        self._mark(known)

    def _reset_offset(self, partition: Partition, strategy: str) -> int:
        log = partition.log
        if strategy == EARLIEST:
            return log.log_start_offset
        if strategy.startswith(BY_DURATION):
            since = self._clock.now_ms() - duration_ms(strategy.removeprefix(BY_DURATION))
            found = log.offset_for_timestamp(max(0, since))
            if found is not None:
                return found.offset
        return log.high_watermark
