cdef class AnswerMemo:
    cdef dict answers

    cdef tuple key(self, object view, int api_key, int api_version, tuple end, const char* body, Py_ssize_t size)
    cdef bytes recall(self, tuple key, int correlation_id)
    cdef int keep(self, tuple key, bytes frame) except -1
