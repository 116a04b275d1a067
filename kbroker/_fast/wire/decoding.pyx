"""Large messages, decoded in pieces."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kbroker._fast.wire.decoder cimport begin, fill_struct, go_on_struct, limit_of
from kbroker._fast.wire.structs cimport Plan, PyType_GenericAlloc


cdef class Decoding:
    """A message that is decoded in pieces: `run` until it says True, then `take`.  The source is held until then.

    Bytes of more than LENT_BYTES are memoryviews of the source, as records are: nothing copies 90 MB in one go.
    """

    def __cinit__(self, Plan plan, object source, Py_ssize_t position, object end):
        PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
        self.holds = True
        self.source = source
        self.plan = plan
        begin(&self.decoder, plan, source, &self.view, position, limit_of(&self.view, position, end))
        self.decoder.lends = True

    def run(self, Py_ssize_t items) -> bool:
        """Decode so many items more; whether the message is complete.  DecodeError, after which it must not go on."""
        if not self.holds:
            return True
        self.decoder.work_left = items
        if self.struct is None:
            self.struct = PyType_GenericAlloc(self.plan.struct_class, 0)
            fill_struct(&self.decoder, self.plan, self.struct, 0)
        else:
            self.decoder.suspended = False
            go_on_struct(&self.decoder, self.plan, self.struct)
        if self.decoder.suspended:
            return False
        self.release()
        return True

    def take(self):
        """The message.  No further reference to it is kept here."""
        struct, self.struct = self.struct, None
        return struct

    cdef int release(self) except -1:
        if self.holds:
            self.holds = False
            self.source = None
            PyBuffer_Release(&self.view)
        return 0

    def __dealloc__(self):
        if self.holds:
            PyBuffer_Release(&self.view)
