from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.records.batch_info cimport Header
from kbroker._fast.clean.clean_output cimport Output
from kbroker._fast.clean.clean_records cimport Entry
from kbroker._fast.records.native_codecs cimport Codecs


cdef enum Written:
    WRITE_NO_MEMORY = -1
    WRITE_NOTHING = 0
    WRITE_VERBATIM = 1    # every record stays as it is
    WRITE_EMPTY = 2       # a bare header
    WRITE_CHANGED = 3


cdef struct Rules:
    int64_t now_ms
    int64_t horizon_ms    # what a tombstone that enters the clean part gets
    int64_t end_offset
    bint keep_empty
    bint stamp            # a horizon is due without tombstones, too


cdef int write_batch(
    Output* out, const Header* header, const uint8_t* data, Entry* entries, Py_ssize_t count, const Rules* rules
) noexcept nogil
cdef int write_packed(
    Output* out,
    Output* aside,
    Codecs* codecs,
    int codec,
    const Header* header,
    const uint8_t* data,
    Entry* entries,
    Py_ssize_t count,
    const Rules* rules,
) noexcept nogil
