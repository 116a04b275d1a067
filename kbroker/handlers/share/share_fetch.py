"""ShareFetch (API 78): acquire records for a member of a share group, and acknowledge others (KIP-932).

First the acknowledgements are applied.  Then each partition of the session is read in turn, from the first offset that
its share-partition has available, up to its part of `max_bytes`; the acquired records are sent.  As in Fetch the answer
names regions of files; they are cut to the batches whose records were acquired.  A fetch that finds nothing waits for
an append, or for records that others release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.log.fetch_target import is_enough
from kbroker._fast.net.pending import DelayedFetch, Pending
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError, OffsetOutOfRangeError, bare
from kbroker.handlers.share.share_acknowledge import (
    FIRST_VERSION_WITH_RENEWAL,
    Results,
    acknowledge_all,
    check_member,
    end_session,
    endpoints,
    point_to_leader,
    require_named,
    require_read,
)
from kbroker.handlers.share.share_groups import check_share_groups
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.share.aborted import aborted_offsets
from kbroker.replication.share.acquisition import Acquired, Demand, LogBatch
from kbroker.replication.share.persister import SharePartitionKey
from kbroker.replication.share.share_partition import SharePartitionState
from kbroker.replication.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from kbroker.schemas import wire
from kbroker.storage.log.log_values import FetchData, FetchIsolation
from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker._fast.log.log_fields import LateRead, RecordSource
    from kbroker._fast.records.record_batch import BatchInfo
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.delayed_fetch import FetchPurgatory
    from kbroker.replication.partition import Partition
    from kbroker.replication.share.share_partition import SharePartition

    AcknowledgedBatch = wire.ShareFetchRequest.AcknowledgementBatch
    Topics = dict[bytes, wire.ShareFetchResponse.ShareFetchableTopicResponse]

ShareFetchResponse = wire.ShareFetchResponse
BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1
EMPTY = b""
# Where aborted transactions were all that a read found, the next one may find more.
READS_AT_ONCE = 8


async def handle_share_fetch(ctx: RequestContext, request: wire.ShareFetchRequest) -> Struct | Pending:
    """Versions 1 and 2.  v2: `share_acquire_mode` makes `max_records` exact (KIP-1206), and a request that renews
    acquisition locks (`is_renew_ack`, KIP-1222) fetches nothing."""
    services = ctx.services
    partitions = services.share_partitions
    named: dict[TopicIdPartition, None] = {}
    said: dict[TopicIdPartition, Sequence[AcknowledgedBatch]] = {}
    pace = services.slices.pace()
    for topic in request.topics:
        await pace
        topic_id = bytes(topic.topic_id)
        for partition in topic.partitions:
            await pace
            each = TopicIdPartition(topic_id, partition.partition_index)
            named[each] = None
            if partition.acknowledgement_batches:
                said[each] = partition.acknowledgement_batches
            else:
                said.pop(each, None)
    forgotten = []
    for dropped in request.forgotten_topics_data:
        await pace
        for index in dropped.partitions:
            await pace
            forgotten.append(TopicIdPartition(bytes(dropped.topic_id), index))
    renews = ctx.api_version >= FIRST_VERSION_WITH_RENEWAL and request.is_renew_ack
    epoch = request.share_session_epoch
    try:
        check_share_groups(ctx)
        require_read(ctx, request.group_id)
        check_member(request.group_id, request.member_id)
        if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
            raise InvalidRequestError()
        session = partitions.sessions.for_fetch(
            request.group_id or "",
            request.member_id or "",
            epoch,
            ctx.connection,
            named,
            forgotten,
            acknowledges=bool(said),
        )
        if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
    except KafkaError as error:
        refusal: Struct = ShareFetchResponse(error_code=error.code, error_message=error.message)
        return refusal
    results = await acknowledge_all(ctx, session, said, with_renewal=renews)
    if epoch == FINAL_EPOCH:
        await end_session(services, session)
    read = ShareRead(ctx, request, session, results)
    if epoch == FINAL_EPOCH or renews or request.max_records <= 0:
        return await read.response_in_slices()
    await read.look_up()
    return await read.start()


class _Found(NamedTuple):
    """Records that may be acquired: a share-partition, and what was read for it."""

    named: TopicIdPartition
    share: SharePartition
    partition: Partition
    offset: int
    data: FetchData


class ShareRead:
    """One fetch from its session to its answer, over one or more attempts."""

    def __init__(
        self, ctx: RequestContext, request: wire.ShareFetchRequest, session: ShareSession, results: Results
    ) -> None:
        services = ctx.services
        self._ctx = ctx
        self._session = session
        self._results = results
        self._settings = services.share_partitions.settings(session.group_id)
        committed = self._settings.read_committed
        self._isolation = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
        room = -1 if ctx.gate is None else ctx.gate.answer_limit(ctx)
        self._max_bytes = min(
            request.max_bytes, services.fetch_max_bytes if room < 0 else min(services.fetch_max_bytes, room)
        )
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._wait_ms = request.max_wait_ms
        self._max_records = request.max_records
        self._batch_size = max(1, request.batch_size)
        self._exact = request.share_acquire_mode == RECORD_LIMIT
        self._is_first = request.share_session_epoch == INITIAL_EPOCH
        self._answers: dict[TopicIdPartition, wire.ShareFetchResponse.PartitionData] = {}
        self._errors: dict[TopicIdPartition, KafkaError] = {}
        self._initializing: set[TopicIdPartition] = set()
        self._watched: dict[TopicIdPartition, tuple[SharePartitionKey, Partition]] = {}
        self.late: list[LateRead] = []

    async def start(self) -> Struct | Pending:
        """The answer, or what gives it when there is something to acquire."""
        if self._acquire_some(force=False):
            return await self.response_in_slices()
        return DelayedShareFetch(self, self._ctx.services.replica_manager.purgatory, self.sources, self._longest_ms)

    @property
    def sources(self) -> tuple[RecordSource, ...]:
        """Where more may come, by the last attempt."""
        sources: dict[RecordSource, None] = dict.fromkeys(self.late)
        for key, partition in self._watched.values():
            sources[partition] = sources[self._ctx.services.share_partitions.source(key)] = None
        return tuple(sources)

    @property
    def _longest_ms(self) -> int:
        return max((late.wait_ms for late in self.late), default=self._wait_ms)

    def attempt(self, fetch: DelayedShareFetch, force: bool) -> Struct | None:
        """Acquire what there is, and answer; None while there is too little and that need not be said (`force`)."""
        if self._acquire_some(force):
            return self.response()
        if self.late:
            fetch.wait_at(self.sources)
        return None

    def _acquire_some(self, force: bool) -> bool:
        """Acquire what there is; whether it is time to answer."""
        for _ in range(READS_AT_ONCE):
            found = self._find()
            if not found or not self._is_enough(sum(each.data.size for each in found), self._min_bytes, force):
                break
            self._acquire(found)
            if self._answers:
                return True
        return self._is_enough(0, 1, force)

    def _is_enough(self, size: int, min_bytes: int, force: bool) -> bool:
        return is_enough(size, min_bytes, self._longest_ms, bool(self._watched), bool(self._errors), force)

    # Looking

    async def look_up(self) -> None:
        """Find the share-partitions of the session, and have those that are new read their state."""
        services = self._ctx.services
        manager = services.replica_manager
        pace = services.slices.pace()
        for named in list(self._session.partitions):
            await pace
            try:
                name = manager.topic_name(named.topic_id)
                require_named(self._ctx, name)
                partition = manager.partition(name, named.partition)
            except KafkaError as error:
                self._errors[named] = bare(error)
                continue
            key = SharePartitionKey(self._session.group_id, named.topic_id, named.partition)
            share = services.share_partitions.get(key, partition)
            self._watched[named] = key, partition
            if share.state is not SharePartitionState.ACTIVE:
                self._initializing.add(named)
                services.share_partitions.initialize(share, lambda error, named=named: self._initialized(named, error))  # type: ignore[misc]

    def _initialized(self, named: TopicIdPartition, error: KafkaError | None) -> None:
        self._initializing.discard(named)
        if error is not None:
            self._errors[named] = error
            self._watched.pop(named, None)

    def _find(self) -> list[_Found]:
        """What the share-partitions of the session may have to give, none of it acquired yet."""
        services = self._ctx.services
        ready = []
        self.late = []
        for named, (key, _) in list(self._watched.items()):
            if named in self._initializing:
                continue
            try:
                name = services.replica_manager.topic_name(named.topic_id)
                # Anew with each attempt: the right may have gone while the fetch waited.
                require_named(self._ctx, name)
                partition = services.replica_manager.partition(name, named.partition)
            except KafkaError as error:
                self._errors[named] = bare(error)
                del self._watched[named]
                continue
            share = services.share_partitions.get(key, partition)
            if share.state is SharePartitionState.ACTIVE and share.can_acquire:
                ready.append((named, share, partition))
        found = []
        for named, share, partition in ready:
            try:
                each = self._read(named, share, partition, self._max_bytes // len(ready))
            except KafkaError as error:
                self._errors[named] = bare(error)
                del self._watched[named]
                continue
            if each is not None:
                found.append(each)
        return found

    def _read(
        self, named: TopicIdPartition, share: SharePartition, partition: Partition, max_bytes: int
    ) -> _Found | None:
        if self._max_bytes < 0:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"a fetch of {self._max_bytes} bytes")
        log = partition.log
        share.move_start(log.log_start_offset)
        offset = Offset(share.next_fetch_offset)
        try:
            data = log.read(offset, max(1, max_bytes), self._isolation, True)
        except OffsetOutOfRangeError:
            return None  # The log was truncated: what the group has seen will be written again.
        if data.late is not None:
            self.late.append(data.late)
        return None if data.records is None else _Found(named, share, partition, offset, data)

    # Acquiring

    def _acquire(self, found: Iterable[_Found]) -> None:
        left = self._max_records
        for each in found:
            region = each.data.records
            if left <= 0 or region is None:
                break
            headers = each.partition.log.batch_headers(region, min(left, region.size) + 1)
            spans = (LogBatch(info.base_offset, info.last_offset) for info in headers)
            batches = [span for span in spans if span.last_offset >= each.offset]
            aborted = aborted_offsets(headers, each.data.aborted_transactions)
            demand = Demand(self._session.member_id, left, self._batch_size, self._exact)
            acquired = each.share.acquire(demand, batches, aborted)
            if not acquired:
                continue
            left -= sum(last - first + 1 for first, last, _ in acquired)
            self._answers[each.named] = ShareFetchResponse.PartitionData(
                partition_index=each.named.partition,
                records=_cut(region, headers, acquired),
                acquired_records=[
                    ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ],
            )

    # Answering

    def response(self) -> Struct:
        """What was acquired, what the acknowledgements came to, and what went wrong."""
        topics: Topics = {}
        leaders: set[int] = set()
        for _ in self._fill(topics, leaders):
            pass
        return self._finish(topics, leaders)

    async def response_in_slices(self) -> Struct:
        """The same, with the loop's other work in between."""
        topics: Topics = {}
        leaders: set[int] = set()
        pace = self._ctx.services.slices.pace()
        for _ in self._fill(topics, leaders):
            await pace
        return self._finish(topics, leaders)

    def _fill(self, topics: Topics, leaders: set[int]) -> Iterator[None]:
        services = self._ctx.services
        named_all: dict[TopicIdPartition, None] = {}
        if self._is_first:
            named_all.update(self._session.partitions)
        for some in (self._answers, self._errors, self._results):
            named_all.update(dict.fromkeys(some))
        for named in named_all:
            yield
            answer = self._answers.get(named)
            if answer is None:
                answer = ShareFetchResponse.PartitionData(partition_index=named.partition, records=EMPTY)
            error = self._errors.get(named)
            if error is not None:
                answer.error_code, answer.error_message = error.code, error.message
                point_to_leader(services, named, error, answer, leaders)
            refusal = self._results.get(named)
            if refusal is not None:
                answer.acknowledge_error_code, answer.acknowledge_error_message = refusal.code, refusal.message
            topic = topics.get(named.topic_id)
            if topic is None:
                topic = topics[named.topic_id] = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=named.topic_id)
            topic.partitions.append(answer)

    def _finish(self, topics: Topics, leaders: set[int]) -> Struct:
        self._session.rotate(self._answers)
        response: Struct = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._settings.record_lock_ms,
            responses=list(topics.values()),
            node_endpoints=endpoints(self._ctx, ShareFetchResponse.NodeEndpoint, leaders),
        )
        return response


class DelayedShareFetch(DelayedFetch):
    """A fetch that waits for records, appended or released."""

    operation = "ShareFetch"

    def __init__(
        self, read: ShareRead, purgatory: FetchPurgatory, sources: tuple[RecordSource, ...], wait_ms: int
    ) -> None:
        super().__init__(purgatory, sources, wait_ms)
        self._read = read
        self._purgatory = purgatory

    def attempt(self, force: bool) -> bool:
        answer = self._read.attempt(self, force)
        if answer is None:
            return False
        self.answer(answer)
        return True

    def started(self) -> None:
        super().started()
        for late in self._read.late:
            if late.is_met:  # since it was read
                self._purgatory.mark(late)


def _cut(region: FileRegion, headers: list[BatchInfo], acquired: list[Acquired]) -> FileRegion:
    """The part of a region that holds the batches with acquired records."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    begin = next(info for info in headers if info.last_offset >= first)
    end = next(info for info in reversed(headers) if info.base_offset <= last)
    return FileRegion(region.fd, begin.position, end.position + end.size_in_bytes - begin.position, region.owner)


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.SHARE_FETCH, 1, 2, handle_share_fetch),)
