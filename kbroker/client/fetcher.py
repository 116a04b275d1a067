"""Reads one partition: frames of whole batches, the next fetch under way while the caller decodes the current one.

    fetcher = Fetcher(cluster, "orders", 0)
    for fetched in fetcher.frames(start, stop):
        fetched.records            # memoryview, valid until the next is asked for
        fetched.aborted            # with READ_COMMITTED: (producer_id, first_offset) of transactions to leave out

Two receive buffers take turns, so memory is twice the larger of `max_bytes` and the largest batch.  While a leader
moves, restarts or does not answer, fetches are retried; after `poll_timeout_s` without progress they raise
RetriesExhaustedError.  An offset outside of the partition's log raises OffsetGoneError with the log's start and end
offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbroker._fast.records.batch_span import batch_span
from kbroker._fast.records.record_batch import TruncatedBatchError, read_header
from kbroker.client.cluster import NO_TOPIC_ID, Cluster, Patience
from kbroker.client.connection import Connection, Ticket
from kbroker.client.errors import (
    PASSING,
    BrokerAnsweredError,
    ClientError,
    MalformedAnswerError,
    OffsetGoneError,
)
from kbroker.client.list_offsets import list_offsets
from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message, schema
from kbroker.types import EARLIEST, LATEST, READ_UNCOMMITTED

# From version 13 on topics go by their ids (KIP-516).  Below 4 there is no isolation and no batch of format 2.
_MIN_VERSION = 4
_LAST_VERSION_WITH_NAMES = schema("FetchRequest").last_version("topics.topic")


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Bytes and times of fetches; `poll_timeout_s` is how long a reader waits without progress."""

    max_bytes: int = 4 << 20
    max_wait_ms: int = 500
    min_bytes: int = 1
    isolation: int = READ_UNCOMMITTED
    poll_timeout_s: float = 120.0


class Fetched(NamedTuple):
    """Whole batches.  The first may begin before the offset asked for."""

    records: memoryview
    aborted: list[tuple[int, int]]
    high_watermark: int


