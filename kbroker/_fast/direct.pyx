"""Requests that are answered from their bytes, without structs in between.

What a route's `DirectAnswers` does not find ordinary it leaves alone: the request is then decoded and handled as any.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy


cdef class DirectAnswers:
    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size):
        """The answer's frame, as `encode_response` gives it; None, and nothing is changed, where the handler decides.

        `data`: the `size` bytes behind the request's header, untrusted, which an append may write into.
        """
        return None

    def ask(self, services, int version, int correlation_id, request, ctx=None):
        """`answer`, for callers in Python; `request` is a writable buffer.  With a `ctx`, True where it waits then."""
        cdef Py_buffer view
        cdef object frame
        PyObject_GetBuffer(request, &view, PyBUF_WRITABLE)
        try:
            frame = self.answer(services, version, correlation_id, <uint8_t*> view.buf, view.len)
            if frame is None and ctx is not None:
                if self.wait(ctx, version, correlation_id, <uint8_t*> view.buf, view.len):
                    return True
            return frame
        finally:
            PyBuffer_Release(&view)

    cdef bint wait(self, object ctx, int version, int correlation_id, uint8_t* data, Py_ssize_t size) except -1:
        """Whether the request that `answer` has just left alone waits: `ctx.respond_frame` or `ctx.handle` end that.

        The bytes are kept, if at all, as a copy.
        """
        return False

    def ask_to_wait(self, ctx, int version, int correlation_id, request) -> bool:
        """Whether the request waits, as far as `answer` leaves it alone."""
        return self.ask(ctx.services, version, correlation_id, request, ctx) is True

    cdef bint may_wait(self, const Asked* asked) noexcept:
        """Whether this request, by its form, is one that costs less when it is answered together with others."""
        return False

    cdef list answer_all(self, object services, const Asked* asked, int count, Crew crew):
        """What `answer` gives for each of these requests, of which none waits for another, or its exception."""
        cdef int index
        return [
            self.answer(services, asked[index].version, asked[index].correlation_id,
                        asked[index].data, asked[index].size)
            for index in range(count)
        ]

    def ask_all(self, services, requests, Crew crew=None):
        """`answer_all`, for callers in Python: `requests` are (version, correlation_id, writable buffer)."""
        cdef Asked[ASKED_TOGETHER] asked
        cdef Py_buffer[ASKED_TOGETHER] views
        cdef int held = 0
        cdef int index
        if len(requests) > ASKED_TOGETHER:
            raise ValueError(f"{len(requests)} requests are more than {ASKED_TOGETHER}")
        try:
            for version, correlation_id, request in requests:
                PyObject_GetBuffer(request, &views[held], PyBUF_WRITABLE)
                asked[held].data = <uint8_t*> views[held].buf
                asked[held].size = views[held].len
                held += 1
                asked[held - 1].version = version
                asked[held - 1].correlation_id = correlation_id
            return self.answer_all(services, asked, held, Crew(0) if crew is None else crew)
        finally:
            for index in range(held):
                PyBuffer_Release(&views[index])

    cdef object topic_name(self, const Topic* topic, object manager):
        """The name of the topic asked for, None where there is none."""
        if topic.is_id:
            return manager.names.get(PyBytes_FromStringAndSize(<const char*> topic.data, ID_BYTES))
        return self.text(<const char*> topic.data, topic.size)

    cdef str text(self, const char* data, Py_ssize_t size):
        """A name of up to NAME_BYTES, None for what is no text; the last one is kept, as clients repeat it."""
        if self.name_bytes != size or memcmp(self.name_utf8, data, size) != 0:
            try:
                self.name = PyUnicode_DecodeUTF8(data, size, NULL)
            except UnicodeDecodeError:
                return None
            memcpy(self.name_utf8, data, size)
            self.name_bytes = size
        return self.name
