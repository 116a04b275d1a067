from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.records.batch_info cimport Header
from kbroker._fast.clean.clean_output cimport Output
from kbroker._fast.clean.clean_passes cimport State
from kbroker._fast.clean.clean_records cimport Entry
from kbroker._fast.clean.clean_write cimport Rules
from kbroker._fast.clean.offset_map cimport OffsetMap


cdef class Compaction:
    cdef readonly OffsetMap offsets
    cdef State* state
    cdef Output output
    cdef Output aside               # what a compressed batch becomes, before it is packed
    cdef Rules rules
    cdef int64_t* last_offsets
    cdef Py_ssize_t last_offset_count
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef readonly int64_t keyless_count

    cdef object fail(self, int stop, Py_ssize_t left)
    cdef bint keeps_empty(self, const Header* header) noexcept nogil
    cdef bint fits(self, const Header* header) noexcept nogil
    cdef int write_collected(self) noexcept nogil
    cdef void note(self, const Entry* entries, Py_ssize_t count) noexcept nogil
    cdef int clean_plain(self, const uint8_t* data, Py_ssize_t end) noexcept nogil
    cdef void give_back(self)
