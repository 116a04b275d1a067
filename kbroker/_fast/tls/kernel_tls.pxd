"""The kernel's TLS of a TCP socket: from `take_over` on it encrypts what is sent (Linux 4.13, TLS 1.3 since 5.1)."""

cdef enum:
    MOST_SECRET_BYTES = 48

cdef struct KernelSide:
    # What the kernel has to know of a session: the secret of what the server sends of the application's, as long as it
    # holds (0 bytes: there is none), and the number of records that have its keys.
    void* session
    unsigned long long records
    int secret_bytes
    char secret[MOST_SECRET_BYTES]
    # The kernel encrypts what is sent; the session only reads.
    bint taken_over
    # The client has asked for new keys, and what is sent next has to have them.
    bint owes_keys

cdef bint take_over(int fd, const char* keys, unsigned int size, bint again) noexcept nogil
cdef bint say_new_keys(int fd) noexcept nogil
cdef bint say_end(int fd) noexcept nogil
cdef void count_records(KernelSide* side, const char* data, size_t size) noexcept nogil
cdef void forget_secret(KernelSide* side) noexcept nogil
cdef void begin_notes(KernelSide* side) noexcept nogil
cdef void end_notes() noexcept nogil
