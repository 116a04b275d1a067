"""The producer snapshot in front of a cut.

A log that is cut takes its producer state from the newest snapshot at or below its new end and the batches behind it
(`log_lookup.rebuild_producer_state`).  Those may be a whole segment, and the cut is one turn of the loop.  So they are
read before, in slices, into a state beside the log's own, which the cut takes over: a snapshot has the last batch of a
producer alone, and a leader has to know five.  It is written as a snapshot at the new end, too.

Invariant: a snapshot says what the log has below its offset, whether the log is cut there afterwards or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.storage.log.log_lookup import replay_steps
from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.storage.log.log_view import Log
    from kbroker.storage.log.producer_state import ProducerState

READ_AT_ONCE = 256
"""Batches: up to 2 MB of a file, where they are small enough to be read whole."""


async def write_cut_snapshot(
    log: Log, offset: Offset, pace: Pace, is_wanted: Callable[[], bool]
) -> ProducerState | None:
    """Writes a producer snapshot at `offset`, of the batches that end before it: the state that it is of.

    None as soon as `is_wanted()` is False; it is asked behind each pause, and answers True where this returns a state.
    Raises KafkaStorageError.
    """
    while True:
        local, scratch = log.local, log.producer_state.beside()
        segments = local.segments
        try:
            begin, now_ms = log.local_log_start_offset, local.environment.clock.now_ms()
            start = scratch.load_latest(begin, offset, now_ms, keep_later=True)
            assert start <= offset, (log.topic_partition, start, offset)
            for _ in replay_steps(local, scratch, start, offset, READ_AT_ONCE):
                await pace
                if not is_wanted():
                    return None
                if log.local is not local or local.segments is not segments:
                    break
            else:
                scratch.map_end_offset = offset
                scratch.moved_to(log.directory)
                scratch.take_snapshot()
                assert offset == scratch.last_snapshot_offset in scratch.snapshots or offset == start, (offset, start)
                return scratch
        except OSError as error:
            raise log.storage_error("reading producers back", error) from error
