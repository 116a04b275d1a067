"""Numbers written in the order of the wire and of the files, wherever they stand."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline void kb_store16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void kb_store32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void kb_store64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    """
    void kb_store16(uint8_t*, uint16_t) noexcept nogil
    void kb_store32(uint8_t*, uint32_t) noexcept nogil
    void kb_store64(uint8_t*, uint64_t) noexcept nogil
