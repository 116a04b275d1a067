"""Bugs of a partition's log."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest

from kbroker.storage.log import leader_epoch_cache, local_log, log_lookup, producer_state
from kbroker.storage.log.group_commit import FsyncMode, GroupCommit, LogCommitter
from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
from kbroker.storage.log.local_log import LocalLog, new_segment
from kbroker.storage.log.txn_index import AbortedTransaction
from kbroker.storage.log.unified_log import UnifiedLog
from tests.invariants.rows import Row, log_of
from tests.storage.batches import UNSYNCED_FILES

LOG = "storage/log/"


def reopened(log: UnifiedLog, log_start_offset: int) -> UnifiedLog:
    """As the loader makes it."""
    return UnifiedLog(
        log.topic_partition,
        log.local,
        log_start_offset,
        0,
        log.leader_epoch_cache,
        log.producer_state,
        log.local.environment,
        log.partition_metadata,
    )


def _start_behind_the_end(directory: Path, _: pytest.MonkeyPatch) -> None:
    reopened(log_of(directory), 99)


def _recovery_point_behind_the_end(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.local.recovery_point = 99
    reopened(log, 0)


def _producers_of_later_batches(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.producer_state.map_end_offset = 99
    log.roll()


def _roll_below_the_end(directory: Path, _: pytest.MonkeyPatch) -> None:
    log_of(directory).local.roll(3, None)


def _roll_to_another_offset(directory: Path, patch: pytest.MonkeyPatch) -> None:
    log, made = log_of(directory), new_segment
    patch.setattr(local_log, "new_segment", lambda *arguments: made(*arguments[:3], arguments[3] + 1))
    log.roll()


def _epochs_below_the_start(directory: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderEpochCache, "truncate_from_start", lambda *_: None)
    log_of(directory).maybe_increment_log_start_offset(4)


def _uncommitted_records_deleted(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory, segment_bytes=1024)
    log.roll()
    log.high_watermark = 1
    log.local_log_start_offset = log.log_end_offset
    log.delete_segments_below(log.log_end_offset)


def _cut_one_too_high(directory: Path, patch: pytest.MonkeyPatch) -> None:
    cut = LocalLog.truncate_to
    patch.setattr(LocalLog, "truncate_to", lambda self, offset: cut(self, offset + 2))
    log_of(directory).truncate_to(2)


def _epoch_of_what_is_cut_stays(directory: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader_epoch_cache, "bisect_left", bisect_right)
    log_of(directory).truncate_to(4)


def _epoch_is_not_noted(directory: Path, patch: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    patch.setattr(LeaderEpochCache, "_insert", lambda *_: True)
    log.assign_leader_epoch(7)


def _epoch_begins_behind_the_end(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.leader_epoch_cache.assign(9, 99)
    log.end_offset_for_epoch(9)


def _snapshot_of_what_is_not_there(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.producer_state.map_end_offset, log.producer_state.first_unstable_offset = 6, 8
    log.producer_state.take_snapshot()


def _producers_are_not_replayed(directory: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_lookup, "replay_producers", lambda *_: None)
    log_of(directory).truncate_to(2)


def _snapshots_of_a_log_that_begins_anew(directory: Path, patch: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.producer_state.snapshots[4] = 12
    patch.setattr(producer_state.ProducerState, "_remove_snapshot", lambda *_: None)
    log.truncate_fully_and_start_at(50)


def _active_segment_removed(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.roll()
    log.local.remove([log.local.segments.active])


def _segments_of_another_log_removed(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.roll()
    log.local.segments.without([new_segment(log.directory, log.config, log.local.environment, 77)])


def _two_segments_of_one_offset(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.local.segments.replacing([], [new_segment(log.directory, log.config, log.local.environment, 0)])


def _transaction_that_ends_before_it_begins(directory: Path, _: pytest.MonkeyPatch) -> None:
    log_of(directory).local.segments.active.txn_index.append(AbortedTransaction(1, 5, 4, 5))


def _durable_behind_the_end(directory: Path, _: pytest.MonkeyPatch) -> None:
    LogCommitter(GroupCommit(UNSYNCED_FILES, FsyncMode.COMMIT), log_of(directory), 1).flushed(99)


def _clean_stop_after_a_failed_fsync(directory: Path, _: pytest.MonkeyPatch) -> None:
    log = log_of(directory)
    log.local.flush_failed = True
    log.closed_durably()


def _cut_behind_the_file(directory: Path, _: pytest.MonkeyPatch) -> None:
    segment = log_of(directory).local.segments.active
    segment.cut(segment.size + 1)


def _more_batches_than_the_file_has(directory: Path, _: pytest.MonkeyPatch) -> None:
    segment = log_of(directory).local.segments.active
    segment.end_rebuild(segment.size - 1, active=True)


ROWS = (
    Row(
        "a log starts behind its end", LOG + "unified_log.py", "high_watermark <= local.log_end", _start_behind_the_end
    ),
    Row(
        "more is durable than is there", LOG + "unified_log.py", "recovery_point <= lo", _recovery_point_behind_the_end
    ),
    Row("producers are ahead at a roll", LOG + "unified_log.py", "map_end_offset <= base", _producers_of_later_batches),
    Row("a segment begins below the end", LOG + "local_log.py", "base_offset >= self.log_end", _roll_below_the_end),
    Row("a segment has another offset", LOG + "unified_log.py", "base == self.local.segm", _roll_to_another_offset),
    Row("epochs begin below the start", LOG + "unified_log.py", "earliest[1] >= offset", _epochs_below_the_start),
    Row("uncommitted records are deleted", LOG + "unified_log.py", "offset <= self.high", _uncommitted_records_deleted),
    Row("a cut leaves records", LOG + "unified_log.py", "self.log_end_offset == offset", _cut_one_too_high),
    Row("the epoch of a cut stays", LOG + "leader_epoch_cache.py", "[-1] < end_offset", _epoch_of_what_is_cut_stays),
    Row(
        "a leader's epoch is not noted", LOG + "leader_epoch_cache.py", "== (epoch, start_offset)", _epoch_is_not_noted
    ),
    Row("an epoch begins behind the end", LOG + "leader_epoch_cache.py", "<= log_end", _epoch_begins_behind_the_end),
    Row("a snapshot knows the future", LOG + "producer_state.py", "unstable < offset", _snapshot_of_what_is_not_there),
    Row("producers lack batches", LOG + "log_lookup.py", "state.map_end_offset == end", _producers_are_not_replayed),
    Row("old snapshots stay", LOG + "producer_state.py", "not self.snapshots", _snapshots_of_a_log_that_begins_anew),
    Row("the active segment goes", LOG + "local_log.py", "gone[-1].base_offset <", _active_segment_removed),
    Row(
        "another log's segment goes", LOG + "log_segments.py", "len(left) + len(gone)", _segments_of_another_log_removed
    ),
    Row("two segments have one offset", LOG + "log_segments.py", "len(set(made._bases))", _two_segments_of_one_offset),
    Row("an abort precedes its records", LOG + "txn_index.py", "entry.first", _transaction_that_ends_before_it_begins),
    Row("an fsync of nothing counts", LOG + "group_commit.py", "self.durable_offset <= self", _durable_behind_the_end),
    Row(
        "a failed fsync is forgotten", LOG + "unified_log.py", "not self.local.flush", _clean_stop_after_a_failed_fsync
    ),
    Row("a file grows by a cut", LOG + "log_segment.py", "position >= 0 and dropped >= 0", _cut_behind_the_file),
    Row("recovery counts twice", LOG + "log_segment.py", "tail.size <= file_size", _more_batches_than_the_file_has),
)
