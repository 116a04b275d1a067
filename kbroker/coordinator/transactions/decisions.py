"""What a coordinator decides about one transactional id: pure functions of its metadata, the request and the time.

Each returns the metadata that come next, or the same where nothing changes, or raises the KafkaError that the client
gets.  `ProducerIdNeededError` says that the decision needs a new producer id: the caller gets one and decides again.

The rules are Kafka's TransactionCoordinator: KIP-98; epochs that continue after an error, KIP-360; an epoch for each
transaction, KIP-890 part 2.  With an epoch per transaction the epoch is bumped when the transaction is prepared.  A
retry of EndTxn is recognised by the epoch before the bump, or, if the epochs of that producer id were used up, by the
previous id.
"""

from __future__ import annotations

from kbroker.coordinator.transactions.transaction_metadata import (
    EXHAUSTED_EPOCH,
    MAX_EPOCH,
    NO_PARTITIONS,
    TransactionMetadata,
)
from kbroker.coordinator.transactions.transaction_state import COMPLETE, IDLE, PREPARED, TransactionState
from kbroker.errors import ErrorCode, KafkaError
from kbroker.storage.log.producer_state import EPOCH_PER_TRANSACTION
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

_S = TransactionState


class ProducerIdNeededError(Exception):
    """The decision can only be made with a new producer id."""


def _refused(code: ErrorCode) -> KafkaError:
    return KafkaError.of(code)


