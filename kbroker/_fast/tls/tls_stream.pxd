"""One side of a TLS session, without Python: bytes in, bytes out.

A stream belongs to one thread at a time: the loop's, or the one that the loop has lent it to.  What came from the
client and is not decrypted yet lies in `pending`; what is encrypted and not with the kernel yet in `held`.
"""

from libc.stdint cimport int64_t

from kbroker._fast.files.system_calls cimport iovec
from kbroker._fast.tls.kernel_tls cimport KernelSide

cdef enum:
    RECORD_BYTES = 16384
    # Encrypted in one go, and the most that is held for a socket that is full.
    PORTION_BYTES = 131072
    # What the records of a portion have beside it, and some room for a header that waits before it.
    SPARE_BYTES = 16384
    HEADER_BYTES = 5
    # A record is no longer than that.
    MOST_RECORD_BYTES = RECORD_BYTES + 2048 + HEADER_BYTES

cdef enum Progress:
    GOES_ON
    ENDED
    BROKEN

cdef struct Bytes:
    char* data
    size_t start
    size_t end
    size_t capacity

cdef struct TlsStream:
    void* session
    void* outgoing
    void* incoming
    size_t incoming_bytes
    Bytes pending
    Bytes held
    Progress progress
    bint shaken
    unsigned long error
    KernelSide kernel

cdef struct SendRoom:
    # Memory of one thread for what it encrypts.
    char plain[PORTION_BYTES]
    char encrypted[PORTION_BYTES + SPARE_BYTES]

cdef bint begin_stream(TlsStream* stream, void* context) noexcept nogil
cdef void end_stream(TlsStream* stream) noexcept nogil
cdef bint keep(Bytes* store, const char* data, size_t size) noexcept nogil
cdef void drop(Bytes* store) noexcept nogil
cdef void shake_hands(TlsStream* stream) noexcept nogil
cdef bint offer(TlsStream* stream, const char* data, size_t size) noexcept nogil
cdef bint offer_pending(TlsStream* stream) noexcept nogil
cdef ssize_t decrypt(TlsStream* stream, char* room, size_t size) noexcept nogil
cdef bint has_more(TlsStream* stream, const char** data, size_t* size) noexcept nogil
cdef bint collect(TlsStream* stream) noexcept nogil
cdef void put_aside(TlsStream* stream) noexcept nogil
cdef bint send_held(TlsStream* stream, int fd) noexcept nogil
cdef ssize_t send_pieces(
    TlsStream* stream, int fd, SendRoom* room, const iovec* pieces, int count, bint more
) noexcept nogil
cdef ssize_t send_range(
    TlsStream* stream, int out_fd, SendRoom* room, int fd, int64_t position, size_t size
) noexcept nogil
cdef void say_goodbye(TlsStream* stream, int fd) noexcept nogil
