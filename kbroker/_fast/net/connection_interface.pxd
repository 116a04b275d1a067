from kbroker._fast.net.connection_states cimport LifeState


cdef class ConnectionInterface:
    cdef readonly LifeState life
    cdef readonly double last_active
    cdef object __weakref__

    cdef int opened(self, object socket) except -1
    cdef object room(self)
    cdef int received(self, Py_ssize_t size) except -1
    cdef bint end_of_requests(self) except -1
    cdef int lost(self, object error) except -1
    cdef int memory_came(self) except -1
    cdef int resume(self) except -1
    cdef ssize_t look(self) except -2
    cdef bint is_busy(self) noexcept
    cdef int finish(self, object frame) except -1
    cdef int give_up(self, object error) except -1
    cdef bint awaits(self, object ctx) noexcept
    cdef int conclude(self, object ctx, object response, bint encoded) except -1
    cdef int failed(self, object ctx, object error) except -1
