"""What a broker's code costs: instructions, by what this process says to callgrind, and objects that Python allocates.

Counted is what runs between `resume` and `pause`, but for what stands between `leave_broker` and `enter_broker`.  Objects
from a type's own free list cost no allocation, and are not seen.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #if defined(__has_include)
    #if __has_include(<valgrind/callgrind.h>)
    #include <valgrind/callgrind.h>
    #define KB_HAS_CALLGRIND 1
    #endif
    #endif
    #ifndef KB_HAS_CALLGRIND
    #define KB_HAS_CALLGRIND 0
    #define CALLGRIND_START_INSTRUMENTATION
    #define CALLGRIND_TOGGLE_COLLECT
    #define CALLGRIND_DUMP_STATS_AT(name)
    #endif
    #define kb_instrument() do { CALLGRIND_START_INSTRUMENTATION; } while (0)
    #define kb_toggle() do { CALLGRIND_TOGGLE_COLLECT; } while (0)
    #define kb_dump(name) do { CALLGRIND_DUMP_STATS_AT(name); } while (0)
    """
    const bint KB_HAS_CALLGRIND
    void kb_instrument() nogil
    void kb_toggle() nogil
    void kb_dump(const char* name) nogil

cdef extern from "Python.h":
    ctypedef enum PyMemAllocatorDomain:
        PYMEM_DOMAIN_OBJ
    ctypedef struct PyMemAllocatorEx:
        void* ctx
        void* (*malloc)(void* ctx, size_t size) noexcept
        void* (*calloc)(void* ctx, size_t count, size_t size) noexcept
        void* (*realloc)(void* ctx, void* block, size_t size) noexcept
        void (*free)(void* ctx, void* block) noexcept
    void PyMem_GetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx* allocator)
    void PyMem_SetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx* allocator)

cdef PyMemAllocatorEx real
cdef PyMemAllocatorEx meter
cdef int64_t allocations = 0
cdef bint counts = False
cdef bint collects = False      # callgrind does, in the parts that count
cdef bint is_away = False

HAS_CALLGRIND = bool(KB_HAS_CALLGRIND)
"""Whether valgrind's headers were there when this was built."""


cdef void* metered_malloc(void* ctx, size_t size) noexcept:
    global allocations
    allocations += counts
    return real.malloc(real.ctx, size)


cdef void* metered_calloc(void* ctx, size_t count, size_t size) noexcept:
    global allocations
    allocations += counts
    return real.calloc(real.ctx, count, size)


cdef void* metered_realloc(void* ctx, void* block, size_t size) noexcept:
    global allocations
    allocations += counts
    return real.realloc(real.ctx, block, size)


cdef void metered_free(void* ctx, void* block) noexcept:
    real.free(real.ctx, block)


cdef void leave_broker() noexcept nogil:
    global counts, is_away
    if counts:
        counts = False
        is_away = True
        if collects:
            kb_toggle()


cdef void enter_broker() noexcept nogil:
    global counts, is_away
    if is_away:
        is_away = False
        if collects:
            kb_toggle()
        counts = True


def install():
    """From now on this process's allocations pass the meter."""
    if meter.malloc == metered_malloc:
        return
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &real)
    meter.ctx = NULL
    meter.malloc, meter.calloc = metered_malloc, metered_calloc
    meter.realloc, meter.free = metered_realloc, metered_free
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &meter)


def collect():
    """From now on what counts is collected by callgrind, which runs this process and collects nothing until then."""
    global collects
    collects = True
    kb_instrument()


def resume():
    """What runs from now on counts."""
    global counts
    if not counts:
        counts = True
        if collects:
            kb_toggle()


def pause():
    """What runs from now on does not count."""
    global counts
    if counts:
        if collects:
            kb_toggle()
        counts = False


def taken():
    """How many allocations were counted since this was last asked."""
    global allocations
    cdef int64_t found = allocations
    allocations = 0
    return found


def dump(bytes name not None):
    """Callgrind writes what it has collected since this was last asked, under a name."""
    kb_dump(<const char*> name)
