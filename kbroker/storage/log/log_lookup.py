"""Finding things in a log: the region for a read, aborted transactions, a record by its time, batches to replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker._fast.log.batch_seek import walk_batches
from kbroker._fast.records.record_batch import BatchInfo
from kbroker.records.legacy import iterate_stored_records
from kbroker.storage.log import markers
from kbroker.storage.log.local_log import LocalLog
from kbroker.storage.log.log_segment import LogSegment
from kbroker.storage.log.log_validator import LONG_BATCH_BYTES
from kbroker.storage.log.log_values import EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP, TimestampOffset
from kbroker.storage.log.producer_state import ProducerState
from kbroker.storage.log.segment_batches import BATCHES_AT_ONCE, read_batch
from kbroker.storage.log.segment_damage import (
    DamagedSegmentError,
    begin_of,
    confirmed,
    readable_headers,
    readable_position,
)
from kbroker.storage.log.segment_search import check_end, missing_behind
from kbroker.storage.log.segment_view import BatchLocation, Hole
from kbroker.storage.log.time_search import latest_time, start_for
from kbroker.storage.log.txn_index import AbortedTransaction
from kbroker.types import (
    EARLIEST,
    FIRST_POSITION,
    LATEST,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    Position,
)

if TYPE_CHECKING:
    from kbroker.storage.log.log_view import Log


def region(
    local: LocalLog, start_offset: Offset, bound: Offset, max_bytes: int, min_one_message: bool
) -> tuple[LogSegment, Position, int, bool] | None:
    """(segment, position, length, first batch incomplete) of the bytes that a read gets; None when there are none.

    `start_offset` < `bound` <= log end.  If compaction has removed the offset, the region begins with the next batch
    after it.  The region ends in front of a hole; DamagedSegmentError when the offset lies in one.
    """
    segments = local.segments
    segment: LogSegment | None = segments.active
    if start_offset < segments.active.base_offset:
        segment = segments.floor(start_offset) or segments.first
    while segment is not None:
        following = segments.higher(segment.base_offset)
        location = _locate(segment, start_offset, following)
        if location is not None:
            break
        if following is not None and segment.base_offset <= start_offset and not local.config.compact:
            check_end(segment, local.environment.files, start_offset)
            if (hole := missing_behind(segment, local.environment.files, following)) is not None:
                raise DamagedSegmentError(segment.path, hole)
            local.environment.damages.gap(local.topic_partition, segment.path, start_offset, following.base_offset)
        segment = following
    if segment is None or location is None:
        return None
    position, first_size, _, _ = location
    end = segment.readable_end(position) if segment.is_damaged else segment.size
    if bound != local.log_end_offset:
        following = segments.higher(segment.base_offset)
        if following is None or following.base_offset > bound:
            limit = begin_of(segment, bound)
            end = end if limit is None else min(end, limit)
        if segment.base_offset >= bound:
            return None
    available = end - position
    if available <= 0:
        return None
    limit_bytes = first_size if min_one_message and first_size > max_bytes else max_bytes
    return segment, position, available if available < limit_bytes else limit_bytes, limit_bytes < first_size


def _locate(segment: LogSegment, offset: Offset, following: LogSegment | None) -> BatchLocation | None:
    """`LogSegment.locate`, for a batch that lies before the next segment: the file of another one is damage, too."""
    location = segment.locate(offset)
    if location is not None and following is not None and location.last_offset >= following.base_offset:
        reason = f"offset {location.last_offset} in a segment that ends before {following.base_offset}"
        hole = Hole(location.position, segment.size, max(offset, segment.base_offset), None, reason)
        segment.add_hole(hole)
        raise DamagedSegmentError(segment.path, hole)
    return location


def aborted_transactions(
    local: LocalLog, segment: LogSegment, start_offset: Offset, position: Position, length: int
) -> list[AbortedTransaction]:
    """The aborted transactions that overlap a region, for a READ_COMMITTED reader."""
    segments = local.segments
    following = segments.higher(segment.base_offset)
    upper = start_offset
    if length > 0:
        upper = following.base_offset if following is not None else local.log_end_offset
        entry = segment.offset_index.upper_bound(position + length)
        # A damaged entry may name too small an offset, which would leave out aborted transactions.
        if entry is not None and confirmed(segment, local.environment.files, *entry, segment.size) is not None:
            upper = entry[0]
    found: list[AbortedTransaction] = []
    current: LogSegment | None = segment
    while current is not None and not current.txn_index.collect(start_offset, upper, found):
        current = segments.higher(current.base_offset)
    return found


def read_bytes(local: LocalLog, start_offset: Offset, bound: Offset, max_bytes: int) -> bytes:
    """Whole batches as bytes; empty when there is nothing between the offset and the bound."""
    if start_offset >= bound:
        return b""
    found = region(local, start_offset, bound, max_bytes, True)
    if found is None:
        return b""
    segment, position, length, _ = found
    data = local.environment.files.pread(segment.file().fd, length, position)
    whole = walk_batches(data, FIRST_POSITION, len(data))[0]
    return data if whole == len(data) else data[:whole]


def replay_producers(local: LocalLog, state: ProducerState, start_offset: Offset, end_offset: Offset) -> None:
    """Brings producer state from the batch that contains `start_offset`, as Kafka does, to that which ends at
    `end_offset`.

    DeleteRecords may leave the log start inside a batch: a retry of that batch is a duplicate like any other.
    """
    for _ in replay_steps(local, state, start_offset, end_offset):
        pass
    state.map_end_offset = end_offset


def replay_steps(
    local: LocalLog, state: ProducerState, start_offset: Offset, end_offset: Offset, at_once: int = BATCHES_AT_ONCE
) -> Iterator[BatchInfo]:
    """The batches of `replay_producers`, each once the state has it; `at_once` are read together."""
    files = local.environment.files
    # With a snapshot at the end, as a clean stop leaves it, no file is opened.
    segments = local.segments.between(start_offset, end_offset) if start_offset < end_offset else ()
    for segment in segments:
        position = readable_position(segment, start_offset)
        for info in readable_headers(segment, files, position, segment.size, at_once, strict=False):
            if info.last_offset >= end_offset:
                break
            if info.producer_id >= 0 and info.last_offset >= start_offset:
                marker = markers.read_marker(read_batch(files, segment, info)) if info.is_control else None
                completed = state.update(info, info.base_offset, info.last_offset, marker)
                if completed is not None and state.has_open(completed):
                    state.complete(completed)
            yield info


def rebuild_producer_state(log: Log, known: ProducerState | None = None) -> None:
    """Producer state for the log as it is: `known` where that is of its end, else the newest snapshot at or below the
    end, and the batches after it.

    A snapshot does not say which transactions have ended above the high watermark; the state as it was does.
    """
    local, state = log.local, log.producer_state
    end = local.log_end_offset
    ended = {first: last for first, last in state.unreplicated.items() if last < end}
    assert log.high_watermark <= end, (log.topic_partition, log.high_watermark, end)
    if known is not None and known.map_end_offset == end:
        state.take_over(known)
    else:
        start = state.load_latest(log.local_log_start_offset, end, local.environment.clock.now_ms())
        replay_producers(local, state, start, end)
    assert state.map_end_offset == end, (log.topic_partition, state.map_end_offset, end)
    state.keep_unreplicated(ended)
    state.on_high_watermark(log.high_watermark)
    unstable = state.first_unstable_offset
    assert unstable is None or unstable < end, (log.topic_partition, unstable, end)


@dataclass(frozen=True, slots=True)
class DeferredSearch:
    """A search by time that has come to a batch which takes long to decompress.

    `search` looks into that batch, in any thread; `go_on`, on the loop, continues behind it when nothing is there.
    """

    log: Log
    segment: LogSegment
    batch: bytes
    leader_epoch: LeaderEpoch
    next_position: Position
    timestamp: int
    start_offset: Offset

    def search(self) -> TimestampOffset | None:
        """The first record of the batch that is late enough."""
        return _first_in_batch(self.batch, self.timestamp, self.start_offset, self.leader_epoch)

    def go_on(self) -> TimestampOffset | DeferredSearch | None:
        """Continues the search behind the batch of `search`."""
        log, timestamp = self.log, self.timestamp
        found = _record_in(log, self.segment, self.next_position, timestamp, defers=True)
        following = log.local.segments.higher(self.segment.base_offset)
        while found is None and following is not None:
            if latest_time(following, log.local.environment.files) >= timestamp:
                found = _first_record_at(log, following, timestamp, defers=True)
            following = log.local.segments.higher(following.base_offset)
        return found


Found = TimestampOffset | DeferredSearch | None


def offset_for_timestamp(log: Log, timestamp: int, *, defers: bool) -> Found:
    """See UnifiedLog.offset_for_timestamp and `find_by_timestamp`; with `defers` long batches are left to others.

    Records are looked for on this disk."""
    local, epochs = log.local, log.leader_epoch_cache
    if timestamp in (EARLIEST, EARLIEST_LOCAL_TIMESTAMP):
        start = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
        return TimestampOffset(NO_TIMESTAMP, start, epochs.epoch_for_offset(start))
    if timestamp == LATEST:
        return TimestampOffset(NO_TIMESTAMP, local.log_end_offset, epochs.latest_epoch)
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return TimestampOffset(NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)
    if timestamp == MAX_TIMESTAMP:
        return _latest_record(log, defers=defers)
    for segment in local.segments:
        if latest_time(segment, local.environment.files) >= timestamp:
            found = _first_record_at(log, segment, timestamp, defers=defers)
            if found is not None:
                return found
    return None


def offsets_before(log: Log, timestamp: int, max_count: int, now_ms: int) -> list[int]:
    """Where the segments begin that were last changed at `timestamp` or before, and the log end; newest first.

    At most `max_count` of them, from the newest on: LATEST means all, EARLIEST the first alone.
    It is what ListOffsets v0 answers, as clients before 0.10.1 ask it.  OSError when a file cannot be looked at.
    """
    segments, files = list(log.local.segments), log.local.environment.files
    begins: list[int] = [max(segment.base_offset, log.local_log_start_offset) for segment in segments]
    begins[0] = log.log_start_offset
    has_end = segments[-1].size > 0
    if has_end:
        begins.append(log.log_end_offset)
    found = len(begins) if timestamp == LATEST else 1
    if timestamp not in (LATEST, EARLIEST):
        found = len(begins)
        if has_end and now_ms > timestamp:
            found -= 1
        while 0 < found <= len(segments) and files.modified_ms(segments[found - 1].path) > timestamp:
            found -= 1
    return begins[max(0, found - max_count) : found][::-1]


def find_by_timestamp(log: Log, timestamp: int) -> Found:
    """UnifiedLog.offset_for_timestamp for the event loop: a long batch comes as a DeferredSearch, for a thread."""
    return offset_for_timestamp(log, timestamp, defers=True)


def _latest_record(log: Log, *, defers: bool) -> Found:
    newest = max(log.local.segments, key=lambda segment: latest_time(segment, log.local.environment.files))
    timestamp, last_offset = newest.max_timestamp
    if timestamp < 0:
        return None
    location = newest.locate(last_offset)
    if location is None:
        return None
    return _record_in(log, newest, location.position, timestamp, defers=defers)


def _first_record_at(log: Log, segment: LogSegment, timestamp: int, *, defers: bool) -> Found:
    local = log.local
    start = max(start_for(segment, local.environment.files, timestamp), log.local_log_start_offset)
    location = _locate(segment, start, local.segments.higher(segment.base_offset))
    if location is None:
        return None
    return _record_in(log, segment, location.position, timestamp, defers=defers)


def _record_in(log: Log, segment: LogSegment, position: Position, timestamp: int, *, defers: bool) -> Found:
    files, start = log.local.environment.files, log.local_log_start_offset
    for info in readable_headers(segment, files, position, segment.size, 64, strict=True):
        if info.max_timestamp < timestamp or info.last_offset < start:
            continue
        batch, epoch = read_batch(files, segment, info), info.partition_leader_epoch
        if defers and info.compression and info.size_in_bytes >= LONG_BATCH_BYTES:
            behind = info.position + info.size_in_bytes
            return DeferredSearch(log, segment, bytes(batch), epoch, behind, timestamp, start)
        found = _first_in_batch(batch, timestamp, start, epoch)
        if found is not None:
            return found
    return None


def _first_in_batch(batch: bytes, timestamp: int, start: Offset, epoch: LeaderEpoch) -> TimestampOffset | None:
    for record in iterate_stored_records(batch):
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampOffset(record.timestamp, Offset(record.offset), epoch)
    return None


def check_invariants(log: Log) -> None:
    """See UnifiedLog.check_invariants."""
    start, stable, high, end = log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
    if not start <= stable <= high <= end:
        raise AssertionError(f"{log.topic_partition}: start {start}, stable {stable}, high {high}, end {end}")
    local, first = log.local_log_start_offset, log.local.segments.first.base_offset
    if not max(start, first) <= local <= high or (local > start and log.local.environment.tier is None):
        raise AssertionError(f"{log.topic_partition}: start {start}, first segment {first}, start on this disk {local}")
    log.local.check_invariants()
