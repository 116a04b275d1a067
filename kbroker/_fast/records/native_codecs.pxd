from libc.stdint cimport int64_t, uint8_t


cdef enum Refusal:
    UNPACK_NOT = -1         # nothing for these libraries: the way through Python reads it, or says what is wrong
    UNPACK_ROOM = -2        # more bytes than there is room for
    UNPACK_NO_MEMORY = -3


cdef struct Codecs:
    void* lz4_reader
    void* zstd_reader
    void* zstd_writer
    uint8_t* scratch
    Py_ssize_t scratch_bytes


cdef struct Reading:
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t position
    int64_t left_bytes      # what may still come out
    int64_t made_bytes      # what has come out
    int64_t window_bytes    # zstd: what the library keeps
    int64_t content_bytes   # zstd: -1 when the frame does not say
    int64_t most_bytes      # zstd: what its blocks can hold at most
    int codec
    bint ended


cdef void free_codecs(Codecs* self) noexcept nogil
cdef bint reserve_scratch(Codecs* self, Py_ssize_t size) noexcept nogil
cdef int begin_unpack(
    Codecs* self, int codec, const uint8_t* data, Py_ssize_t size, int64_t limit_bytes, Reading* reading
) noexcept nogil
cdef Py_ssize_t unpack_more(Codecs* self, Reading* reading, uint8_t* out, Py_ssize_t room) noexcept nogil
cdef void end_unpack(Codecs* self, Reading* reading) noexcept nogil
cdef Py_ssize_t unpack(
    Codecs* self, int codec, const uint8_t* data, Py_ssize_t size, uint8_t* out, Py_ssize_t room, int64_t limit_bytes
) noexcept nogil
cdef Py_ssize_t pack_bound(int codec, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t pack(
    Codecs* self, int codec, const uint8_t* data, Py_ssize_t size, uint8_t* out, Py_ssize_t room
) noexcept nogil
