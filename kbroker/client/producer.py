"""A producer for executors: packed batches out, in order, each once as far as the broker can tell.

    with Cluster(bootstrap) as cluster, BatchProducer(cluster, ProducerSettings()) as producer:
        producer.add("orders", 0, batch)     # a `Batch` of packed records; sends when enough has come together
        producer.flush()                     # everything is acknowledged, or an error says what is not

With `idempotent` (KIP-98) a batch keeps its producer id and sequence however often it is sent, so a broker that took
it and died before it answered recognises it.  Up to `max_in_flight` requests are on the way to one broker.  When a
batch fails, the producer sends nothing more to its partition until all batches in flight there are answered, and then
sends the failed ones again, in order.  Retries end when nothing has moved for `delivery_timeout_s`.

At most `buffer_bytes` and one more batch are buffered.  Times are in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import MAGIC_V2, seal
from kbroker._fast.records.record_packer import BatchPacker
from kbroker.client.closing import Closing
from kbroker.client.cluster import Cluster, Patience
from kbroker.client.connection import Connection, Ticket
from kbroker.client.errors import PASSING, BrokerAnsweredError, ClientError
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.records.batch import HEADER
from kbroker.records.compression import Codec, compress
from kbroker.schemas import request_message, schema

if TYPE_CHECKING:
    from kbroker.protocol.messages import Message
    from kbroker.schemas import wire

ACKS_ALL, ACKS_NONE = -1, 0
# How many batches of a producer a broker remembers: only so many can be sent again without duplicates.
MAX_IN_FLIGHT = 5
LAST_SEQUENCE = (1 << 31) - 1
# From version 13 on topics have ids; names work everywhere.
_LAST_VERSION_WITH_NAMES = schema("ProduceRequest").last_version("topic_data.name")
NO_PRODUCER = (-1, -1)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """`acks` -1, 0 or 1.  `delivery_timeout_s` bounds the time without progress.  Idempotence needs acks -1."""

    acks: int = ACKS_ALL
    idempotent: bool = True
    codec: int = Codec.NONE
    level: int | None = None
    max_in_flight: int = MAX_IN_FLIGHT
    max_request_bytes: int = 1 << 20
    buffer_bytes: int = 32 << 20
    request_timeout_s: float = 30.0
    delivery_timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed records: what `BatchPacker.take` gives with room for a batch's header in front, and its figures."""

    data: bytearray
    count: int
    base_timestamp: int
    max_timestamp: int

    @classmethod
    def taken_from(cls, packer: BatchPacker) -> Batch:
        """What a packer holds, which starts anew."""
        count, base_timestamp, max_timestamp = packer.count, packer.base_timestamp, packer.max_timestamp
        return cls(packer.take(HEADER.size), count, base_timestamp, max_timestamp)


class DeliveryError(ClientError):
    """Records were refused for good, or could not be brought to the broker in time."""


class _Sealed:
    """A batch ready for the wire."""

    __slots__ = ("count", "data", "failed")

    def __init__(self, data: bytearray, count: int) -> None:
        self.data = data
        self.count = count
        self.failed = False


class _Lane:
    """One partition: what waits, what is on the way, and the next sequence."""

    __slots__ = ("in_flight", "paused", "sequence", "topic_partition", "waiting")

    def __init__(self, topic_partition: tuple[str, int]) -> None:
        self.topic_partition = topic_partition
        self.waiting: deque[_Sealed] = deque()
        self.in_flight: deque[_Sealed] = deque()
        self.sequence = 0
        self.paused = False

    def __str__(self) -> str:
        return f"{self.topic_partition[0]}-{self.topic_partition[1]}"

    def settle(self, batch: _Sealed, *, failed: bool) -> None:
        """A batch in flight is answered.  Failed batches go back to `waiting`, in order, once all in flight are
        answered."""
        batch.failed = failed
        self.paused = self.paused or failed
        if not failed:
            self.in_flight.remove(batch)
        if all(each.failed for each in self.in_flight):
            self.waiting.extendleft(reversed(self.in_flight))
            self.in_flight.clear()
            self.paused = False


@dataclass(frozen=True, slots=True)
class _Posted:
    """A request in flight, with its batches by partition.  Without a ticket it could not be sent."""

    ticket: Ticket | None
    batches: dict[tuple[str, int], _Sealed]


