"""Record batches of format 2: header, checksum, walk and in-place stamping.

    0 base_offset int64        21 attributes int16          43 producer_id int64
    8 batch_length int32       23 last_offset_delta int32   51 producer_epoch int16
   12 partition_leader_epoch   27 base_timestamp int64      53 base_sequence int32
   16 magic int8               35 max_timestamp int64       57 records_count int32
   17 crc uint32                                            61 records

`batch_length` counts from byte 12 on.  The CRC covers byte 21 to the end, so the leader may write the first 21 bytes
(base offset and leader epoch) without touching it.  attributes: bits 0-2 codec, 3 timestamp type, 4 transactional,
5 control, 6 base_timestamp is a delete horizon.

Every function here raises a `BatchError`; its caller chooses the error code that the client gets.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker._fast.records.batch_info cimport (
    BatchInfo,
    HEADER_OK,
    HEADER_TRUNCATED,
    Header,
    header_error,
    make_info,
    parse_header,
    walk_error,
)
from kbroker._fast.records.layout cimport (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_POSITION,
    COMPRESSION_MASK,
    CRC_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_CRC_START,
    MESSAGE_FIELDS_POSITION,
    MESSAGE_FIXED_BYTES,
    MAX_TIMESTAMP_POSITION,
    PARTITION_LEADER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORDS_POSITION,
    STAMPED_BYTES,
    TIMESTAMP_TYPE_MASK,
)
from kbroker._fast.base.big_endian cimport kb_store32, kb_store64
from kbroker._fast.base.crc32c cimport crc32c_update
from kbroker._fast.base.cursor cimport Cursor, cursor_init
from kbroker._fast.records.record_walk cimport Walk, walk_init, walk_records

# Passed on: readers of batches catch these from here.
from kbroker._fast.records.batch_info import (
    BatchError,  # no-cython-lint
    CorruptBatchError,
    InvalidBatchHeaderError,
    InvalidRecordsError,
    OldMagicError,  # no-cython-lint
    TruncatedBatchError,
)


BATCH_OVERHEAD = RECORDS_POSITION
LOG_OVERHEAD = LOG_OVERHEAD_BYTES
MAGIC_V2 = 2
# For Python: see `kbroker.records.layout`.
POSITIONS = {
    "length": BATCH_LENGTH_POSITION,
    "leader_epoch": PARTITION_LEADER_EPOCH_POSITION,
    "magic": MAGIC_POSITION,
    "attributes": ATTRIBUTES_POSITION,
    "max_timestamp": MAX_TIMESTAMP_POSITION,
    "producer_id": PRODUCER_ID_POSITION,
    "stamped": STAMPED_BYTES,
    "crc": CRC_POSITION,
    "message_crc": MESSAGE_CRC_POSITION,
    "message_crc_start": MESSAGE_CRC_START,
    "message_attributes": MESSAGE_ATTRIBUTES_POSITION,
    "message_timestamp": MESSAGE_FIELDS_POSITION,
    "message_fixed": MESSAGE_FIXED_BYTES,
}

# The cimported type under its name for Python, too.
globals()["BatchInfo"] = BatchInfo

# Below this the work is shorter than a hand-over of the GIL, which another thread may then keep for a whole
# switch interval (5 ms): too long for the loop.
cdef enum:
    RELEASE_GIL_BYTES = 262144


cdef BatchInfo _header_at(const Py_buffer* view, Py_ssize_t pos, object end, Py_ssize_t* left):
    cdef Header header
    cdef Py_ssize_t stop = view.len
    cdef int fault
    if end is not None:
        stop = end
    if pos < 0 or pos > stop or stop > view.len:
        raise ValueError(f"positions {pos} to {stop} are outside of a buffer of {view.len} bytes")
    left[0] = stop - pos
    fault = parse_header(<const uint8_t*>view.buf + pos, left[0], &header)
    if fault:
        raise header_error(fault, &header, left[0])
    return make_info(&header, pos)


def read_header(buffer, Py_ssize_t pos=0, end=None):
    """The batch at `pos`, which must lie before `end` completely: size and magic are checked, the checksum is not."""
    cdef Py_buffer view
    cdef Py_ssize_t left
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return _header_at(&view, pos, end, &left)
    finally:
        PyBuffer_Release(&view)


cdef inline uint32_t _crc_of(const uint8_t* data, int32_t batch_length) noexcept nogil:
    return crc32c_update(
        0, data + ATTRIBUTES_POSITION, <size_t>(batch_length - (ATTRIBUTES_POSITION - LOG_OVERHEAD_BYTES))
    )


cdef bint check_bytes(const uint8_t* data, const Header* header, Walk* walk, uint32_t* crc) noexcept nogil:
    """Checksum, then the walk of an uncompressed batch; True when all is well."""
    cdef Cursor cursor
    walk_init(walk, header.base_timestamp)
    crc[0] = _crc_of(data, header.batch_length)
    if crc[0] != header.crc:
        return False
    if header.attributes & COMPRESSION_MASK:
        return True
    cursor_init(&cursor, data + RECORDS_POSITION, header.batch_length - (RECORDS_POSITION - LOG_OVERHEAD_BYTES))
    return walk_records(&cursor, walk, header.records_count)


cdef bint _check_long(const uint8_t* data, const Header* header, Walk* walk, uint32_t* crc) noexcept:
    """`check_bytes`, without the GIL where that takes long."""
    cdef bint good
    if header.batch_length < RELEASE_GIL_BYTES:
        return check_bytes(data, header, walk, crc)
    with nogil:
        good = check_bytes(data, header, walk, crc)
    return good


cdef bint _check_counts(const Header* header) noexcept:
    """A batch from a producer has as many records as offsets."""
    return header.records_count > 0 and <int64_t>header.last_offset_delta + 1 == header.records_count


cdef object _validate_counts(const Header* header):
    """Checked before any record is looked at."""
    cdef int64_t offsets = <int64_t>header.last_offset_delta + 1
    if _check_counts(header):
        return None
    last = header.base_offset + header.last_offset_delta
    if offsets <= 0:
        text = f"Batch has an invalid offset range: [{header.base_offset}, {last}]"
    elif header.records_count <= 0:
        text = f"Invalid reported count for record batch: {header.records_count}"
    else:
        text = (
            f"Inconsistent batch offset range [{header.base_offset}, {last}] and count of records "
            f"{header.records_count}"
        )
    raise InvalidBatchHeaderError(text)


cdef object _crc_error(const Header* header, uint32_t computed):
    return CorruptBatchError(f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})")


def validate_crc(buffer, BatchInfo info not None):
    """CorruptBatchError when the checksum of the batch at `info.position` is wrong."""
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if info.position + info.header.batch_length + LOG_OVERHEAD_BYTES > view.len:
            raise header_error(HEADER_TRUNCATED, &info.header, view.len - info.position)
        if info.header.batch_length >= RELEASE_GIL_BYTES:
            with nogil:
                crc = _crc_of(<const uint8_t*>view.buf + info.position, info.header.batch_length)
        else:
            crc = _crc_of(<const uint8_t*>view.buf + info.position, info.header.batch_length)
    finally:
        PyBuffer_Release(&view)
    if crc != info.header.crc:
        raise _crc_error(&info.header, crc)


def validate(buffer, Py_ssize_t pos=0, end=None, *, bint require_key=False):
    """Header, checksum, counts and (unless compressed) every record of the batch at `pos`.

    A compressed batch comes back with `walked` False: `walk_decompressed` does its records.
    """
    cdef Py_buffer view
    cdef Py_ssize_t left
    cdef BatchInfo info
    cdef Walk walk
    cdef uint32_t crc
    cdef bint good
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        info = _header_at(&view, pos, end, &left)
        good = _check_long(<const uint8_t*>view.buf + pos, &info.header, &walk, &crc)
    finally:
        PyBuffer_Release(&view)
    if crc != info.header.crc:
        raise _crc_error(&info.header, crc)
    _validate_counts(&info.header)
    if not good:
        raise walk_error(&walk)
    if not info.header.attributes & COMPRESSION_MASK:
        info.take_walk(&walk)
        if require_key and walk.keyless_count:
            raise InvalidRecordsError(f"{walk.keyless_count} records have no key")
    return info


cdef BatchInfo whole_batch(const uint8_t* data, Py_ssize_t size):
    """The header of the one batch that fills `size` bytes, whose counts agree; None of anything else."""
    cdef Header header
    if parse_header(data, size, &header) != HEADER_OK or <int64_t> header.batch_length + LOG_OVERHEAD_BYTES != size:
        return None
    return make_info(&header, 0) if _check_counts(&header) else None


cdef uint8_t* _writable_batch(object buffer, Py_buffer* view, Py_ssize_t pos) except NULL:
    PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    if pos < 0 or view.len - pos < RECORDS_POSITION:
        size = view.len
        PyBuffer_Release(view)
        raise ValueError(f"no batch header at position {pos} of a buffer of {size} bytes")
    return <uint8_t*>view.buf + pos


def stamp(buffer, Py_ssize_t pos, int64_t base_offset, int32_t partition_leader_epoch, BatchInfo info=None):
    """Writes base offset and leader epoch in place, and into `info` when it is given.  The CRC stays valid."""
    cdef Py_buffer view
    cdef uint8_t* data = _writable_batch(buffer, &view, pos)
    stamp_at(data, base_offset, partition_leader_epoch)
    PyBuffer_Release(&view)
    if info is not None:
        info.header.base_offset = base_offset
        info.header.partition_leader_epoch = partition_leader_epoch


def stamp_timestamps(buffer, Py_ssize_t pos, int timestamp_type, int64_t max_timestamp, BatchInfo info=None):
    """Writes timestamp type (0 create, 1 append) and max timestamp in place, and takes the CRC anew."""
    cdef Py_buffer view
    cdef uint8_t* data = _writable_batch(buffer, &view, pos)
    cdef Header header
    cdef int fault
    try:
        fault = parse_header(data, view.len - pos, &header)
        if fault:
            raise header_error(fault, &header, view.len - pos)
        header.attributes &= ~TIMESTAMP_TYPE_MASK
        if timestamp_type:
            header.attributes |= TIMESTAMP_TYPE_MASK
        header.max_timestamp = max_timestamp
        data[ATTRIBUTES_POSITION + 1] = <uint8_t>(header.attributes & 0xFF)
        kb_store64(data + MAX_TIMESTAMP_POSITION, <uint64_t>max_timestamp)
        header.crc = _crc_of(data, header.batch_length)
        kb_store32(data + CRC_POSITION, header.crc)
    finally:
        PyBuffer_Release(&view)
    if info is not None:
        info.header.attributes = header.attributes
        info.header.max_timestamp = max_timestamp
        info.header.crc = header.crc


def seal(buffer, int codec, BatchInfo info=None):
    """Makes one batch of a header and a payload of another size or codec: sets batch_length, codec bits and CRC."""
    cdef Py_buffer view
    cdef uint8_t* data = _writable_batch(buffer, &view, 0)
    cdef Header header
    cdef int fault
    try:
        if view.len - LOG_OVERHEAD_BYTES > INT32_MAX:
            raise ValueError(f"a batch of {view.len} bytes is too large for its format")
        kb_store32(data + BATCH_LENGTH_POSITION, <uint32_t>(view.len - LOG_OVERHEAD_BYTES))
        data[ATTRIBUTES_POSITION + 1] = <uint8_t>((data[ATTRIBUTES_POSITION + 1] & ~COMPRESSION_MASK) | codec)
        kb_store32(data + CRC_POSITION, _crc_of(data, <int32_t>(view.len - LOG_OVERHEAD_BYTES)))
        fault = parse_header(data, view.len, &header)
        if fault:
            raise header_error(fault, &header, view.len)
    finally:
        PyBuffer_Release(&view)
    if info is not None:
        info.header = header


def iterate_batches(buffer, Py_ssize_t pos=0, end=None):
    """The batches from `pos` on, headers only.  Ends at a batch cut off by the end of the buffer, as fetches may be."""
    cdef BatchInfo info
    while True:
        try:
            info = read_header(buffer, pos, end)
        except TruncatedBatchError:
            return
        yield info
        pos += info.header.batch_length + LOG_OVERHEAD_BYTES
