"""Whole payloads through `native_codecs`, and the `Codecs` that lie ready between two uses."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free

from kbroker._fast.records.native_codecs cimport (
    UNPACK_NO_MEMORY,
    UNPACK_NOT,
    UNPACK_ROOM,
    Codecs,
    free_codecs,
    pack,
    pack_bound,
    reserve_scratch,
    unpack,
)
from kbroker._fast.records.native_libraries cimport serves

cdef enum:
    KEPT = 2
    KEPT_SCRATCH_BYTES = 1048576
    LEAST_SCRATCH_BYTES = 262144
    # From this size on other threads may run meanwhile; below it is shorter than handing them the interpreter.
    RELEASE_GIL_BYTES = 32768

cdef Codecs* kept[KEPT]
cdef int kept_count = 0


cdef Codecs* borrow_codecs() except NULL:
    """One to work with, with the GIL; `give_back_codecs` it."""
    global kept_count
    cdef Codecs* codecs
    if kept_count:
        kept_count -= 1
        return kept[kept_count]
    codecs = <Codecs*> calloc(1, sizeof(Codecs))
    if codecs == NULL:
        raise MemoryError
    return codecs


cdef void give_back_codecs(Codecs* codecs) noexcept:
    global kept_count
    if codecs.scratch_bytes > KEPT_SCRATCH_BYTES:
        free(codecs.scratch)
        codecs.scratch = NULL
        codecs.scratch_bytes = 0
    if kept_count < KEPT:
        kept[kept_count] = codecs
        kept_count += 1
        return
    free_codecs(codecs)
    free(codecs)


cdef Py_ssize_t unpack_to_scratch(Codecs* self, int codec, const Py_buffer* view, int64_t limit_bytes) noexcept nogil:
    """All of it into the scratch memory, which never grows for more than the limit allows."""
    cdef int64_t room = max(<int64_t> LEAST_SCRATCH_BYTES, 4 * view.len)
    cdef Py_ssize_t made
    while True:
        room = min(room, limit_bytes + 1)
        if room <= 0 or not reserve_scratch(self, room):
            return UNPACK_NO_MEMORY if room > 0 else UNPACK_NOT
        made = unpack(
            self, codec, <const uint8_t*> view.buf, view.len, self.scratch, self.scratch_bytes, limit_bytes
        )
        if made != UNPACK_ROOM:
            return made
        if self.scratch_bytes > limit_bytes:
            return UNPACK_NOT
        room = 4 * self.scratch_bytes


def unpack_bytes(int codec, data, int64_t limit_bytes):
    """The decompressed bytes, None when `records.compression` has to look at them."""
    cdef Py_buffer view
    cdef Codecs* codecs
    cdef Py_ssize_t made
    if not serves(codec):
        return None
    codecs = borrow_codecs()
    try:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len >= RELEASE_GIL_BYTES:
                with nogil:
                    made = unpack_to_scratch(codecs, codec, &view, limit_bytes)
            else:
                made = unpack_to_scratch(codecs, codec, &view, limit_bytes)
        finally:
            PyBuffer_Release(&view)
        if made == UNPACK_NO_MEMORY:
            raise MemoryError
        return None if made < 0 else PyBytes_FromStringAndSize(<char*> codecs.scratch, made)
    finally:
        give_back_codecs(codecs)


def pack_bytes(int codec, data):
    """`data` as one frame; None when the codec is not served here."""
    cdef Py_buffer view
    cdef Codecs* codecs
    cdef Py_ssize_t made
    if not serves(codec):
        return None
    codecs = borrow_codecs()
    try:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not reserve_scratch(codecs, pack_bound(codec, view.len)):
                raise MemoryError
            with nogil:
                made = pack(
                    codecs, codec, <const uint8_t*> view.buf, view.len, codecs.scratch, codecs.scratch_bytes
                )
        finally:
            PyBuffer_Release(&view)
        if made < 0:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char*> codecs.scratch, made)
    finally:
        give_back_codecs(codecs)
