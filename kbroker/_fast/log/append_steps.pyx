"""What follows from a batch that was written at the end of a log's active segment, in the order of the steps.

    1  counts and index entries of the segment
    2  the log's end
    3  what is known of the producer, and of the transaction that a marker ends
    4  the fsync, where one is to come before the answer (`ask_for_fsync`)

Every append takes them: one batch in C (`fast_append`), several at once (`append_group`), the general one
(`UnifiedLog.append_as_leader`) and a follower's (`storage.log.replicated_append`).  `Partition` decides what is
committed by then.
"""

cimport cython
from libc.stdint cimport int64_t

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.log.batch_rules cimport holds_offset
from kbroker._fast.log.index cimport AppendTail
from kbroker._fast.log.log_fields cimport LogFields, ProducerFields, SegmentFields
from kbroker._fast.records.batch_info cimport BatchInfo
from kbroker._fast.records.layout cimport CONTROL_MASK


@cython.nonecheck(True)
cpdef int count_in(
    LogFields log, SegmentFields segment, BatchInfo info, int64_t first, int64_t size, object marker, bint is_one
) except -1:
    """Steps 1 to 3 for `size` bytes whose first offset is `first`.

    `marker`: what a control batch says.  Unless `is_one` they are several messages of an older format, each of which a
    reader finds by itself.
    """
    cdef AppendTail tail = segment.tail
    cdef ProducerFields state = log.producer_state_
    cdef int64_t position = tail.size
    cdef int64_t last = first + info.header.last_offset_delta
    if CHECKED:
        assert log.local_.segments_.active_ is segment, "only the active segment is appended to"
        assert log.local_.log_end_offset <= first <= last, (log.local_.log_end_offset, first, last)
        assert size > 0 and holds_offset(segment, last), (size, segment.base_offset, last)
    segment.recently_used = True
    if tail.take(first, last, size, info.header.max_timestamp):
        (<object> segment).index_batch(tail, last if is_one else first, position)
    if not is_one:
        tail.forget_batches()
    log.local_.log_end_offset = last + 1
    if info.header.producer_id >= 0:
        if info.header.attributes & CONTROL_MASK or len(state.verifications) > 0:
            (<object> log).note_producer(info, first, last, marker, segment)
        elif state.producers.remember(info, first, last):
            (<object> state).begin_transaction(first, info.header.producer_id)
    if CHECKED:
        (<object> segment).check_invariants()
    return 0


def request_fsync(LogFields log not None) -> None:
    """See `ask_for_fsync`."""
    ask_for_fsync(log)
