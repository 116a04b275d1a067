"""The transaction coordinator: the interface to transactional ids for handlers, metrics and the broker.

    broker      start / stop / periodic_tasks
    producers   init_producer_id, add_partitions, verify, end
    tools       describe, all_transactions

A transaction ends in three steps; after a restart the coordinator continues with the next one:

    1. PrepareCommit or PrepareAbort is written to `__transaction_state` and committed: the outcome is decided
    2. a marker is written to each partition of the transaction, and committed there
    3. CompleteCommit or CompleteAbort is written; until then other requests get CONCURRENT_TRANSACTIONS

`decisions` computes states and epochs; this module writes them and completes transactions.  A marker that cannot be
written now is tried again; partitions of deleted topics need none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kbroker.clock import Clock
from kbroker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from kbroker.coordinator.runtime.plan import KeyValue, Outcome, Plan
from kbroker.coordinator.runtime.shard import StateLog
from kbroker.coordinator.transactions import decisions
from kbroker.coordinator.transactions.completion import Completion, Markers
from kbroker.coordinator.transactions.decisions import ProducerIdNeededError
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.coordinator.transactions.transaction_partition import TransactionPartition
from kbroker.coordinator.transactions.transaction_records import transaction_key, transaction_value
from kbroker.coordinator.transactions.transaction_state import PREPARED, TransactionState
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from kbroker.outage import Outages
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from kbroker.waiting import CallLater

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metrics.families import Labels, Values
    from kbroker.periodic import PeriodicTask

logger = logging.getLogger("kbroker.transactions")

EXPIRY_PORTION = 500


class ProducerIds(Protocol):
    """Where new producer ids come from."""

    async def next_id(self) -> int:
        """One that was never given out.  Raises KafkaError."""


@dataclass(frozen=True, slots=True)
class ProducerRequest:
    """Whose request it is: a transactional id, the producer behind it, and the generation of its protocol."""

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0


Decision = Callable[[TransactionMetadata | None, int | None, int], TransactionMetadata]


class TransactionCoordinator:
    """Coordinates the transactional ids whose partition of `__transaction_state` this broker leads.

    `transaction_version()` is the cluster's feature level.  While `may_be_superseded()`, another broker may coordinate
    them by now and have given them epochs that are not known here: what would be refused for good is NOT_COORDINATOR,
    and the producer asks again.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        call_later: CallLater,
        state_log: StateLog,
        metadata_cache: MetadataCache,
        producer_ids: ProducerIds,
        markers: Markers,
        transaction_version: Callable[[], int],
        slices: Slices,
        may_be_superseded: Callable[[], bool],
    ) -> None:
        self._config = config
        self._clock = clock
        self._outages = Outages(logger, now=clock.monotonic)
        self._call_later = call_later
        self._metadata_cache = metadata_cache
        self._producer_ids = producer_ids
        self._transaction_version = transaction_version
        self._may_be_superseded = may_be_superseded
        self._max_timeout_ms: int = config.get("transaction.max.timeout.ms")
        self._expiration_ms: int = config.get("transactional.id.expiration.ms")
        self._tasks: set[asyncio.Task[None]] = set()
        self._completion = Completion(markers, metadata_cache, slices, lambda each: self._write_now(each, _complete))
        self.aborted_for_time = 0
        self.runtime: CoordinatorRuntime[TransactionPartition] = CoordinatorRuntime(
            TRANSACTION_STATE_TOPIC,
            config.node_id,
            state_log,
            clock,
            call_later,
            slices,
            partial(TransactionPartition, self._completion.begin),
            config.get("transaction.state.log.load.buffer.size"),
        )

    # The broker

    def start(self) -> None:
        """Begin to load what is stored, and follow the metadata from now on."""
        self.runtime.start(self._metadata_cache)

    def stop(self) -> None:
        """Serve nothing any more."""
        self.runtime.stop()
        for task in self._tasks:
            task.cancel()

    def periodic_tasks(self) -> list[PeriodicTask]:
        """What the broker must run from time to time."""
        config = self._config
        return [
            self.runtime.periodic(
                "abort transactions that have timed out",
                config.get("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
                self._abort_timed_out,
            ),
            self.runtime.periodic(
                "forget transactional ids that have expired",
                config.get("transaction.remove.expired.transaction.cleanup.interval.ms"),
                self._forget_expired,
            ),
        ]

    # Producers

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerRequest
    ) -> Outcome[TransactionMetadata]:
        """InitProducerId: the id and the epoch that fence this producer's predecessors.  An open transaction of theirs
        is aborted first; CONCURRENT_TRANSACTIONS while its markers are being written."""
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise KafkaError.of(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def decide(known: TransactionMetadata | None, new_id: int | None, now_ms: int) -> TransactionMetadata:
            if known is None:
                known = decisions.create(transactional_id, new_id, timeout_ms, now_ms)
            return decisions.init_producer_id(
                known, timeout_ms, expected.producer_id, expected.producer_epoch, new_id, now_ms
            )

        try:
            return await self._write(transactional_id, decide)
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or not self._is_open(transactional_id):
                raise
        await self._fence(transactional_id)
        return await self._write(transactional_id, decide)

    def add_partitions(
        self, producer: ProducerRequest, partitions: frozenset[TopicPartition]
    ) -> Outcome[TransactionMetadata]:
        """AddPartitionsToTxn: batches of the producer may be written to these from now on."""

        def decide(known: TransactionMetadata | None, now_ms: int) -> TransactionMetadata:
            return decisions.add_partitions(
                _mapped(known),
                producer.producer_id,
                producer.producer_epoch,
                partitions,
                producer.client_version,
                now_ms,
            )

        return self._write_now(producer.transactional_id, decide)

    def verify(self, producer: ProducerRequest, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Those partitions that are part of the producer's open transaction.  Raises as `add_partitions` does."""
        known = self.find(producer.transactional_id)
        with self._refusals():
            metadata = _mapped(known)
            decisions.check_producer(metadata, producer.producer_id, producer.producer_epoch)
        if not partitions <= metadata.partitions and self._may_be_superseded():
            raise KafkaError.of(ErrorCode.NOT_COORDINATOR)
        return partitions & metadata.partitions

    async def end(self, producer: ProducerRequest, commit: bool) -> Outcome[TransactionMetadata]:
        """EndTxn: the metadata that the producer goes on with."""

        def decide(known: TransactionMetadata | None, new_id: int | None, now_ms: int) -> TransactionMetadata:
            return decisions.end_transaction(
                _mapped(known),
                producer.producer_id,
                producer.producer_epoch,
                commit,
                producer.client_version,
                new_id,
                now_ms,
            )

        outcome = await self._write(producer.transactional_id, decide)
        self._complete_when_committed(outcome)
        return outcome

    def when_completed(self, transactional_id: str, callback: Callable[[], None]) -> None:
        """Call `callback` once when the transaction that is being ended is complete; at once where there is none."""
        state = self.runtime.shard(self.runtime.partition_of(transactional_id)).active()
        metadata = state.transactions.get(transactional_id)
        if metadata is None or metadata.state not in PREPARED:
            callback()
        else:
            state.when_completed(transactional_id, callback)

    # Tools

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """What is known of a transactional id.  Raises KafkaError while it cannot be said."""
        state = self.runtime.shard(self.runtime.partition_of(transactional_id)).active()
        return state.transactions.get(transactional_id)

    def is_offline(self, transactional_id: str) -> bool:
        """Whether the id's partition is led by no broker, or by another one."""
        return self.runtime.is_elsewhere(transactional_id)

    def all_transactions(self) -> Iterator[TransactionMetadata]:
        """All that this broker coordinates.  COORDINATOR_LOAD_IN_PROGRESS while some of them are not known."""
        self.runtime.check_complete()
        return (metadata for state in self.runtime.active_states() for metadata in list(state.transactions.values()))

    def open_transaction_of(self, producer_id: int) -> TransactionMetadata | None:
        """The transaction that a producer has open, for a reader that finds its records in a partition."""
        for state in self.runtime.active_states():
            for metadata in state.transactions.values():
                if metadata.producer_id == producer_id and metadata.partitions:
                    return metadata
        return None

    def figures(self) -> Values:
        """For metrics: how many transactional ids are in each state, and what was aborted for its time."""
        found: dict[Labels, float] = {(state.value,): 0 for state in TransactionState if state not in _NEVER_KEPT}
        for state in self.runtime.active_states():
            for metadata in state.transactions.values():
                found[metadata.state.value,] += 1
        return {"kbroker_transactional_ids": found, "kbroker_transactions_timed_out": self.aborted_for_time}

    # Writing

    async def _write(self, transactional_id: str, decide: Decision) -> Outcome[TransactionMetadata]:
        new_id: int | None = None
        while True:
            try:
                return self._write_now(transactional_id, partial(_with_id, decide, new_id))
            except ProducerIdNeededError:
                try:
                    new_id = await self._producer_ids.next_id()
                except KafkaError as error:
                    logger.error("no producer id for transactional id %s: %s", transactional_id, error)
                    raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    def _write_now(
        self, transactional_id: str, decide: Callable[[TransactionMetadata | None, int], TransactionMetadata]
    ) -> Outcome[TransactionMetadata]:
        def operation(state: TransactionPartition, now_ms: int) -> Plan[TransactionMetadata]:
            known = state.transactions.get(transactional_id)
            with self._refusals():
                metadata = decide(known, now_ms)
            if metadata is known:
                return Plan(metadata)
            value = transaction_value(metadata, self._transaction_version())
            return Plan(metadata, [(transaction_key(transactional_id), value)], apply=partial(state.put, metadata))

        return self.runtime.write(self.runtime.partition_of(transactional_id), operation)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """What is refused for good is not while another broker may know better."""
        try:
            yield
        except KafkaError as error:
            if error.code in _FOR_GOOD and self._may_be_superseded():
                raise KafkaError.of(ErrorCode.NOT_COORDINATOR) from error
            raise

    def _is_open(self, transactional_id: str) -> bool:
        metadata = self.find(transactional_id)
        return metadata is not None and metadata.state is TransactionState.ONGOING

    async def _fence(self, transactional_id: str) -> None:
        """Aborts an open transaction in the place of its producer."""
        self._complete_when_committed(await self._write(transactional_id, self._decide_fence))

    def _decide_fence(self, known: TransactionMetadata | None, new_id: int | None, now_ms: int) -> TransactionMetadata:
        metadata = _mapped(known)
        if metadata.state is not TransactionState.ONGOING:
            return metadata
        return decisions.fence(metadata, self._transaction_version(), new_id, now_ms)

    # Ending

    def _complete_when_committed(self, outcome: Outcome[TransactionMetadata]) -> None:
        metadata = outcome.answer
        if metadata.state not in PREPARED:
            return
        state = self.runtime.shard(self.runtime.partition_of(metadata.transactional_id)).active()

        def committed(error: KafkaError | None) -> None:
            if error is None:
                self._completion.begin(state, metadata.transactional_id)

        outcome.when_committed(committed)

    # Time

    def _abort_timed_out(self, state: TransactionPartition, now_ms: int) -> Iterator[None]:
        for metadata in list(state.transactions.values()):
            yield
            if (
                decisions.is_timed_out(metadata, now_ms)
                and state.transactions.get(metadata.transactional_id) is metadata
            ):
                self._abort_now(metadata)

    def _abort_now(self, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        try:
            outcome = self._write_now(transactional_id, partial(_with_id, self._decide_fence, None))
        except ProducerIdNeededError:
            task = asyncio.get_running_loop().create_task(self._fence(transactional_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        except KafkaError as error:
            text = "transactional id %s: its abort could not be written: %s"
            self._outages.failed(transactional_id, text, transactional_id, error)
            return
        else:
            self._complete_when_committed(outcome)
        self._outages.over(transactional_id, "transactional id %s: its abort is written", transactional_id)
        logger.info(
            "transactional id %s: aborted, its transaction of producer %d has taken more than %d ms",
            transactional_id,
            metadata.producer_id,
            metadata.timeout_ms,
        )
        self.aborted_for_time += 1

    def _forget_expired(self, state: TransactionPartition, now_ms: int) -> Iterator[None]:
        expired: list[TransactionMetadata] = []
        for metadata in list(state.transactions.values()):
            yield
            if decisions.is_expired(metadata, now_ms, self._expiration_ms):
                expired.append(metadata)
            if len(expired) >= EXPIRY_PORTION:
                self._forget(state, expired)
                expired = []
        if expired:
            self._forget(state, expired)

    def _forget(self, state: TransactionPartition, expired: list[TransactionMetadata]) -> None:
        def operation(current: TransactionPartition, now_ms: int) -> Plan[int]:
            records: list[KeyValue] = []
            for metadata in expired:
                if current.transactions.get(metadata.transactional_id) is metadata:
                    metadata.move(TransactionState.DEAD, now_ms)
                    records.append((transaction_key(metadata.transactional_id), None))
            return Plan(len(records), records, divisible=True)

        try:
            count = self.runtime.write(state.index, operation).answer
        except KafkaError as error:
            text = "%d expired transactional ids could not be removed: %s"
            self._outages.failed(state.index, text, len(expired), error)
        else:
            self._outages.over(state.index, "expired transactional ids are removed again")
            logger.info("partition %d of the transaction state: %d transactional ids expired", state.index, count)


_FOR_GOOD = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})
"""What ends a producer, or its transaction."""
_NEVER_KEPT = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


def _with_id(
    decide: Decision, new_id: int | None, known: TransactionMetadata | None, now_ms: int
) -> TransactionMetadata:
    return decide(known, new_id, now_ms)


def _mapped(known: TransactionMetadata | None) -> TransactionMetadata:
    if known is None:
        raise KafkaError.of(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    return known


def _complete(known: TransactionMetadata | None, now_ms: int) -> TransactionMetadata:
    return decisions.complete(_mapped(known), now_ms)
