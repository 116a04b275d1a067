"""Rebuilds, at a start, files from the batches when the listing of the directory shows that they are missing or cannot
be right.

    .index, .timeindex        of a segment that recovery does not read: made again from its headers
    .txnindex                 empty, torn, or with entries that no segment wrote: made again by replaying producers from
                              the newest snapshot below the segment
    leader-epoch-checkpoint   made again from the headers of all segments

Nothing here costs a healthy log more than a look at names and sizes that the listing has anyway.  An index file with
wrong entries is detected by the look-ups (`segment_search`, `time_search`).  A missing `.txnindex` is taken for a
segment without aborted transactions, as in Kafka: nothing else would show that it was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BatchInfo
from kbroker.errors import InvalidRecordError
from kbroker.storage.files.log_dir_failure import suppressing_no_space
from kbroker.storage.log import markers
from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
from kbroker.storage.log.local_log import LogEnvironment
from kbroker.storage.log.log_segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment
from kbroker.storage.log.producer_state import CompletedTransaction, ProducerState
from kbroker.storage.log.segment_batches import read_batch
from kbroker.storage.log.segment_damage import DamagedSegmentError, readable_headers, readable_position
from kbroker.storage.log.segment_search import rebuild_offset_index
from kbroker.storage.log.segment_view import Hole
from kbroker.storage.log.time_search import rebuild_time_index
from kbroker.storage.log.txn_index import AbortedTransaction, CorruptIndexError
from kbroker.types import FIRST_POSITION, Offset

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.storage")


def mend_segments(
    topic_partition: TopicPartition,
    segments: Sequence[LogSegment],
    environment: LogEnvironment,
    state: ProducerState,
    index_sizes: Mapping[int, int],
    time_index_sizes: Mapping[int, int],
    recovery_point: Offset | None,
) -> None:
    """Makes indexes again that are missing or wrong, of segments that are not recovered anyway.

    Sizes are by base offsets; `recovery_point` is None after a clean stop.  `state` knows the log's snapshots.
    """
    files = environment.files
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        if recovery_point is not None and (following is None or following > recovery_point):
            break
        index_bytes, time_bytes = index_sizes.get(segment.base_offset), time_index_sizes.get(segment.base_offset)
        if following is None and segment.size == 0:
            if index_bytes or time_bytes:
                # The log file was emptied: what its indexes say must not meet new records.
                for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    files.unlink_if_exists(segment.path_of(suffix))
                segment.create_files()
                segment.close()
        elif index_bytes is None or time_bytes is None or segment.size == 0:
            mend_indexes(segment, files, index_bytes, time_bytes)
            for hole in segment.holes:
                environment.damages.damaged(topic_partition, DamagedSegmentError(segment.path, hole), following)
    durable = [each for each in segments if recovery_point is None or each.base_offset < recovery_point]
    mend_transactions(durable, environment, topic_partition, state)


def mend_indexes(segment: LogSegment, files: FileSystem, index_bytes: int | None, time_bytes: int | None) -> None:
    """Makes offset and time index of a closed segment again where they are missing (None); else gives their sizes.

    An empty segment whose indexes have entries has lost all its batches: all of it is a hole.
    """
    if segment.size == 0:
        if index_bytes or time_bytes:
            segment.add_hole(
                Hole(
                    FIRST_POSITION, FIRST_POSITION, segment.base_offset, None, "the file is empty, its indexes are not"
                )
            )
        return
    if index_bytes is None:
        logger.warning("%s: the offset index is missing; building it again", segment.path)
        rebuild_offset_index(segment, files, segment.size)
    if time_bytes is None:
        rebuild_time_index(segment, files, "is missing")
    if index_bytes is None or time_bytes is None:
        segment.close_files()


def mend_transactions(
    segments: Sequence[LogSegment], environment: LogEnvironment, topic_partition: TopicPartition, state: ProducerState
) -> None:
    """Makes the transaction indexes of these segments again that cannot be what was written.

    `segments` begin with the log's first one; `state` knows the log's snapshots.
    """
    for at, segment in enumerate(segments):
        if not segment.has_txn_index:
            continue
        end = segments[at + 1].base_offset if at + 1 < len(segments) else None
        try:
            segment.txn_index.sanity_check(end)
        except CorruptIndexError as error:
            logger.warning("Building a transaction index again: %s", error)
            _rebuild_transactions(segments[: at + 1], environment, state.beside())


def _rebuild_transactions(segments: Sequence[LogSegment], environment: LogEnvironment, state: ProducerState) -> None:
    files, target = environment.files, segments[-1]
    now_ms = environment.clock.now_ms()
    offset = state.load_latest(segments[0].base_offset, target.base_offset, now_ms, keep_later=True)
    target.txn_index.reset()
    for at, segment in enumerate(segments):
        if at + 1 < len(segments) and segments[at + 1].base_offset <= offset:
            continue
        position = readable_position(segment, offset)
        for info in readable_headers(segment, files, position, segment.size, strict=False):
            if info.producer_id >= 0 and info.base_offset >= offset:
                note_stored(state, files, segment, info, index_aborted=segment is target)
    target.close_files()


def note_stored(
    state: ProducerState, files: FileSystem, segment: LogSegment, info: BatchInfo, *, index_aborted: bool
) -> CompletedTransaction | None:
    """What a stored batch of a producer means for the state, and with `index_aborted` for the transaction index."""
    marker = None
    if info.is_control:
        try:
            marker = markers.read_marker(read_batch(files, segment, info))
        except InvalidRecordError as error:
            logger.warning("%s: offset %d ends no transaction: %s", segment.path, info.base_offset, error)
    completed = state.update(info, info.base_offset, info.last_offset, marker)
    if completed is None or not state.has_open(completed):
        return None
    if completed.is_aborted and index_aborted:
        stable = state.stable_offset_after(completed)
        with suppressing_no_space():  # Readers find it in memory, and the next flush writes it.
            segment.txn_index.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
    state.complete(completed)
    return completed


def mend_epochs(
    epochs: LeaderEpochCache, segments: Sequence[LogSegment], files: FileSystem, end_offset: Offset
) -> None:
    """Finds leader epochs again from the headers of all batches below `end_offset`."""
    for segment in segments:
        for info in readable_headers(segment, files, FIRST_POSITION, segment.size, strict=False):
            if info.base_offset >= end_offset:
                break
            epochs.found(info)
        segment.close_files()


def lacks_epochs(segments: Sequence[LogSegment], files: FileSystem) -> bool:
    """Whether batches have leader epochs, asked of a log whose checkpoint has none."""
    first = next((segment for segment in segments if segment.size), None)
    if first is None:
        return False
    header = next(readable_headers(first, files, FIRST_POSITION, first.size, 1, strict=False), None)
    return header is not None and header.partition_leader_epoch >= 0
