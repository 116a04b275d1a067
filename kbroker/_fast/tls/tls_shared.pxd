from kbroker._fast.net.send_threads cimport SendThreads
from kbroker._fast.net.socket_part cimport SocketPart
from kbroker._fast.tls.tls_stream cimport SendRoom, TlsStream

cdef enum:
    # Read from a socket in one go.
    INCOMING_BYTES = 131072
    SPARE_ROOMS = 8

cdef struct Loan:
    TlsStream* stream
    SendRoom* room


cdef class TlsShared:
    cdef readonly object loop
    cdef readonly SendThreads threads
    cdef readonly double deadline_seconds
    cdef readonly unsigned long long begun_count
    cdef readonly unsigned long long done_count
    cdef readonly unsigned long long resumed_count
    cdef readonly object kernel
    cdef readonly unsigned long long kernel_count
    cdef object waiting
    cdef char* incoming
    cdef SendRoom* own
    cdef SendRoom* spare[SPARE_ROOMS]
    cdef int spare_count

    cdef SendRoom* take_room(self) noexcept
    cdef void give_back(self, SendRoom* room) noexcept
    cdef int shake(self, StreamSocket socket) except -1
    cdef int next(self) except -1


cdef class StreamSocket(SocketPart):
    cdef TlsShared shared
    cdef TlsStream stream
    cdef Loan loan
    cdef bint with_thread
    cdef bint lent
    cdef int writer_fd

    cdef bint _in_kernel(self) except -1
    cdef bint _give_keys(self) except -1
    cdef bytes _suite(self)
    cdef int _wait_for_room(self, go_on) except -1
    cdef int _stop_waiting(self) except -1
    cdef void _end_loan(self) noexcept
