from libc.stdint cimport int32_t, int64_t

from kbroker._fast.records.batch_info cimport BatchInfo
from kbroker._fast.log.producer_entry cimport Producer


cdef class ProducerBudget:
    cdef readonly int64_t count
    cdef readonly int64_t evictions
    cdef public int64_t limit
    cdef public object on_eviction


cdef class ProducerTable:
    cdef readonly ProducerBudget budget
    cdef Producer** slabs
    cdef int32_t* index
    cdef int32_t slab_room      # slabs that `slabs` can point to
    cdef int32_t slab_count
    cdef int32_t first_room     # records that the first slab has room for
    cdef int32_t slots         # of the index: a power of two, or 0
    cdef int32_t count
    cdef int32_t oldest
    cdef int32_t newest
    cdef void _free(self) noexcept
    cdef int _check(self) except -1
    cdef bint check_next(self, BatchInfo info) noexcept
    cdef bint remember(self, BatchInfo info, int64_t base_offset, int64_t last_offset) except -1
    cdef Producer* _at(self, int32_t at) noexcept nogil
    cdef int32_t _home(self, int64_t producer_id) noexcept nogil
    cdef int32_t _slot(self, int64_t producer_id) noexcept nogil
    cdef Producer* _find(self, int64_t producer_id) noexcept nogil
    cdef Producer* _obtain(self, int64_t producer_id) except NULL
    cdef int _evict(self) except -1
    cdef int _make_room(self) except -1
    cdef int _index_again(self, int32_t slots) except -1
    cdef void _put_index(self, int64_t producer_id, int32_t at) noexcept nogil
    cdef void _remove(self, int32_t at) noexcept
    cdef void _drop_index(self, int32_t slot) noexcept nogil
    cdef void _link(self, int32_t at) noexcept nogil
    cdef void _unlink(self, int32_t at) noexcept nogil
    cdef void _relink(self, int32_t at) noexcept nogil
