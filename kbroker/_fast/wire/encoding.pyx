"""Bodies, frames and parts of frames made of structs, in one go or in pieces."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from kbroker._fast.wire.encoder cimport MAX_FRAME, Encoder, begin, encode_struct, fail, finish, go_on_struct
from kbroker._fast.base.growable cimport (
    Growable, growable_free, growable_reserve, kb_store32, put_8, put_32, put_bytes,
)
from kbroker._fast.wire.repeats cimport forget
from kbroker._fast.wire.structs cimport Plan


cdef bytes encode_body(Plan plan, object struct, bytes prefix):
    cdef Encoder encoder
    begin(&encoder, plan)
    try:
        growable_reserve(&encoder.out, PyBytes_GET_SIZE(prefix) + 16)
        put_bytes(&encoder.out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        encode_struct(&encoder, plan, struct)
        return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size)
    finally:
        finish(&encoder)


cdef object encode_frame(Plan plan, object struct, int32_t correlation_id, bint flexible_header, Py_ssize_t items):
    """The frame, or an `Encoding` that has it when it is done, where there are more than so many items."""
    cdef Encoder encoder
    cdef list cuts = []
    begin(&encoder, plan)
    encoder.cuts = <PyObject*>cuts
    encoder.work_left = items
    try:
        growable_reserve(&encoder.out, 16)
        put_32(&encoder.out, 0)
        put_32(&encoder.out, <uint32_t>correlation_id)
        if flexible_header:
            put_8(&encoder.out, 0)
        encode_struct(&encoder, plan, struct)
        if encoder.suspended:
            return suspend(&encoder, plan, struct, cuts)
        set_length(&encoder, encoder.out.data, 0)
        if not cuts:
            return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size)
        return parts_of(&encoder.out, cuts)
    finally:
        finish(&encoder)


cdef Encoding suspend(Encoder* encoder, Plan plan, object struct, list cuts):
    cdef Encoding later = Encoding.__new__(Encoding)
    later.plan = plan
    later.struct = struct
    later.cuts = cuts
    later.parts = []
    later.encoder = encoder[0]
    memset(&encoder.out, 0, sizeof(Growable))
    later.cut_off()
    return later


cdef class Encoding:
    """An answer that is encoded in pieces: `run` until it says True, then `take`."""

    def run(self, Py_ssize_t items) -> bool:
        """Encode so many items more; whether the answer is complete.  EncodeError, after which it must not go on."""
        if self.struct is None:
            return True
        self.encoder.work_left = items
        self.encoder.suspended = False
        go_on_struct(&self.encoder, self.plan, self.struct)
        self.cut_off()
        if self.encoder.suspended:
            return False
        # Made here, and not seen by anyone yet.
        set_length(&self.encoder, <uint8_t*>PyBytes_AS_STRING(self.parts[0]), self.bytes_cut)
        self.struct = None
        return True

    def take(self) -> list:
        """The frame: its parts in order."""
        parts, self.parts = self.parts, None
        return parts

    cdef int cut_off(self) except -1:
        """Make parts of what was written in this piece."""
        self.bytes_cut += self.encoder.out.size
        self.parts += parts_of(&self.encoder.out, self.cuts)
        self.encoder.out.size = 0
        forget(&self.encoder.repeats)
        self.cuts.clear()
        return 0

    def __dealloc__(self):
        growable_free(&self.encoder.out)


cdef list encode_parts(Plan plan, object struct, bytes prefix):
    cdef Encoder encoder
    cdef list cuts = []
    begin(&encoder, plan)
    encoder.cuts = <PyObject*>cuts
    encoder.cuts_buffers = True
    try:
        growable_reserve(&encoder.out, PyBytes_GET_SIZE(prefix) + 16)
        put_32(&encoder.out, 0)
        put_bytes(&encoder.out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        encode_struct(&encoder, plan, struct)
        set_length(&encoder, encoder.out.data, 0)
        return parts_of(&encoder.out, cuts)
    finally:
        finish(&encoder)


cdef int set_length(Encoder* self, uint8_t* start, int64_t before) except -1:
    """Into the first 4 bytes of the frame, of which so many bytes are no longer in the buffer."""
    cdef int64_t total = before + self.out.size - 4 + self.region_bytes
    if total > MAX_FRAME:
        fail(self, NULL, f"a frame of {total} bytes, more than {MAX_FRAME}")
    kb_store32(start, <uint32_t>total)
    return 0


cdef list parts_of(const Growable* out, list cuts):
    cdef list parts = []
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t position
    for cut, region in cuts:
        position = cut
        if position > start:
            parts.append(PyBytes_FromStringAndSize(<char*>out.data + start, position - start))
        parts.append(region)
        start = position
    if out.size > start:
        parts.append(PyBytes_FromStringAndSize(<char*>out.data + start, out.size - start))
    return parts
