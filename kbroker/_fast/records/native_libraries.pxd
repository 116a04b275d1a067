from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    LZ4F_VERSION = 100
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4


cdef struct Lz4FramePreferences:
    int block_size
    int block_mode
    int content_checksum
    int frame_type
    uint64_t content_size
    uint32_t dictionary
    int block_checksum
    int level
    uint32_t auto_flush
    uint32_t favour_decompression
    uint32_t reserved[3]

cdef struct ZstdIn:
    const void* data
    size_t size
    size_t position

cdef struct ZstdOut:
    void* data
    size_t size
    size_t position

cdef struct Lz4:
    size_t (*create)(void**, unsigned int) noexcept nogil
    size_t (*release)(void*) noexcept nogil
    void (*reset)(void*) noexcept nogil
    size_t (*decompress)(void*, void*, size_t*, const void*, size_t*, const void*) noexcept nogil
    unsigned int (*is_error)(size_t) noexcept nogil
    size_t (*bound)(size_t, const Lz4FramePreferences*) noexcept nogil
    size_t (*compress)(void*, size_t, const void*, size_t, const Lz4FramePreferences*) noexcept nogil
    unsigned int (*version)() noexcept nogil

cdef struct Zstd:
    void* (*create_reader)() noexcept nogil
    size_t (*free_reader)(void*) noexcept nogil
    size_t (*reset)(void*, int) noexcept nogil
    size_t (*set_parameter)(void*, int, int) noexcept nogil
    size_t (*begin)(void*) noexcept nogil
    size_t (*next_bytes)(void*) noexcept nogil
    size_t (*decompress_next)(void*, void*, size_t, const void*, size_t) noexcept nogil
    size_t (*decompress_stream)(void*, ZstdOut*, ZstdIn*) noexcept nogil
    unsigned int (*is_error)(size_t) noexcept nogil
    void* (*create_writer)() noexcept nogil
    size_t (*free_writer)(void*) noexcept nogil
    size_t (*compress)(void*, void*, size_t, const void*, size_t, int) noexcept nogil
    size_t (*bound)(size_t) noexcept nogil
    unsigned int (*version)() noexcept nogil

cdef Lz4 lz4
cdef Zstd zstd

cdef bint serves(int codec) noexcept nogil
