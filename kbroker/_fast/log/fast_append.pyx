"""The append on the fast path: check a batch, give it its offsets, write it, count it in.

Most batches come from a producer, are short, uncompressed or in lz4 or zstd, can be stored as they are, and fit the
log's active segment.  These are appended here, also when they continue an open transaction.  For any other batch the
result is -1 and nothing has been changed: `UnifiedLog.append_as_leader` handles it, errors included.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kbroker._fast.files.system_calls cimport system_calls
from kbroker._fast.records.batch_info cimport BatchInfo
from kbroker._fast.records.layout cimport (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    RECORDS_POSITION,
    STAMPED_BYTES,
    TRANSACTIONAL_MASK,
)
from kbroker._fast.log.append_steps cimport ask_for_fsync, count_in
from kbroker._fast.log.batch_rules cimport ROLL_NOT, BatchRules, check_batch, roll_cause, rules_at
from kbroker._fast.log.log_fields cimport (
    AppendRules,
    FileFields,
    LocalLogFields,
    LogFields,
    ProducerFields,
    SegmentFields,
    count_append,
)
from kbroker._fast.records.native_libraries cimport serves
from kbroker._fast.records.native_codecs cimport Codecs
from kbroker._fast.records.native_payloads cimport borrow_codecs, give_back_codecs
from kbroker._fast.records.record_batch cimport stamp_at, whole_batch
from kbroker._fast.records.record_walk cimport Walk

cdef enum:
    NOT_APPENDED = -1
    # From this size on other threads may run while a batch is checked.
    LONG_CHECK_BYTES = 262144


@cython.nonecheck(True)
cdef int64_t append_at(LogFields log, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms,
                       bint transactional) except -2:
    """Appends one batch, of bytes that are not changed meanwhile: its base offset, or -1.

    `transactional`: the batch may be one of a transaction that is open here.  `Partition` says what is committed.
    """
    cdef LocalLogFields local = log.local_
    cdef SegmentFields segment = local.segments_.active_
    cdef FileFields file
    cdef BatchInfo info
    cdef int64_t first = local.log_end_offset
    cdef int64_t position
    if segment is None or segment.tail is None:
        return NOT_APPENDED
    position = segment.tail.size
    info = _checked_batch(log, data, size, leader_epoch, now_ms, first, position, transactional)
    # Held, so that the descriptor stays open: another thread may have taken it from the segment, or do so in the write.
    file = segment.open_file_
    if info is None or file is None or not ends_at(local, segment, position, first):
        return NOT_APPENDED
    if not _write(file, data, position, size, first, leader_epoch):
        (<object> segment).cut_failed_write(file, position)
        return NOT_APPENDED
    count_in(log, segment, info, first, size, None, True)
    count_append(log, <int64_t> info.header.last_offset_delta + 1, size)
    ask_for_fsync(log)
    return first


def append_sound(LogFields log not None, bytearray batch not None, int32_t leader_epoch, int64_t now_ms):
    """The same for a batch that a part of the broker has made, and gives away: its base offset, or -1."""
    return append_at(log, <uint8_t*> PyByteArray_AS_STRING(batch), PyByteArray_GET_SIZE(batch), leader_epoch, now_ms,
                     False)


@cython.nonecheck(True)
cdef BatchInfo _checked_batch(
    LogFields log, uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms, int64_t first,
    int64_t position, bint transactional
):
    """The batch's header, with what its records are; None where it is not appended here at this offset and position."""
    cdef BatchInfo info = checked_header(log, data, size, leader_epoch, first, position, transactional)
    cdef BatchRules rules
    cdef Codecs* codecs = NULL
    cdef Walk walk
    cdef bint good
    if info is None:
        return None
    rules = rules_at(log.append_rules, now_ms)
    if info.header.attributes & COMPRESSION_MASK:
        codecs = borrow_codecs()
    if size < LONG_CHECK_BYTES:
        good = check_batch(&rules, data, size, &info.header, &walk, codecs)
    else:
        with nogil:
            good = check_batch(&rules, data, size, &info.header, &walk, codecs)
    if codecs != NULL:
        give_back_codecs(codecs)
    if not good or not check_sequence(log, info):
        return None
    info.take_walk(&walk)
    return info