class BatchProducer(Closing):
    """See the module's text.  Not thread-safe."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        if settings.idempotent and settings.acks != ACKS_ALL:
            raise ValueError("idempotent writes need acks=all")
        if not 1 <= settings.max_in_flight <= MAX_IN_FLIGHT:
            raise ValueError(f"1 to {MAX_IN_FLIGHT} requests may be in flight, not {settings.max_in_flight}")
        self.cluster = cluster
        self.settings = settings
        self.acknowledged_records = 0
        self.acknowledged_bytes = 0
        self._producer = NO_PRODUCER
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._posted: dict[Connection, deque[_Posted]] = {}
        self._buffered_bytes = 0
        self._patience: Patience = cluster.patience("writing", settings.delivery_timeout_s)

    def add(self, topic: str, partition: int, batch: Batch) -> None:
        """Takes a batch.  Sends, and waits where the buffer is full.  ClientError says what is lost."""
        if self.settings.idempotent and self._producer == NO_PRODUCER:
            self._producer = self._init_producer_id()
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = self._new_lane(topic, partition)
        sealed = self._seal(lane, batch)
        lane.waiting.append(sealed)
        self._buffered_bytes += len(sealed.data)
        self._send(everything=False)
        while self._buffered_bytes > self.settings.buffer_bytes:
            self._step()

    def flush(self) -> None:
        """Returns when everything is acknowledged."""
        while self._buffered_bytes:
            self._step()

    def close(self) -> None:
        """Gives up what is not acknowledged; the cluster stays open."""
        self._posted.clear()
        self._lanes.clear()
        self._buffered_bytes = 0

    def _new_lane(self, topic: str, partition: int) -> _Lane:
        self._drain()
        # The Metadata request needs a connection without requests in flight.
        self.cluster.topic(topic)
        return _Lane((topic, partition))

    def _seal(self, lane: _Lane, batch: Batch) -> _Sealed:
        settings = self.settings
        producer_id, epoch = self._producer
        sequence = lane.sequence if settings.idempotent else -1
        if settings.idempotent:
            lane.sequence = (lane.sequence + batch.count) & LAST_SEQUENCE
        data = batch.data
        if settings.codec != Codec.NONE:
            data = bytearray(HEADER.size) + compress(settings.codec, memoryview(data)[HEADER.size :], settings.level)
        times = (batch.base_timestamp, batch.max_timestamp)
        ids = (producer_id, epoch, sequence, batch.count)
        HEADER.pack_into(data, 0, 0, 0, -1, MAGIC_V2, 0, 0, batch.count - 1, *times, *ids)
        seal(data, settings.codec)
        return _Sealed(data, batch.count)

    def _init_producer_id(self) -> tuple[int, int]:
        request = request_message(ApiKey.INIT_PRODUCER_ID)(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        patience = self.cluster.patience("asking for a producer id", self.settings.delivery_timeout_s)
        while True:
            try:
                answer = self.cluster.any().send(request)
                if not answer.error_code:
                    return answer.producer_id, answer.producer_epoch
                refused = BrokerAnsweredError(answer.error_code, "asking for a producer id")
                if not refused.retriable:
                    raise refused
                patience.again(refused)
            except PASSING as passing:
                patience.again(passing)

    def _step(self) -> None:
        """Sends what can be sent and takes one answer."""
        self._send(everything=True)
        for connection, posted in self._posted.items():
            if posted:
                error = self._take(connection, posted)
                if error is not None:
                    self._recover(error)
                return

    def _send(self, *, everything: bool) -> None:
        """Posts requests while brokers may have more; without `everything` only whole ones, as more may follow."""
        sent = True
        while sent:
            sent = False
            for connection, lanes in self._group().items():
                size = sum(len(lane.waiting[0].data) for lane in lanes)
                if not everything and size < self.settings.max_request_bytes:
                    continue
                posted = self._posted.setdefault(connection, deque())
                error = None
                if len(posted) < self.settings.max_in_flight:
                    error = self._post(connection, posted, lanes)
                elif not everything:
                    error = self._take(connection, posted)
                else:
                    continue
                sent = True
                if error is not None:
                    self._recover(error)
                # Leaders and paused lanes may have changed: group anew.
                break

    def _group(self) -> dict[Connection, list[_Lane]]:
        """Lanes with something to send, by the connection to their leader."""
        while True:
            found: dict[Connection, list[_Lane]] = {}
            try:
                for lane in self._lanes.values():
                    if lane.waiting and not lane.paused and len(lane.in_flight) < self.settings.max_in_flight:
                        found.setdefault(self.cluster.leader(*lane.topic_partition), []).append(lane)
                return found
            except PASSING as error:
                self._recover(error)
            except BrokerAnsweredError as error:
                if not error.retriable:
                    raise
                self._recover(error)

    def _recover(self, error: Exception) -> None:
        """After a transient failure: takes all answers, asks for the leaders anew, and connects to them."""
        self._drain()
        topics = sorted({topic for topic, _ in self._lanes})
        while True:
            self._patience.again(error)
            self.cluster.forget(*topics)
            try:
                self.cluster.describe(topics)
                for lane in self._lanes.values():
                    self.cluster.leader(*lane.topic_partition)
                return
            except PASSING as passing:
                error = passing
            except BrokerAnsweredError as answered:
                if not answered.retriable:
                    raise
                error = answered

    def _drain(self) -> None:
        """Takes the answers to all requests in flight, after which the connections may carry other requests."""
        for connection, posted in self._posted.items():
            while posted:
                self._take(connection, posted)
        self._posted.clear()

    def _post(self, connection: Connection, posted: deque[_Posted], lanes: Iterable[_Lane]) -> Exception | None:
        """Sends one request with a batch of each lane, up to the size limit; the error, if it is transient."""
        size = 0
        batches: dict[tuple[str, int], _Sealed] = {}
        for lane in lanes:
            batch = lane.waiting[0]
            if batches and size + len(batch.data) > self.settings.max_request_bytes:
                break
            size += len(batch.data)
            batch.failed = False
            lane.in_flight.append(lane.waiting.popleft())
            batches[lane.topic_partition] = batch
        expects = self.settings.acks != ACKS_NONE
        try:
            version = connection.version_of(ApiKey.PRODUCE, _LAST_VERSION_WITH_NAMES)
            ticket = connection.post(self._request(batches), version=version, expects_answer=expects)
        except PASSING as error:
            self._fail_all([*posted, _Posted(None, batches)])
            posted.clear()
            return error
        if expects:
            posted.append(_Posted(ticket, batches))
            return None
        for topic_partition, batch in batches.items():
            self._acknowledge(self._lanes[topic_partition], batch)
        return None

    def _request(self, batches: dict[tuple[str, int], _Sealed]) -> Message:
        request = request_message(ApiKey.PRODUCE)
        topics: dict[str, list[object]] = {}
        for (topic, partition), batch in batches.items():
            data = request.PartitionProduceData(index=partition, records=batch.data)
            topics.setdefault(topic, []).append(data)
        made: Message = request(
            transactional_id=None,
            acks=self.settings.acks,
            timeout_ms=int(self.settings.request_timeout_s * 1000),
            topic_data=[request.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        return made

    def _take(self, connection: Connection, posted: deque[_Posted]) -> Exception | None:
        """The oldest answer on a connection; a connection that breaks fails all that was on its way."""
        first = posted[0]
        assert first.ticket is not None
        try:
            answer = connection.take(first.ticket)
        except PASSING as error:
            self._fail_all(posted)
            posted.clear()
            return error
        posted.popleft()
        passing: Exception | None = None
        for topic in answer.responses:
            for row in topic.partition_responses:
                passing = self._settle(topic.name, row, first) or passing
        return passing

    def _fail_all(self, lost: Iterable[_Posted]) -> None:
        for posted in lost:
            for topic_partition, batch in posted.batches.items():
                self._lanes[topic_partition].settle(batch, failed=True)

    def _settle(
        self, topic: str, row: wire.ProduceResponse.PartitionProduceResponse, posted: _Posted
    ) -> Exception | None:
        """What a partition was answered: None when its batch is in the log, else the error that passes."""
        lane = self._lanes[topic, row.index]
        batch = posted.batches[topic, row.index]
        code = row.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(lane, batch)
            return None
        error = BrokerAnsweredError(code, f"writing to {lane}")
        # A batch behind a failed one is refused for its sequence, and sent again after that one.
        follows_a_failure = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.paused
        if not error.retriable and not follows_a_failure:
            detail = f": {row.error_message}" if row.error_message else ""
            raise DeliveryError(
                f"{batch.count} records for {lane} were refused with {error_name(code)}{detail}"
                f" ({self.acknowledged_records} records before were acknowledged)"
            ) from error
        lane.settle(batch, failed=True)
        return error

    def _acknowledge(self, lane: _Lane, batch: _Sealed) -> None:
        lane.settle(batch, failed=False)
        self.acknowledged_records += batch.count
        self.acknowledged_bytes += len(batch.data)
        self._buffered_bytes -= len(batch.data)
        self._patience.progressed()
