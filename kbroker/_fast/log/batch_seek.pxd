from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._fast.log.index cimport load32, load64
from kbroker._fast.records.layout cimport (
    BATCH_LENGTH_POSITION,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    RECORDS_POSITION,
)
from kbroker._fast.records.layout cimport MESSAGE_FIELDS_POSITION, MESSAGE_FIXED_BYTES


cdef struct Seen:
    int64_t size
    int64_t last
    int64_t timestamp


cdef enum Sight:
    SEEN = 1
    CUT_OFF = 0           # not enough of the header is there
    NONE = -1             # no header can be here: `size`


cdef inline int see(const uint8_t* header, Py_ssize_t left, Seen* out) noexcept nogil:
    cdef bint is_old
    if left < MESSAGE_FIXED_BYTES:
        return CUT_OFF
    is_old = header[MAGIC_POSITION] < 2
    out.size = <int64_t><int32_t>load32(header + BATCH_LENGTH_POSITION) + LOG_OVERHEAD_BYTES
    if out.size < (MESSAGE_FIXED_BYTES if is_old else RECORDS_POSITION):
        return NONE
    if is_old:
        out.last = load64(header)
        out.timestamp = load64(header + MESSAGE_FIELDS_POSITION) if header[MAGIC_POSITION] else -1
        return SEEN
    if left < RECORDS_POSITION:
        return CUT_OFF
    out.last = load64(header) + <int32_t>load32(header + LAST_OFFSET_DELTA_POSITION)
    out.timestamp = load64(header + MAX_TIMESTAMP_POSITION)
    return SEEN


cdef enum:
    FOLLOW_UPS = 32       # a power of two


cdef class FollowUps:
    cdef int64_t offsets[FOLLOW_UPS]
    cdef int64_t positions[FOLLOW_UPS]
    cdef unsigned int next
    cdef unsigned int count
    cdef int64_t position_of(self, int64_t offset) noexcept nogil
    cdef void add(self, int64_t offset, int64_t position) noexcept nogil
