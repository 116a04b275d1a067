"""How a transaction whose outcome is decided gets to its end: a marker in each of its partitions, then Complete.

Markers of a large transaction are written in slices, with the loop's other work in between.  One that cannot be written
now is tried again every `RETRY_SECONDS`; partitions of deleted topics need none.  A partition that has seen a later
epoch of the producer has no open part of this transaction, so it needs no marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kbroker._fast.base.build_facts import CHECKED
from kbroker.coordinator.runtime.plan import Outcome
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.coordinator.transactions.transaction_partition import TransactionPartition
from kbroker.coordinator.transactions.transaction_state import COMPLETE, PREPARED, TransactionState
from kbroker.errors import ErrorCode, KafkaError, bare
from kbroker.outage import Outages
from kbroker.replication.transaction_markers import Marker
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices, Turn
    from kbroker.metadata.cache import MetadataCache
    from kbroker.replication.partition import Settled

logger = logging.getLogger("kbroker.transactions")

RETRY_SECONDS = 0.1


class Markers(Protocol):
    """Writes markers, wherever a partition is led (`MarkerWriter`)."""

    def write(self, topic: str, index: int, marker: Marker, settled: Settled) -> None:
        """Append one; `settled` when it is committed or will not be.  Raises KafkaError when it is not appended."""


class Completion:
    """Completes prepared transactions; `write_complete(transactional_id)` writes that one is complete."""

    def __init__(
        self,
        markers: Markers,
        metadata_cache: MetadataCache,
        slices: Slices,
        write_complete: Callable[[str], Outcome[TransactionMetadata]],
    ) -> None:
        self._markers = markers
        self._metadata_cache = metadata_cache
        self._slices = slices
        self._write_complete = write_complete
        self._outages = Outages(logger)
        self._turns: dict[str, Turn] = {}

    def begin(self, state: TransactionPartition, transactional_id: str) -> None:
        """The outcome is decided and committed: write the markers, then that they are written."""
        metadata = state.transactions.get(transactional_id)
        if not state.is_served or metadata is None or metadata.state not in PREPARED:
            return
        if transactional_id not in state.unmarked:
            state.unmarked[transactional_id] = set(metadata.partitions)
            self._write_markers(state, metadata)

    def _write_markers(self, state: TransactionPartition, metadata: TransactionMetadata) -> None:
        marker = Marker(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            state.coordinator_epoch,
            metadata.client_version,
        )
        if CHECKED:
            assert state.unmarked[metadata.transactional_id] <= metadata.partitions, (metadata, state.unmarked)
        turn = self._turns.pop(metadata.transactional_id, None)
        if turn is not None:
            turn.cancel()  # Its partitions are still in `unmarked`, and written now.
        left = sorted(state.unmarked[metadata.transactional_id], reverse=True)
        self._write_some(state, metadata, marker, left, self._slices.pace())

    def _write_some(
        self,
        state: TransactionPartition,
        metadata: TransactionMetadata,
        marker: Marker,
        left: list[TopicPartition],
        pace: Pace,
    ) -> None:
        is_retried = False
        while left:
            topic_partition = left.pop()
            settled = partial(self._marked, state, metadata, topic_partition)
            try:
                self._markers.write(topic_partition.topic, topic_partition.partition, marker, settled)
            except KafkaError as error:
                if self._is_needed(metadata, topic_partition, error):
                    is_retried = True
                else:
                    _forget(state, metadata, topic_partition)
            if left and pace.due():
                go_on = partial(self._go_on, state, metadata, marker, left, pace)
                self._turns[metadata.transactional_id] = pace.then(go_on)
                break
        if is_retried:
            self._retry_later(state, metadata)
        self._finish(state, metadata)

    def _go_on(
        self,
        state: TransactionPartition,
        metadata: TransactionMetadata,
        marker: Marker,
        left: list[TopicPartition],
        pace: Pace,
    ) -> None:
        assert left, f"{metadata}: nothing is left to be marked in another turn"
        del self._turns[metadata.transactional_id]
        if state.is_served:
            self._write_some(state, metadata, marker, left, pace)

    def _marked(
        self,
        state: TransactionPartition,
        metadata: TransactionMetadata,
        topic_partition: TopicPartition,
        error: KafkaError | None,
    ) -> None:
        """A marker is committed, or will not be by the leader of then."""
        if error is None:
            _forget(state, metadata, topic_partition)
            self._finish(state, metadata)
        elif self._is_needed(metadata, topic_partition, error):
            self._retry_later(state, metadata, error)

    def _is_needed(self, metadata: TransactionMetadata, topic_partition: TopicPartition, error: KafkaError) -> bool:
        """Whether a marker that could not be written is tried again."""
        topic = self._metadata_cache.topic(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            logger.info("transactional id %s: %s is gone", metadata.transactional_id, topic_partition)
            return False
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            logger.warning(
                "transactional id %s: %s takes no marker of producer %d, epoch %d: %s",
                metadata.transactional_id,
                topic_partition,
                metadata.producer_id,
                metadata.producer_epoch,
                error,
            )
            return False
        return True

    def _retry_later(
        self, state: TransactionPartition, metadata: TransactionMetadata, error: KafkaError | None = None
    ) -> None:
        transactional_id = metadata.transactional_id
        if not state.is_served:
            return
        left = ", ".join(map(str, sorted(state.unmarked.get(transactional_id, ()))[:5]))
        text = "transactional id %s: its end cannot be written yet to %s%s"
        why = "" if error is None else f": {error}"
        self._outages.failed(transactional_id, text, transactional_id, left or "the transaction state", why)
        state.timers.set(("retry", transactional_id), RETRY_SECONDS, partial(self._again, state, metadata))

    def _again(self, state: TransactionPartition, metadata: TransactionMetadata) -> None:
        if state.transactions.get(metadata.transactional_id) is not metadata:
            return
        if state.unmarked.get(metadata.transactional_id):
            self._write_markers(state, metadata)
        else:
            self._finish(state, metadata)

    def _finish(self, state: TransactionPartition, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        if not state.is_served or state.unmarked.get(transactional_id) != set():
            return
        if state.transactions.get(transactional_id) is not metadata:
            return
        assert metadata.state in PREPARED, f"{metadata} is ended without having been prepared"
        try:
            outcome = self._write_complete(transactional_id)
        except KafkaError as error:
            self._retry_later(state, metadata, bare(error))
            return
        assert not outcome.answer.partitions and outcome.answer.state in COMPLETE, outcome.answer
        self._outages.over(transactional_id, "transactional id %s: its end is written", transactional_id)
        del state.unmarked[transactional_id]
        outcome.when_committed(lambda _error: state.completed(transactional_id))


def _forget(state: TransactionPartition, metadata: TransactionMetadata, topic_partition: TopicPartition) -> None:
    unmarked = state.unmarked.get(metadata.transactional_id)
    if unmarked is not None and state.transactions.get(metadata.transactional_id) is metadata:
        unmarked.discard(topic_partition)
