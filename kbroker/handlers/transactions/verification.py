"""Makes sure that a batch belongs to its producer's transaction before a partition takes it (KIP-890).

The first batch of a transaction in a partition is verified: the partition gives a guard, the transaction coordinator is
asked, and the append brings the guard back.  Clients of Produce v12+ and TxnOffsetCommit v5+ do not add partitions
themselves: for them the coordinator adds the partitions that it is asked to verify.  While the previous transaction is
still being ended, the verification waits for that, at most `add.partitions.to.txn.retry.backoff.max.ms`.

Later batches of the transaction need none of this.  Without `transaction.partition.verification.enable` partitions are
only added, not verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.coordinator.runtime.coordinator_lookup import coordinator_node
from kbroker.coordinator.runtime.plan import write_error
from kbroker.coordinator.runtime.waiting import committed
from kbroker.coordinator.transactions.transaction_coordinator import ProducerRequest
from kbroker.coordinator.transactions.transaction_metadata import CLASSIC_VERSION
from kbroker.errors import ErrorCode, InvalidTxnStateError, KafkaError
from kbroker.handlers.groups.committed_state import TIMEOUT_SETTING
from kbroker.handlers.transactions.remote_verification import ask_elsewhere
from kbroker.metadata.image import NO_LEADER
from kbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from kbroker.replication.commit_wait import CommitWait
from kbroker.storage.log.producer_state import EPOCH_PER_TRANSACTION
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.services import Services
    from kbroker.replication.partition import Partition


class ClientGeneration(NamedTuple):
    """What a version of Produce or TxnOffsetCommit knows: `adds` has its partitions added by the broker, `aborts` knows
    TRANSACTION_ABORTABLE."""

    adds: bool
    aborts: bool


class Batch(NamedTuple):
    """A transactional batch that is about to be appended."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    base_sequence: int


def start(batch: Batch, generation: ClientGeneration) -> VerificationGuard:
    """The guard that the append has to bring; NO_GUARD where the transaction is open in the partition already.
    Raises InvalidProducerEpochError."""
    return batch.partition.log.maybe_start_transaction_verification(
        batch.producer_id, batch.base_sequence, batch.producer_epoch, supports_epoch_bump=generation.adds
    )


def needs_verification(services: Services, guard: VerificationGuard, generation: ClientGeneration) -> bool:
    """Whether the coordinator has to be asked."""
    if guard is NO_GUARD:
        return False
    return generation.adds or bool(services.config.get("transaction.partition.verification.enable"))


async def verify(
    services: Services, transactional_id: str, batches: list[Batch], generation: ClientGeneration
) -> list[KafkaError | None]:
    """Ask the coordinator about batches of one producer; for each why it is not let in, or None."""
    first = batches[0]
    if any(each[1:3] != first[1:3] for each in batches):
        return [KafkaError.of(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of more than one producer")] * len(
            batches
        )
    version = EPOCH_PER_TRANSACTION if generation.adds else CLASSIC_VERSION
    producer = ProducerRequest(transactional_id, first.producer_id, first.producer_epoch, version)
    partitions = [TopicPartition(each.partition.topic, each.partition.index) for each in batches]
    try:
        added = await _ask(services, producer, frozenset(partitions), generation)
    except KafkaError as error:
        return [_answered(error, generation)] * len(batches)
    return [None if each in added else _not_added(generation) for each in partitions]


async def _ask(
    services: Services, producer: ProducerRequest, partitions: frozenset[TopicPartition], generation: ClientGeneration
) -> frozenset[TopicPartition]:
    """Those partitions that are part of the transaction."""
    if services.coordinators_elsewhere is not None:
        node_id = coordinator_node(services.metadata_cache.image, TRANSACTION_STATE_TOPIC, producer.transactional_id)
        if node_id not in (services.node_id, NO_LEADER):
            return await ask_elsewhere(
                services.coordinators_elsewhere, node_id, producer, partitions, verify_only=not generation.adds
            )
    coordinator = services.transaction_coordinator
    if not generation.adds:
        return coordinator.verify(producer, partitions)
    try:
        outcome = coordinator.add_partitions(producer, partitions)
    except KafkaError as error:
        if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            raise
        # The end of the transaction before is decided, and its markers are being written.
        await _completed(services, producer.transactional_id)
        outcome = coordinator.add_partitions(producer, partitions)
    await committed(outcome, services.config.get(TIMEOUT_SETTING))
    return partitions


async def _completed(services: Services, transactional_id: str) -> None:
    """Until the transaction that is being ended is complete, or the time is up."""
    wait = CommitWait()
    services.transaction_coordinator.when_completed(transactional_id, wait.expect())
    await wait.within(services.config.get("add.partitions.to.txn.retry.backoff.max.ms"))


def _not_added(generation: ClientGeneration) -> KafkaError:
    text = "Partition was not added to the transaction"
    return KafkaError.of(ErrorCode.TRANSACTION_ABORTABLE, text) if generation.aborts else InvalidTxnStateError(text)


_RETRIED_BY_ALL = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


def _answered(error: KafkaError, generation: ClientGeneration) -> KafkaError:
    """The producer's error: a code that it knows, and retries in the right way."""
    code = write_error(error)
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError.of(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code in _RETRIED_BY_ALL or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not generation.adds):
        return KafkaError.of(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return KafkaError.of(code)
