"""One partition of a fetch, read in Python: what `_fast.requests.fetch_answer` hands over alone.

That is a partition with an error, a damaged segment or aborted transactions, one whose position in the log is not known
to fields of C, one whose epochs the client has compared (KIP-595), one that this broker follows, every partition of a
follower's fetch, and of a consumer's that names its rack where `replica.selector.class` is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
)
from kbroker.schemas import schema, wire
from kbroker.storage.log.log_values import FetchIsolation

if TYPE_CHECKING:
    from kbroker._fast.log.fetch_target import FetchTarget
    from kbroker._fast.log.log_fields import LateRead
    from kbroker.handlers.services import Services
    from kbroker.replication.partition import Partition
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.replication.replica_selector import Reader

PartitionData = wire.FetchResponse.PartitionData
AbortedTransaction = wire.FetchResponse.AbortedTransaction
EpochEndOffset = wire.FetchResponse.EpochEndOffset

FIRST_VERSION_WITH_RACK = schema("FetchRequest").first_version("rack_id")
FIRST_VERSION_WITH_TOPIC_IDS = schema("FetchRequest").first_version("topics.topic_id")
LAST_VERSION_WITH_HARD_LIMIT = schema("FetchRequest").first_version("max_bytes") - 1
EMPTY = b""
Outcome = tuple[PartitionData, bool, "LateRead | None"]
# Kafka counts a fetch with any other error as failed.
EXPECTED = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NO_ABORTED = UNKNOWN_TOPIC | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def read_partition(
    services: Services,
    version: int,
    replica_id: int,
    committed: bool,
    target: FetchTarget,
    left: int,
    first: bool,
    reader: Reader | None = None,
) -> Outcome:
    """(the partition's part of the answer, whether the client must get that at once, what its records wait for).

    `left`: how many bytes of records the answer may still get; `first`: it has none yet, so a batch comes whole.
    `reader`: where the consumer stands, if it may be sent to a nearer replica (KIP-392).
    An unknown topic is not urgent: as in Kafka it is answered together with the others, else its consumer would fetch
    in a tight loop.
    """
    if target.refusal:
        return failed(target.index, target.refusal, _aborted(target.refusal)), False, None
    manager = services.replica_manager
    try:
        return _read(manager, version, replica_id, committed, target, left, first, reader)
    except KafkaError as error:
        if error.code not in EXPECTED:
            _count_failure(manager, target)
        return failed(target.index, error.code, _aborted(error.code)), error.code not in UNKNOWN_TOPIC, None
    except OSError as error:
        log = _partition(manager, version, replica_id, target).log
        return failed(target.index, log.storage_error("reading records", error).code, None), True, None


def note_end(services: Services, version: int, replica_id: int, target: FetchTarget) -> None:
    """The target's partition has just ended to be served here.  Its fetch is refused for that, as Kafka refuses it at
    this moment, though the partition may be served again when the fetch is read for the last time."""
    try:
        _partition(services.replica_manager, version, replica_id, target)
    except KafkaError as error:
        target.refusal = target.refusal or error.code


def _aborted(code: int) -> list[AbortedTransaction] | None:
    """As in Kafka: aborted transactions are null if a log was to be read, an empty list if the fetch failed before."""
    return [] if code in NO_ABORTED else None


def _count_failure(manager: ReplicaManager, target: FetchTarget) -> None:
    partition = manager.topics.get(target.topic or "", {}).get(target.index)
    if partition is not None:
        partition.log.count_failed_fetch()


def failed(index: int, code: int, aborted: list[AbortedTransaction] | None) -> PartitionData:
    """The answer of a partition whose records the client does not get."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        preferred_read_replica=-1,
        aborted_transactions=aborted,
        records=EMPTY,
    )


def _read(
    manager: ReplicaManager,
    version: int,
    replica_id: int,
    committed: bool,
    target: FetchTarget,
    left: int,
    first: bool,
    reader: Reader | None,
) -> Outcome:
    partition = _partition(manager, version, replica_id, target)
    partition.check_leader_epoch(target.current_leader_epoch)
    log = partition.log
    if reader is not None and manager.selector is not None:
        nearer = manager.selector.select(partition, reader, target.fetch_offset)
        if nearer is not None:
            return _elsewhere(partition, target, nearer), True, None
    if target.last_fetched_epoch >= 0:
        diverging = _divergence(partition, target)
        if diverging is not None:
            return diverging, True, None
    limit = min(target.max_bytes, left)
    if limit < 0:
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
    if replica_id >= 0:
        isolation = FetchIsolation.LOG_END
        if manager.traffic is not None and manager.traffic.holds_back_follower(partition, replica_id):
            limit, first = 0, False
    else:
        isolation = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
    hard_limit = version <= LAST_VERSION_WITH_HARD_LIMIT
    data = log.read(target.fetch_offset, limit, isolation, first and not hard_limit)
    if replica_id >= 0:
        partition.follower_fetched(replica_id, target.fetch_offset, target.log_start_offset)
    aborted = None
    if isolation is FetchIsolation.TXN_COMMITTED:
        aborted = [
            AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
            for txn in data.aborted_transactions or ()
        ]
    # If only a part of a batch fits, clients cannot use it; only old ones need it, to see that the message is too
    # large.
    records = None if data.first_entry_incomplete and not hard_limit else data.records
    answer = PartitionData(
        partition_index=target.index,
        # The follower's fetch offset may have moved the high watermark: the answer has the new one.
        high_watermark=log.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted_transactions=aborted,
        records=EMPTY if records is None else records,
    )
    # Consumers that read from the follower wait for committed records, so a new high watermark is answered at once.
    is_news = replica_id >= 0 and manager.selector is not None and log.high_watermark > target.answered_high_watermark
    is_urgent = is_news and target.answered_high_watermark >= 0
    # What was waited for is given at once, as in Kafka: it is all that the tier gives in one read.
    return answer, is_urgent or (records is not None and target.fetch_offset < log.local_log_start_offset), data.late


def _elsewhere(partition: Partition, target: FetchTarget, replica: int) -> PartitionData:
    """The answer that sends a consumer to a nearer replica."""
    log = partition.log
    return PartitionData(
        partition_index=target.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=replica,
        records=EMPTY,
    )


def _partition(manager: ReplicaManager, version: int, replica_id: int, target: FetchTarget) -> Partition:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        try:
            target.topic = manager.topic_name(target.topic_id)
        except UnknownTopicIdError:
            if target.topic is None:
                raise
            # A topic that was there before: gone, or another one has its name now.
            manager.partition(target.topic, target.index)
            raise InconsistentTopicIdError() from None
    if replica_id < 0 and version >= FIRST_VERSION_WITH_RACK:
        # Consumers of these versions may read what a follower knows to be committed.
        return manager.replica(target.topic or "", target.index)
    partition = manager.partition(target.topic or "", target.index)
    if replica_id >= 0:
        partition.check_follower(replica_id, target.current_leader_epoch)
    return partition


def _divergence(partition: Partition, target: FetchTarget) -> PartitionData | None:
    """The answer that says where the reader's log and ours part (KIP-595), or None when they do not."""
    epoch, end_offset = partition.log.end_offset_for_epoch(target.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRangeError()
    if epoch >= target.last_fetched_epoch and end_offset >= target.fetch_offset:
        return None
    log = partition.log
    return PartitionData(
        partition_index=target.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=EMPTY,
    )
