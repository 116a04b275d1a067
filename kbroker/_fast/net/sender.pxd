from posix.types cimport off_t

from kbroker._fast.files.file_region cimport FileRegion
from kbroker._fast.net.send_threads cimport SendThreads


cdef class Sender:
    cdef int fd
    cdef list parts
    cdef Py_ssize_t head
    cdef Py_ssize_t offset
    cdef readonly Py_ssize_t queued_bytes
    cdef FileRegion cold_region
    cdef off_t cold_position
    cdef Py_ssize_t cold_bytes
    cdef off_t warm_from
    cdef int catching_up
    cdef off_t warm_until
    cdef SendThreads threads
    cdef bint lent
    cdef bint keep

    cdef void queue(self, object part)
    cdef int flush(self, Py_ssize_t budget_bytes, object user) except -2
    cdef int queue_frame(self, list frame) except -1
    cdef void clear(self)
    cdef list cold_stretches(self)
    cdef void helped(self, Py_ssize_t sent)
    cdef ssize_t _send_bytes(self) except? -1
    cdef ssize_t _send_region(self, FileRegion region, object user) except? -1
    cdef void _advance(self, Py_ssize_t sent)
