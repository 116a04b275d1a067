"""The share coordinator keeps the state of share-partitions in `__share_group_state` (KIP-932).

A share-partition lives on the partition that `group:topic id:partition` hashes to.  Its methods raise KafkaError, or
give an `Outcome` whose answer holds once it is committed.  `ShareCoordinator` is also the `Persister` of the leaders on
this broker: the coordinator is on this broker, too, and the same operations serve the wire.

Periodic: states without a new snapshot for long get one, and records that nothing needs any more are deleted.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from kbroker.coordinator.runtime.plan import Outcome, Plan
from kbroker.coordinator.runtime.waiting import committed
from kbroker.coordinator.share.state_records import ShareState
from kbroker.coordinator.share.state_shard import ShareStateShard
from kbroker.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError, bare
from kbroker.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kbroker.outage import Outages
from kbroker.periodic import PeriodicTask
from kbroker.replication.share.persister import SharePartitionKey, StateUpdate, StoredState

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.runtime.shard import StateLog
    from kbroker.metadata.cache import MetadataCache
    from kbroker.replication.share.persister import Loaded, Stored
    from kbroker.waiting import CallLater

logger = logging.getLogger("kbroker.share")

T = TypeVar("T")
TOPIC_ID_BYTES = 16
DeleteBefore = Callable[[int, int], object]


def coordinator_key(key: SharePartitionKey) -> str:
    """The key that clients send in FindCoordinator; its hash gives the partition that has the state."""
    topic_id = base64.urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def check_share_key(text: str) -> None:
    """Refuse a text that is no `coordinator_key`.  InvalidRequestError, without a message as in Kafka."""
    group_id, _, rest = text.rpartition(":")[0].rpartition(":")
    partition = text.rpartition(":")[2]
    try:
        topic_id = base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4))
    except ValueError:
        topic_id = b""
    if not group_id or len(topic_id) != TOPIC_ID_BYTES or not partition.isdecimal():
        raise InvalidRequestError("")


class ShareCoordinator:
    """See the module.  `delete_before(partition, offset)` takes records of the state topic away."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        state_log: StateLog,
        clock: Clock,
        call_later: CallLater,
        metadata_cache: MetadataCache,
        delete_before: DeleteBefore,
        slices: Slices,
    ) -> None:
        self._config = config
        self._clock = clock
        self._outages = Outages(logger, now=clock.monotonic)
        self._cache = metadata_cache
        self._log = state_log
        self._delete_before = delete_before
        self._call_later = call_later
        self._timeout_ms: int = config.get("share.coordinator.write.timeout.ms")
        updates = config.get("share.coordinator.snapshot.update.records.per.snapshot")
        self.runtime: CoordinatorRuntime[ShareStateShard] = CoordinatorRuntime(
            SHARE_GROUP_STATE_TOPIC,
            node_id,
            state_log,
            clock,
            call_later,
            slices,
            lambda shard: ShareStateShard(shard.index, updates),
            config.get("share.coordinator.load.buffer.size"),
            config.get("share.coordinator.state.topic.compression.codec"),
        )

    def start(self) -> None:
        """Load what this broker coordinates."""
        self.runtime.start(self._cache)

    def stop(self) -> None:
        """Serve nothing any more."""
        self.runtime.stop()

    # Operations

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Outcome[None]:
        """Begin a state; a start offset of -1 leaves it to the leader and the group's settings."""
        self.check_topic(key)
        return self._write(key, lambda shard, now: shard.initialize(key, state_epoch, start_offset, now))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Outcome[StoredState]:
        """The state, for a leader of that epoch."""
        return self._write(key, lambda shard, now: self._of_a_topic(key, shard.read(key, leader_epoch, now)))

    def write(self, key: SharePartitionKey, update: StateUpdate) -> Outcome[None]:
        """Note what a leader says."""
        return self._write(key, lambda shard, now: self._of_a_topic(key, shard.write(key, update, now)))

    def delete(self, key: SharePartitionKey) -> Outcome[None]:
        """Forget a state."""
        return self._write(key, lambda shard, now: shard.delete(key))

    def summary(self, key: SharePartitionKey) -> Outcome[ShareState | None]:
        """The state as it is."""
        return self.runtime.read(self._partition_of(key), lambda shard: shard.summary(key))

    # As the persister of the leaders here

    def read_state(self, key: SharePartitionKey, leader_epoch: int, loaded: Loaded) -> None:
        """See `Persister`."""
        try:
            outcome = self.read(key, leader_epoch)
        except KafkaError as error:
            loaded(bare(error))
            return
        self._settle(outcome, lambda error: loaded(outcome.answer if error is None else error))

    def write_state(self, key: SharePartitionKey, update: StateUpdate, stored: Stored) -> None:
        """See `Persister`."""
        try:
            outcome = self.write(key, update)
        except KafkaError as error:
            stored(bare(error))
            return
        self._settle(outcome, stored)

    async def committed(self, outcome: Outcome[T]) -> T:
        """The answer of an operation.  Raises the client's error where its state is not committed in time."""
        return await committed(outcome, self._timeout_ms)

    def _settle(self, outcome: Outcome[T], settled: Stored) -> None:
        outcome.settle_within(self._timeout_ms, self._call_later, settled)

    # Snapshots and pruning

    def periodic_tasks(self) -> Iterable[PeriodicTask]:
        """What is to be run now and then."""
        cold_ms = self._config.get("share.coordinator.cold.partition.snapshot.interval.ms")
        prune_ms = self._config.get("share.coordinator.state.topic.prune.interval.ms")
        return (
            self.runtime.periodic("snapshot cold share state", cold_ms, partial(self._snapshot_cold, cold_ms)),
            self.runtime.periodic("prune share state", prune_ms, self._prune),
        )

    def _snapshot_cold(self, interval_ms: int, shard: ShareStateShard, now_ms: int) -> Iterator[None]:
        for key in shard.cold(now_ms - interval_ms):
            try:
                self._write(key, lambda state, now, key=key: state.snapshot(key, now))  # type: ignore[misc]
            except KafkaError as error:
                self._outages.failed("snapshot", "no snapshot of the share state could be written: %s", error)
                return
            self._outages.over("snapshot", "snapshots of the share state are written again")
            yield

    def _prune(self, shard: ShareStateShard, _now_ms: int) -> Iterator[None]:
        start, end = self._log.bounds(shard.index)
        needed = shard.needed_from(end)
        if needed is not None and needed > start and self._log.is_committed(shard.index):
            try:
                self._delete_before(shard.index, needed)
                self._outages.over("prune", "old records of the share state are deleted again")
            except KafkaError as error:
                self._outages.failed("prune", "old records of the share state could not be deleted: %s", error)
        yield

    def _write(self, key: SharePartitionKey, operation: Callable[[ShareStateShard, int], Plan[T]]) -> Outcome[T]:
        index = self._partition_of(key)
        planned: list[Plan[T]] = []

        def plan(shard: ShareStateShard, now_ms: int) -> Plan[T]:
            planned.append(operation(shard, now_ms))
            return planned[0]

        outcome = self.runtime.write(index, plan)
        if planned[0].records:
            shard = self.runtime.shard(index).active()
            shard.note_snapshot(key, self._log.bounds(index)[1] - 1)
        return outcome

    def _partition_of(self, key: SharePartitionKey) -> int:
        return self.runtime.partition_of(coordinator_key(key))

    def _of_a_topic(self, key: SharePartitionKey, plan: Plan[T]) -> Plan[T]:
        """The plan, if the topic's partition exists.  This is checked last, as in Kafka, so that the error of a missing
        state comes first."""
        self.check_topic(key)
        return plan

    def check_topic(self, key: SharePartitionKey) -> None:
        """UnknownTopicOrPartitionError for a partition that is not there."""
        topic = self._cache.topic_by_id(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            raise UnknownTopicOrPartitionError()
