cdef class ReceiveBuffer:
    cdef char* data
    cdef readonly Py_ssize_t capacity
    cdef readonly int exports
    cdef bint counted
    cdef BufferPool owed_to


cdef class BufferPool:
    cdef readonly Py_ssize_t buffer_bytes
    cdef readonly Py_ssize_t limit_bytes
    cdef readonly Py_ssize_t used_bytes
    cdef readonly Py_ssize_t spare_bytes
    cdef readonly Py_ssize_t spare_limit_bytes
    cdef readonly int held
    cdef list free
    cdef list spare
    cdef object waiting
    cdef public object loop

    cdef ReceiveBuffer acquire(self)
    cdef ReceiveBuffer acquire_frame(self, Py_ssize_t size, bint in_turn)
    cdef void adopt(self, ReceiveBuffer buffer)
    cdef int release(self, ReceiveBuffer buffer) except -1
    cdef int wait(self, object connection) except -1
    cdef int wake(self) except -1
    cdef int collect(self, Py_ssize_t capacity) except -1