def create(transactional_id: str, producer_id: int | None, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A transactional id that was never seen, or has expired; its epoch is still to be given.

    Raises ProducerIdNeededError."""
    if producer_id is None:
        raise ProducerIdNeededError()
    return TransactionMetadata(transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms, _S.EMPTY, now_ms)


# InitProducerId


def init_producer_id(
    metadata: TransactionMetadata,
    timeout_ms: int,
    expected_producer_id: int,
    expected_epoch: int,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata:
    """A producer begins: the epoch that fences its predecessors.  The caller has ended an open transaction.

    `expected_*` are -1 unless a producer goes on after an error (v3+).  Raises ProducerIdNeededError."""
    check_not_ending(metadata)
    is_expected = expected_producer_id != NO_PRODUCER_ID
    if is_expected and not _may_go_on(metadata, expected_producer_id, expected_epoch):
        raise _refused(ErrorCode.PRODUCER_FENCED)
    if metadata.state not in IDLE:
        raise _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.is_epoch_exhausted and (not is_expected or expected_epoch == metadata.producer_epoch):
        if new_producer_id is None:
            raise ProducerIdNeededError()
        return metadata.move(
            _S.EMPTY,
            now_ms,
            producer_id=new_producer_id,
            previous_producer_id=metadata.producer_id,
            producer_epoch=0,
            last_producer_epoch=metadata.producer_epoch if is_expected else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            started_ms=NO_TIMESTAMP,
        )
    epoch, last_epoch = _bumped(metadata, expected_epoch if is_expected else None)
    assert metadata.producer_epoch <= epoch < MAX_EPOCH, (metadata, epoch)
    return metadata.move(
        _S.EMPTY,
        now_ms,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        started_ms=NO_TIMESTAMP,
    )


def _may_go_on(metadata: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == metadata.producer_id
        or (producer_id == metadata.previous_producer_id and epoch >= EXHAUSTED_EPOCH)
    )


def _bumped(metadata: TransactionMetadata, expected_epoch: int | None) -> tuple[int, int]:
    """The next epoch, and the last one if a producer that holds it may retry InitProducerId."""
    epoch = metadata.producer_epoch
    bumped = 0 if epoch == NO_PRODUCER_EPOCH else epoch + 1
    if expected_epoch is None:
        return bumped, NO_PRODUCER_EPOCH
    if epoch in (NO_PRODUCER_EPOCH, expected_epoch):
        return bumped, epoch
    if expected_epoch == metadata.last_producer_epoch:
        # The answer was lost: the same again.
        return epoch, metadata.last_producer_epoch
    raise _refused(ErrorCode.PRODUCER_FENCED)


# AddPartitionsToTxn, AddOffsetsToTxn


def check_not_ending(metadata: TransactionMetadata) -> None:
    """CONCURRENT_TRANSACTIONS while a transaction is being ended.  Precedes all other checks: the producer may already
    use the epoch or id that becomes valid once the markers are written."""
    if metadata.state in PREPARED:
        raise _refused(ErrorCode.CONCURRENT_TRANSACTIONS)


def check_producer(metadata: TransactionMetadata, producer_id: int, epoch: int) -> None:
    """CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED."""
    check_not_ending(metadata)
    if metadata.producer_id != producer_id:
        raise _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != epoch:
        raise _refused(ErrorCode.PRODUCER_FENCED)


def add_partitions(
    metadata: TransactionMetadata,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata:
    """Partitions become part of the transaction, which begins with the first ones."""
    check_producer(metadata, producer_id, epoch)
    if metadata.state is _S.ONGOING:
        if partitions <= metadata.partitions:
            return metadata
        started_ms = metadata.started_ms
    else:
        started_ms = now_ms
    return metadata.move(
        _S.ONGOING,
        now_ms,
        partitions=metadata.partitions | partitions,
        started_ms=started_ms,
        client_version=client_version,
    )


# EndTxn


def end_transaction(
    metadata: TransactionMetadata,
    producer_id: int,
    epoch: int,
    commit: bool,
    client_version: int,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata:
    """A producer ends its transaction: prepared metadata, or the same where it was ended before (a retry)."""
    check_not_ending(metadata)
    bumps = client_version >= EPOCH_PER_TRANSACTION
    # The version of the request decides, not that of the transaction: clients without an epoch per transaction never
    # retry with the epoch before a bump.
    retries_bump = bumps and metadata.producer_epoch == epoch + 1
    retries_overflow = (
        bumps
        and metadata.previous_producer_id == producer_id
        and epoch == EXHAUSTED_EPOCH
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != producer_id and not retries_overflow:
        raise _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = metadata.state in COMPLETE and (retries_bump or retries_overflow)
    if epoch != metadata.producer_epoch and not is_retry:
        raise _refused(ErrorCode.PRODUCER_FENCED)
    state = metadata.state
    if state is _S.ONGOING:
        return prepare(metadata, commit, client_version, new_producer_id, now_ms)
    if state in COMPLETE:
        is_same_outcome = commit == (state is _S.COMPLETE_COMMIT)
        if is_same_outcome and (is_retry or not bumps):
            return metadata
        if not bumps or commit or is_retry:
            raise _refused(ErrorCode.INVALID_TXN_STATE)
    elif not bumps or commit:
        raise _refused(ErrorCode.INVALID_TXN_STATE)
    # An abort before any partition was added still bumps the epoch, as batches may be on their way.
    return prepare(metadata, False, client_version, new_producer_id, now_ms)


def _next_epoch(metadata: TransactionMetadata) -> int:
    """The epoch for the markers, one higher, at most MAX_EPOCH: an older fence may have used the last epoch already."""
    return min(metadata.producer_epoch + 1, MAX_EPOCH)


def prepare(
    metadata: TransactionMetadata, commit: bool, client_version: int, new_producer_id: int | None, now_ms: int
) -> TransactionMetadata:
    """The outcome is decided.  With an epoch per transaction the producer's next one is given here, under a new id
    where its epochs are used up.  Raises ProducerIdNeededError."""
    fields: dict[str, int] = {}
    if client_version >= EPOCH_PER_TRANSACTION:
        next_producer_id = NO_PRODUCER_ID
        if metadata.is_epoch_exhausted:
            if new_producer_id is None:
                raise ProducerIdNeededError()
            next_producer_id = new_producer_id
        fields = {
            "producer_epoch": _next_epoch(metadata),
            "last_producer_epoch": metadata.producer_epoch,
            "next_producer_id": next_producer_id,
        }
    if metadata.state is not _S.ONGOING:
        fields["started_ms"] = now_ms
    state = _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT
    assert metadata.next_producer_id == NO_PRODUCER_ID, metadata
    return metadata.move(state, now_ms, client_version=client_version, **fields)


def fence(
    metadata: TransactionMetadata, server_version: int, new_producer_id: int | None, now_ms: int
) -> TransactionMetadata:
    """The broker aborts an open transaction in the place of its producer, which is fenced by a higher epoch.

    The broker's own version decides how, not that of the transaction: with an epoch per transaction, a producer whose
    epochs are used up gets its next id.  Raises ProducerIdNeededError."""
    assert _next_epoch(metadata) > metadata.producer_epoch or metadata.producer_epoch == MAX_EPOCH, metadata
    fencing = metadata.move(_S.PREPARE_EPOCH_FENCE, now_ms)
    if server_version < EPOCH_PER_TRANSACTION:
        return fencing.move(
            _S.PREPARE_ABORT,
            now_ms,
            producer_epoch=_next_epoch(metadata),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )
    next_producer_id = NO_PRODUCER_ID
    if metadata.is_epoch_exhausted:
        if new_producer_id is None:
            raise ProducerIdNeededError()
        next_producer_id = new_producer_id
    return fencing.move(
        _S.PREPARE_ABORT,
        now_ms,
        producer_epoch=_next_epoch(metadata),
        last_producer_epoch=metadata.producer_epoch,
        next_producer_id=next_producer_id,
        client_version=server_version,
    )


def complete(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """All markers are written."""
    assert metadata.state in PREPARED, metadata
    state = _S.COMPLETE_COMMIT if metadata.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
    if metadata.has_epoch_per_transaction and metadata.next_producer_id != NO_PRODUCER_ID:
        return metadata.move(
            state,
            now_ms,
            partitions=NO_PARTITIONS,
            previous_producer_id=metadata.producer_id,
            producer_id=metadata.next_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=0,
            last_producer_epoch=EXHAUSTED_EPOCH,
        )
    return metadata.move(state, now_ms, partitions=NO_PARTITIONS)


# Time


def is_timed_out(metadata: TransactionMetadata, now_ms: int) -> bool:
    """Whether an open transaction has outlived its timeout."""
    return metadata.state is _S.ONGOING and metadata.started_ms + metadata.timeout_ms < now_ms


def is_expired(metadata: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    """Whether a transactional id was not used for so long that it is forgotten."""
    return metadata.state in IDLE and now_ms - metadata.updated_ms >= expiration_ms


__all__ = [
    "ProducerIdNeededError",
    "add_partitions",
    "check_producer",
    "complete",
    "create",
    "end_transaction",
    "fence",
    "init_producer_id",
    "is_expired",
    "is_timed_out",
    "prepare",
]
