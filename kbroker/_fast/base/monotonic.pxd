"""The clocks, for C: the one that only goes forward, and the wall's.

Both read the system's clocks, except in a simulation (`monotonic.pyx`): there both follow `virtual.ns`.
"""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* result)
    int CLOCK_MONOTONIC
    int CLOCK_REALTIME

cdef struct VirtualTime:
    # 0: the system's clocks are asked.
    uint64_t ns
    # Each look at the clock takes so long.
    uint64_t look_ns
    int64_t wall_from_ms

cdef VirtualTime virtual


cdef inline bint is_virtual() noexcept nogil:
    return virtual.ns != 0


cdef inline uint64_t now_ns() noexcept nogil:
    cdef timespec now
    if virtual.ns != 0:
        virtual.ns += virtual.look_ns
        return virtual.ns
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t> now.tv_sec * 1000000000 + <uint64_t> now.tv_nsec


cdef inline uint64_t measured_ns() noexcept nogil:
    """`now_ns` for what is only shown: in a simulation it takes no time, so a new measurement changes no history."""
    return virtual.ns if virtual.ns != 0 else now_ns()


cdef inline int64_t wall_ms() noexcept nogil:
    cdef timespec now
    if virtual.ns != 0:
        return virtual.wall_from_ms + <int64_t> (virtual.ns // 1000000)
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1000000
