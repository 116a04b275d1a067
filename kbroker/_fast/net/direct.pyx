"""Requests that are answered from their bytes, without structs in between.

A route's `DirectAnswers` answers plain requests only; any other is decoded and passed to its handler.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy

from kbroker._fast.gate.gate cimport Gate


cdef class PartialAppend:
    """A request of which some batches were appended: `finish(ctx, request, appended)` does the rest, and answers.

    `appended`: of each row (first offset, last offset), or None.
    """

    def __init__(self, finish, list appended not None):
        self.finish = finish
        self.appended = appended

    def continue_in_handler(self, ctx, request):
        """What a handler gives: an answer, a `Pending`, or None."""
        return self.finish(ctx, request, self.appended)


cdef class DirectAnswers:
    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size,
                       Gate gate):
        """The answer's frame, as `encode_response` gives it, a `Pending`, or a `PartialAppend`; None, and nothing is
        changed, where the handler decides.

        `data`: the `size` bytes behind the request's header, untrusted, which an append may write into.  `gate`:
        what the request has passed, which knows what the client may read and write.
        """
        return None

    cdef bint may_wait(self, const DirectRequest* asked) noexcept:
        """Whether this request is of a form that costs less when it is answered together with others."""
        return False

    cdef list answer_all(self, object services, const DirectRequest* asked, int count, HelperPool helper_pool):
        """For each of these requests, none of which depends on another, the result of `answer` or its exception."""
        cdef int index
        return [
            self.answer(services, asked[index].version, asked[index].correlation_id,
                        asked[index].data, asked[index].size, <Gate> asked[index].gate)
            for index in range(count)
        ]

    cdef object topic_name(self, const Topic* topic, object manager):
        """The name of the topic asked for, None where there is none."""
        if topic.is_id:
            return manager.names.get(PyBytes_FromStringAndSize(<const char*> topic.data, ID_BYTES))
        return self.text(<const char*> topic.data, topic.size)

    cdef str text(self, const char* data, Py_ssize_t size):
        """A topic's name of up to NAME_BYTES; None where the bytes are not UTF-8.  The last name is cached, as clients
        repeat it."""
        if self.name_bytes != size or memcmp(self.name_utf8, data, size) != 0:
            try:
                self.name = PyUnicode_DecodeUTF8(data, size, NULL)
            except UnicodeDecodeError:
                return None
            memcpy(self.name_utf8, data, size)
            self.name_bytes = size
        return self.name
