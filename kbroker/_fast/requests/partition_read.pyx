"""Finds the records of a fetch in a log (segment, position and size) through C fields alone.

Most fetches go on where the one before ended.  For any other fetch the size is UNKNOWN: `UnifiedLog.read` then decides,
errors included, and nothing has been changed.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.files.system_calls cimport system_calls
from kbroker._fast.log.batch_seek cimport SEEN, Seen, see
from kbroker._fast.records.layout cimport RECORDS_POSITION
from kbroker._fast.log.index cimport TailBatch, load64
from kbroker._fast.log.log_fields cimport (
    FileFields, LocalLogFields, LogFields, SegmentFields, consumer_bound, last_stable_offset
)
from kbroker._fast.requests.fetch_rows cimport UNKNOWN, Found


@cython.nonecheck(True)
cdef SegmentFields find(LogFields log, object file_system, int64_t offset, int64_t limit, bint committed, Found* found):
    """The segment of the records from `offset` on, with its file open; `confirm` says whether they are there.

    `committed`: no records of transactions that are open or were aborted.  `file_system`: the type of those files that
    may be read here.  The file stays open for as long as no Python code is run; code that does that holds it.
    None with a size of 0 where there are none yet, with UNKNOWN where the log has to say.
    """
    cdef LocalLogFields local = log.local_
    cdef SegmentFields segment
    cdef const TailBatch* batch = NULL
    cdef int64_t bound
    found.size = UNKNOWN
    found.high_watermark = log.high_watermark
    found.last_stable_offset = last_stable_offset(log)
    found.log_start_offset = log.log_start_offset
    if limit < 0 or offset < log.local_log_start_offset or offset > local.log_end_offset:
        return None
    if type(local.environment_.files) is not file_system:
        return None
    bound = consumer_bound(log, committed)
    if offset >= bound:
        found.size = 0
        return None
    segment = local.segments_.active_
    if offset < segment.base_offset:
        if committed:
            return None     # a transaction may have been aborted in a later segment
        segment = (<object> local.segments_).floor(offset)
        if segment is None:
            return None
    elif committed and (<object> segment).has_txn_index:
        return None
    if segment.is_damaged:
        return None     # the log knows which parts of it can be read
    if segment.open_file_ is None:
        try:
            (<object> segment).file()
        except OSError:
            return None     # the log meets it again, and reports it
    segment.recently_used = True
    found.end = visible_end(log, segment, bound)
    if found.end < 0:
        return None
    if segment.tail is not None:
        batch = segment.tail.batch_of(offset)
    if batch != NULL:
        found.position = batch.position
        found.first = batch.size
    else:
        found.position = -1 if segment.follow_ups is None else segment.follow_ups.position_of(offset)
        found.first = UNKNOWN
        if found.position < 0 or found.position >= found.end:
            return None
    if segment.open_file_ is None:
        return None     # another thread has had to make room, while Python was asked for something
    found.size = min(limit, found.end - found.position)
    return segment


@cython.nonecheck(True)
cdef int64_t visible_end(LogFields log, SegmentFields segment, int64_t bound) except -2:
    """The position in the segment's file up to which every offset is below `bound`; -1 where the log has to say."""
    cdef LocalLogFields local = log.local_
    cdef const TailBatch* batch
    if bound < local.log_end_offset:
        if segment is local.segments_.active_:
            if segment.tail is None:
                return -1
            batch = segment.tail.batch_of(bound)
            return batch.position if batch != NULL and batch.base_offset == bound else -1
        if bound < local.segments_.active_.base_offset:
            return -1
    return segment.tail.size if segment.tail is not None else <int64_t> (<object> segment).size


cdef bint confirm(SegmentFields segment, FileFields file, int64_t offset, int64_t limit, bint at_least_one,
                  Found* found) noexcept:
    """Whether the records found are there, which takes a read of the first batch's header, and may be sent.  Sets their
    final size."""
    cdef uint8_t[RECORDS_POSITION] header
    cdef Seen first
    if found.first == UNKNOWN:
        if system_calls.pread(file.fd, header, RECORDS_POSITION, found.position) != RECORDS_POSITION:
            return False
        if not is_first(header, RECORDS_POSITION, offset, found, &first):
            return False
        found.first = first.size
        note(segment, first.last + 1, found.position + first.size)
    if found.first > limit:
        if not at_least_one:
            return False
        found.size = found.first
    return True


cdef bint is_first(const uint8_t* header, Py_ssize_t got, int64_t offset, const Found* found, Seen* first) noexcept:
    """Whether `header` is that of a batch that contains `offset`, or begins behind it, and that ends within the
    file."""
    return (see(header, got, first) == SEEN and load64(header) <= first.last and offset <= first.last
            and first.size <= found.end - found.position)


cdef bint note_next(SegmentFields segment, const uint8_t* records, int64_t offset, const Found* found) noexcept:
    """Whether the records begin with the whole batch of `offset`; the position behind the last whole batch is kept.

    A consumer's next fetch begins there.
    """
    cdef Seen batch
    cdef int64_t last
    cdef int64_t at = 0
    if not is_first(records, found.size, offset, found, &batch) or batch.size > found.size:
        return False
    while True:
        last = batch.last
        at += batch.size
        if see(records + at, found.size - at, &batch) != SEEN or batch.size > found.size - at or batch.last <= last:
            note(segment, last + 1, found.position + at)
            return True


cdef inline void note(SegmentFields segment, int64_t offset, int64_t position) noexcept:
    if segment.follow_ups is not None:
        segment.follow_ups.add(offset, position)
