"""The ordinary append in one call: judge a batch, give it its offsets, write it, count it.

Most batches are a producer's, uncompressed or in lz4 or zstd and not long, fit to be stored as they are, for a log
whose active segment has room.  Those are appended here; for whatever is out of the ordinary the answer is -1, nothing
has been changed, and the way through `UnifiedLog.append_as_leader` does the rest, errors included.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kbroker._fast.records.batch_info cimport (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    RECORDS_POSITION,
    TRANSACTIONAL_MASK,
    BatchInfo,
)
from kbroker._fast.records.compressed_walk cimport walk_ordinary
from kbroker._fast.log.index cimport AppendTail
from kbroker._fast.log.log_fields cimport (
    AppendRules,
    FileFields,
    LocalLogFields,
    LogFields,
    ProducerFields,
    SegmentFields,
)
from kbroker._fast.records.native_libraries cimport serves
from kbroker._fast.records.record_batch cimport is_sound, stamp_at, whole_batch

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pwrite "pwrite"(int fd, const void* buffer, size_t count, int64_t offset)

cdef enum:
    OUT_OF_THE_ORDINARY = -1


cpdef object append_ordinary(LogFields log, records, int32_t leader_epoch, int64_t now_ms):
    """Appends the one batch in `records` (writable): its base offset, or -1.  Who asks says what is committed then."""
    cdef Py_buffer view
    if records is None:
        return OUT_OF_THE_ORDINARY
    PyObject_GetBuffer(records, &view, PyBUF_WRITABLE)
    try:
        return append_at(log, <uint8_t*> view.buf, view.len, leader_epoch, now_ms)
    finally:
        PyBuffer_Release(&view)


@cython.nonecheck(True)
cdef int64_t append_at(LogFields log, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms) except -2:
    """`append_ordinary` of bytes that nobody else changes meanwhile."""
    cdef LocalLogFields local = log.local_
    cdef SegmentFields segment = local.segments_.active_
    cdef FileFields file
    cdef BatchInfo info
    cdef int64_t first = local.log_end_offset
    cdef int64_t position
    if segment is None or segment.tail is None:
        return OUT_OF_THE_ORDINARY
    position = segment.tail.size
    info = judge(log, data, size, leader_epoch, now_ms, first, position)
    # Held, so that the descriptor stays open: another thread may have taken it from the segment, or do so in the write.
    file = segment.open_file_
    if info is None or file is None or not ends_at(local, segment, position, first):
        return OUT_OF_THE_ORDINARY
    if not _write(file.fd, data, position, size, first, leader_epoch):
        (<object> segment).cut_failed_write(file, position)
        return OUT_OF_THE_ORDINARY
    count_in(log, segment, info, first, size)
    if log.committer_ is not None:
        log.committer_.appended(local.log_end_offset)
    return first


@cython.nonecheck(True)
cdef BatchInfo judge(
    LogFields log, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms, int64_t first, int64_t position
):
    """The batch's header and what its records are, None where it is out of the ordinary at this offset and position."""
    cdef AppendRules rules = log.append_rules
    cdef BatchInfo info = admit(log, data, size, leader_epoch, first, position)
    if (
        info is None
        or not is_sound(info, data)
        or (
            info.header.attributes & COMPRESSION_MASK
            and not walk_ordinary(info, data + RECORDS_POSITION, size - RECORDS_POSITION, rules.expansion_bytes)
        )
        or (rules.needs_keys and info.keyless_count)
        or not info.fits(now_ms, rules.before_max_ms, rules.after_max_ms)
        or not follows(log, info)
    ):
        return None
    return info


@cython.nonecheck(True)
cdef BatchInfo admit(
    LogFields log, const uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t first, int64_t position
):
    """The batch's header; None where that alone, of which no checksum was taken yet, is out of the ordinary.

    What costs nothing to see comes first: a batch for which there is no room goes the general way without having been
    read here.
    """
    cdef AppendRules rules = log.append_rules
    cdef SegmentFields segment = log.local_.segments_.active_
    cdef BatchInfo info
    if (
        rules is None or log.gate_.closed
        or leader_epoch != log.leader_epoch_cache_.latest_epoch
        or not has_room(segment, rules, position, size)
    ):
        return None
    if ordinary_codec(data, size, rules) < 0:
        return None
    info = whole_batch(data, size)
    if (
        info is None
        or first + info.header.last_offset_delta - segment.base_offset > INT32_MAX
        or info.header.max_timestamp > segment.roll_after_timestamp
    ):
        return None
    return info


@cython.nonecheck(True)
cdef bint follows(LogFields log, BatchInfo info) except -1:
    """Whether the batch plainly follows what its producer, if it has one, wrote before."""
    cdef ProducerFields state = log.producer_state_
    return info.header.producer_id < 0 or (len(state.verifications) == 0 and state.producers.follows(info))


cdef bint ends_at(LocalLogFields local, SegmentFields segment, int64_t position, int64_t offset) noexcept:
    """Whether the log's end is still there: to judge a long batch lets other threads run."""
    return (
        local.segments_.active_ is segment and segment.tail is not None
        and segment.tail.size == position and local.log_end_offset == offset
    )


cdef bint has_room(SegmentFields segment, AppendRules rules, int64_t position, int64_t size) noexcept:
    """Whether a batch may have so many bytes, and the active segment takes it at `position` as it is."""
    cdef int64_t end = position + size
    if segment is None or segment.open_file_ is None or segment.indexes_full:
        return False
    return size <= rules.max_message_bytes and end <= rules.segment_bytes and end <= segment.allocated_bytes


cdef int ordinary_codec(const uint8_t* data, Py_ssize_t size, AppendRules rules) except -2:
    """0 to 4, or -1 for a batch that is not ordinary, transactional for example: by the header alone, whose checksum
    nobody has looked at yet."""
    cdef int attributes
    if size <= RECORDS_POSITION or data[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK:
        return OUT_OF_THE_ORDINARY
    attributes = data[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK
    if attributes and not (serves(attributes) and size < rules.long_bytes and rules.expansion_bytes):
        return OUT_OF_THE_ORDINARY
    return attributes


@cython.nonecheck(True)
cdef int count_in(LogFields log, SegmentFields segment, BatchInfo info, int64_t first, int64_t size) except -1:
    """What follows for the log from a batch that was written at the end of the active segment."""
    cdef AppendTail tail = segment.tail
    cdef int64_t position = tail.size
    cdef int64_t last = first + info.header.last_offset_delta
    segment.recently_used = True
    if tail.take(first, last, size, info.header.max_timestamp):
        (<object> segment).index_batch(tail, last, position)
    log.local_.log_end_offset = last + 1
    if info.header.producer_id >= 0:
        log.producer_state_.producers.remember(info, first, last)
    return 0


cdef bint _write(int fd, uint8_t* data, int64_t position, Py_ssize_t size, int64_t first, int32_t leader_epoch):
    """Stamps the batch and writes it.  False when not all of it was written: the batch is as it was before then."""
    cdef uint8_t[STAMPED_BYTES] before
    cdef ssize_t written
    memcpy(before, data, STAMPED_BYTES)
    stamp_at(data, first, leader_epoch)
    if size >= RELEASE_GIL_BYTES:
        with nogil:
            written = c_pwrite(fd, data, size, position)
    else:
        written = c_pwrite(fd, data, size, position)
    if written == size:
        return True
    memcpy(data, before, STAMPED_BYTES)
    return False