@cython.nonecheck(True)
cdef BatchInfo checked_header(
    LogFields log, const uint8_t* data, Py_ssize_t size, int32_t leader_epoch, int64_t first, int64_t position,
    bint transactional
):
    """The batch's header, its checksum not verified yet; None where the header alone rules out the fast path.

    What costs nothing to see comes first: a batch for which there is no room goes the general way without having been
    read here.
    """
    cdef AppendRules rules = log.append_rules
    cdef SegmentFields segment = log.local_.segments_.active_
    cdef BatchInfo info
    if (
        rules is None or log.space_guard_.closed
        or leader_epoch != log.leader_epoch_cache_.latest_epoch
        or not check_room(segment, rules, position, size)
    ):
        return None
    if not check_attributes(data, size, rules, transactional):
        return None
    info = whole_batch(data, size)
    if info is None or roll_cause(
        segment, rules.segment_bytes, position, size, first + info.header.last_offset_delta, info.header.max_timestamp
    ) != ROLL_NOT:
        return None
    return info


@cython.nonecheck(True)
cdef bint check_sequence(LogFields log, BatchInfo info) except -1:
    """Whether the batch plainly follows what its producer, if it has one, wrote before."""
    cdef ProducerFields state = log.producer_state_
    return info.header.producer_id < 0 or (len(state.verifications) == 0 and state.producers.check_next(info))


cdef bint ends_at(LocalLogFields local, SegmentFields segment, int64_t position, int64_t offset) noexcept:
    """Whether the log's end is still there: to judge a long batch lets other threads run."""
    return (
        local.segments_.active_ is segment and segment.tail is not None
        and segment.tail.size == position and local.log_end_offset == offset
    )


cdef bint check_room(SegmentFields segment, AppendRules rules, int64_t position, int64_t size) noexcept:
    """Whether a batch may have so many bytes, for which blocks of the open file are reserved."""
    if segment is None or segment.open_file_ is None:
        return False
    return size <= rules.max_message_bytes and position + size <= segment.allocated_bytes


cdef bint check_attributes(const uint8_t* data, Py_ssize_t size, AppendRules rules, bint transactional) except -1:
    """Whether codec and kind of a batch are what is appended here: by the header alone, before its checksum."""
    cdef int codec
    if size <= RECORDS_POSITION or (data[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK and not transactional):
        return False
    codec = data[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK
    return not codec or (serves(codec) and size < rules.long_bytes and rules.expansion_bytes > 0)


cdef bint _write(FileFields file, uint8_t* data, int64_t position, Py_ssize_t size, int64_t first,
                 int32_t leader_epoch) except -1:
    """Stamps the batch and writes it.  False when not all of it was written: the batch is as it was before then."""
    cdef uint8_t[STAMPED_BYTES] before
    cdef ssize_t written
    memcpy(before, data, STAMPED_BYTES)
    stamp_at(data, first, leader_epoch)
    if file.pwrite is not None:
        written = write_by(file, PyMemoryView_FromMemory(<char*> data, size, PyBUF_READ), position)
    elif size >= RELEASE_GIL_BYTES:
        with nogil:
            written = system_calls.pwrite(file.fd, data, size, position)
    else:
        written = system_calls.pwrite(file.fd, data, size, position)
    if written == size:
        return True
    memcpy(data, before, STAMPED_BYTES)
    return False


cdef int64_t write_by(FileFields file, object data, int64_t position) except -2:
    """How many bytes were written by files that are not the system's own; -1 for an error."""
    try:
        file.pwrite(file.fd, data, position)
    except OSError:
        return -1
    return len(data)