class Fetcher:
    """See the module's text."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, settings: FetchSettings | None = None) -> None:
        self.cluster = cluster
        self.topic = topic
        self.partition = partition
        self.settings = settings or FetchSettings()
        self._max_bytes = self.settings.max_bytes
        self._spare = bytearray()
        self._held = bytearray()
        self._connection: Connection | None = None
        self._ticket: Ticket | None = None

    @property
    def name(self) -> str:
        """`topic-partition`."""
        return f"{self.topic}-{self.partition}"

    def frames(self, start: int, stop: int) -> Iterator[Fetched]:
        """Batches from `start` on, until one reaches `stop`."""
        patience = self.cluster.patience(f"reading {self.name}", self.settings.poll_timeout_s)
        position = start
        try:
            while position < stop:
                fetched, following = self._next(position, patience)
                if fetched is None:
                    continue
                position = following
                patience.progressed()
                if position < stop:
                    self._send_ahead(position)
                yield fetched
        finally:
            self._abandon()

    def _next(self, position: int, patience: Patience) -> tuple[Fetched | None, int]:
        """One answer; None for one that brought nothing."""
        try:
            if self._ticket is None:
                self._send(position)
            row = self._take()
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._gone(position)
            if row.error_code:
                raise BrokerAnsweredError(row.error_code, f"reading {self.name} at offset {position}")
            return self._read(row, position, patience)
        except PASSING as error:
            self._try_again(error, patience)
        except BrokerAnsweredError as error:
            if not error.retriable:
                raise
            self._try_again(error, patience)
        return None, position

    def _try_again(self, error: ClientError, patience: Patience) -> None:
        self._abandon()
        self.cluster.forget(self.topic)
        patience.again(error)

    def _read(self, row: Any, position: int, patience: Patience) -> tuple[Fetched | None, int]:
        records = row.records
        if records is None or len(records) == 0:
            if patience.left_s <= 0:
                # Raises.
                patience.again(
                    ClientError(
                        f"the broker gives nothing at offset {position}; high watermark {row.high_watermark}, "
                        f"last stable offset {row.last_stable_offset}: is a transaction open there?"
                    )
                )
            return None, position
        size, count, following = batch_span(records)
        if count == 0:
            self._enlarge(records, position)
            return None, position
        if following <= position:
            raise MalformedAnswerError(f"reading {self.name}: asked for offset {position}, got one before {following}")
        aborted = [(txn.producer_id, txn.first_offset) for txn in row.aborted_transactions or ()]
        return Fetched(memoryview(records)[:size], aborted, row.high_watermark), following

    def _enlarge(self, records: memoryview, position: int) -> None:
        """A batch larger than a fetch may be cut off by an old broker; anything else is damage."""
        try:
            read_header(records)
        except TruncatedBatchError:
            if self._max_bytes < 1 << 30:
                self._max_bytes *= 2
                return
            raise MalformedAnswerError(
                f"reading {self.name}: the batch at offset {position} never comes whole"
            ) from None

    def _send_ahead(self, position: int) -> None:
        """Sends the next fetch.  Errors are ignored: they recur, and are retried, when its answer is needed."""
        try:
            self._send(position)
        except (*PASSING, BrokerAnsweredError):
            self._abandon()

    def _send(self, position: int) -> None:
        """Posts a fetch at `position`."""
        request_class = request_message(ApiKey.FETCH)
        settings = self.settings
        connection = self.cluster.leader(self.topic, self.partition)
        info = self.cluster.topic(self.topic)
        at_most = None if info.topic_id != NO_TOPIC_ID else _LAST_VERSION_WITH_NAMES
        version = connection.version_of(ApiKey.FETCH, at_most)
        if version < _MIN_VERSION:
            raise ClientError(f"the broker at {connection.address} is older than Kafka 0.11: it is not supported")
        rows = [
            request_class.FetchPartition(
                partition=self.partition,
                current_leader_epoch=info.partitions[self.partition].leader_epoch,
                fetch_offset=position,
                partition_max_bytes=self._max_bytes,
            )
        ]
        request = request_class(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=settings.isolation,
            topics=[request_class.FetchTopic(topic=self.topic, topic_id=info.topic_id, partitions=rows)],
        )
        self._connection = connection
        self._ticket = connection.post(
            request, version=version, timeout_s=connection.request_timeout_s + settings.max_wait_ms / 1000
        )

    def _take(self) -> Any:
        connection, ticket = self._connection, self._ticket
        assert connection is not None
        assert ticket is not None
        # The caller is done with the frame before last: its buffer is the spare one.
        self._ticket = None
        buffer, self._spare = self._spare, self._held
        self._held = buffer
        answer = connection.take(ticket, into=buffer)
        if answer.error_code:
            raise BrokerAnsweredError(answer.error_code, f"reading {self.name}")
        for topic in answer.responses:
            for row in topic.partitions:
                if row.partition_index == self.partition:
                    return row
        raise MalformedAnswerError(f"reading {self.name}: an answer without the partition")

    def _gone(self, position: int) -> OffsetGoneError:
        at = (self.topic, self.partition)
        first = list_offsets(self.cluster, {at: EARLIEST})[at].offset
        last = list_offsets(self.cluster, {at: LATEST}, self.settings.isolation)[at].offset
        if position < first:
            why = "records before that were deleted by retention or by DeleteRecords: begin at a later offset"
        elif position > last:
            why = "the topic was truncated or created anew since that offset was noted"
        else:
            why = "the partition changed just now: try again"
        return OffsetGoneError(f"{self.name} has no offset {position}: it has {first} to {last}; {why}", first, last)

    def _abandon(self) -> None:
        """Closes the connection, as the pending answer would be taken for that of the next request."""
        if self._ticket is not None and self._connection is not None:
            self._connection.close()
        self._ticket = None
        self._connection = None
