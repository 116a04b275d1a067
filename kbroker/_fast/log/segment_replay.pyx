"""Recovery's accounting: counts and indexes the batches that a scan found, and picks those that producers need.

`account` repeats the accounting of an append for each batch of a range, and stops at the first one that needs a
decision.  `last_of_each` skips batches that cannot affect producer state.  That state keeps five batches of each
producer, so without transactions the last five of a range lead to the same state as all of them.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from kbroker._fast.records.layout cimport CONTROL_MASK, LOG_OVERHEAD_BYTES, TRANSACTIONAL_MASK
from kbroker._fast.log.batch_rules cimport MAX_RELATIVE_OFFSET
from kbroker._fast.log.index cimport AppendTail, OffsetTable, TimeTable
from kbroker._fast.log.segment_scan cimport Found, SegmentScan

cdef enum:
    SLOT_BITS = 12
    SLOTS = 4096                  # producers counted in one range; of more than fit, all batches are given
    BATCHES_OF_A_PRODUCER = 5


cdef struct Seen:
    int64_t producer_id           # plus 1; 0 is a free slot
    int64_t count


def account(
    SegmentScan scan not None,
    Py_ssize_t start,
    AppendTail tail not None,
    OffsetTable offsets not None,
    TimeTable times not None,
    Py_ssize_t room,
    int64_t next_offset,
    int leader_epoch,
):
    """Counts batches from number `start` on: (number of the first one not counted, offset after the last counted).

    It stops before a batch whose offsets do not go on from `next_offset` or do not fit the segment, that has another
    leader epoch or is of a format without, or that is due for an index entry when `room` entries were added.
    """
    cdef Py_ssize_t at = start
    cdef Found* found
    cdef int64_t base_offset = offsets.base_offset
    cdef int64_t first, last, position
    if start < 0:
        raise IndexError(f"batch {start}")
    while at < scan.count:
        found = &scan.found[at]
        first = found.header.base_offset
        last = first + found.header.last_offset_delta
        if (
            first < next_offset
            or last - base_offset > MAX_RELATIVE_OFFSET
            or 0 <= found.header.partition_leader_epoch != leader_epoch
            or (found.header.magic < 2 and leader_epoch >= 0)
            or (room <= 0 and tail.bytes_since_index > tail.index_interval_bytes)
        ):
            break
        position = tail.size
        if tail.take(first, last, found.header.batch_length + <int64_t>LOG_OVERHEAD_BYTES, found.header.max_timestamp):
            offsets.add(last, position)
            times.add(tail.max_timestamp, tail.offset_of_max_timestamp)
            room -= 1
        next_offset = last + 1
        at += 1
    return at, next_offset


cdef int64_t seen_before(Seen* seen, int64_t producer_id) noexcept nogil:
    """How often `producer_id` was asked for before, counting it; 0 when there is no room to count it."""
    cdef uint64_t slot = (<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> (64 - SLOT_BITS)
    cdef int _probe
    for _probe in range(8):
        if seen[slot].producer_id == 0:
            seen[slot].producer_id = producer_id + 1
        if seen[slot].producer_id == producer_id + 1:
            seen[slot].count += 1
            return seen[slot].count - 1
        slot = (slot + 1) & (SLOTS - 1)
    return 0


def last_of_each(SegmentScan scan not None, Py_ssize_t start, Py_ssize_t stop, int64_t from_offset):
    """The batches of [start, stop) that producer state has to see, in their order; BatchInfo.

    Of batches from the one that contains `from_offset` on those of transactions, and the last five of each producer.
    """
    cdef Seen[SLOTS] seen
    cdef Py_ssize_t at
    cdef Found* found
    cdef list picked = []
    if start < 0 or stop > scan.count:
        raise IndexError(f"batches {start} to {stop} of {scan.count}")
    memset(seen, 0, sizeof(seen))
    for at in range(stop - 1, start - 1, -1):
        found = &scan.found[at]
        if found.header.base_offset + found.header.last_offset_delta < from_offset:
            break
        if found.header.producer_id < 0:
            continue
        if (
            found.header.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK)
            or seen_before(seen, found.header.producer_id) < BATCHES_OF_A_PRODUCER
        ):
            picked.append(scan.info(at))
    picked.reverse()
    return picked
