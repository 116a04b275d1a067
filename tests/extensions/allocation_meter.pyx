"""How often Python objects are allocated, counted in front of the allocator that this process has.

Objects from a type's own free list are not seen, as they cost no allocation.
"""

from libc.stdint cimport int64_t

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


def install():
    """From now on this process's allocations pass the meter."""
    if meter.malloc == metered_malloc:
        return
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &real)
    meter.ctx = NULL
    meter.malloc, meter.calloc = metered_malloc, metered_calloc
    meter.realloc, meter.free = metered_realloc, metered_free
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &meter)


def switch(bint on):
    """Whether what is allocated from now on counts."""
    global counts
    counts = on


def taken():
    """How many were counted since this was last asked."""
    global allocations
    cdef int64_t found = allocations
    allocations = 0
    return found
