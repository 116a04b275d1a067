"""How much work is done at once: the functions that Python code calls, and the bytes of files that C reads and writes.

Both are the same in each run of the same history, however busy the machine is.  Bytes take their time, as they do for
real: virtual time moves on with them, so that what goes by the clock gives way.
"""

from libc.stdint cimport int64_t

from kbroker._fast.base.monotonic cimport virtual
from kbroker._fast.files.system_calls cimport SystemCalls, iovec, system_calls

cdef extern from "Python.h":
    ctypedef struct PyObject
    ctypedef struct PyFrameObject
    ctypedef int (*Py_tracefunc)(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) noexcept
    void PyEval_SetProfile(Py_tracefunc function, PyObject* argument)
    const int PyTrace_CALL
    const int PyTrace_C_CALL

cdef enum:
    # Of a slow machine.
    NS_PER_BYTE = 1

cdef int64_t called = 0
cdef int64_t limit = 0
cdef int64_t moved = 0
cdef object beyond = None
cdef SystemCalls real = system_calls


cdef int note(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) except -1:
    global called
    if what == PyTrace_CALL or what == PyTrace_C_CALL:
        called += 1
        if called == limit:
            beyond()
    return 0


cdef ssize_t counted(ssize_t size) noexcept nogil:
    global moved
    if size > 0:
        moved += size
        if limit > 0 and virtual.ns != 0:
            virtual.ns += size * NS_PER_BYTE
    return size


cdef ssize_t counted_pread(int fd, void* buffer, size_t size, int64_t offset) noexcept nogil:
    return counted(real.pread(fd, buffer, size, offset))


cdef ssize_t counted_preadv2(int fd, const iovec* vector, int count, int64_t offset, int flags) noexcept nogil:
    return counted(real.preadv2(fd, vector, count, offset, flags))


cdef ssize_t counted_pwrite(int fd, const void* buffer, size_t size, int64_t offset) noexcept nogil:
    return counted(real.pwrite(fd, buffer, size, offset))


cdef ssize_t counted_pwritev(int fd, const iovec* vector, int count, int64_t offset) noexcept nogil:
    return counted(real.pwritev(fd, vector, count, offset))


def start():
    """Count from now on; bytes only while no disk is bad, which has the system's calls for itself."""
    system_calls.pread, system_calls.preadv2 = counted_pread, counted_preadv2
    system_calls.pwrite, system_calls.pwritev = counted_pwrite, counted_pwritev
    PyEval_SetProfile(<Py_tracefunc> note, NULL)


def stop():
    """Count no more."""
    PyEval_SetProfile(NULL, NULL)
    system_calls.pread, system_calls.preadv2 = real.pread, real.preadv2
    system_calls.pwrite, system_calls.pwritev = real.pwrite, real.pwritev


def begin(int64_t calls, over):
    """A piece of work begins: `over` is called in its midst once it has called so many functions; 0: never."""
    global called, limit, moved, beyond
    called = moved = 0
    limit, beyond = calls, over


def calls():
    """Functions called since it began."""
    return called


def transferred():
    """Bytes read and written since it began."""
    return moved
