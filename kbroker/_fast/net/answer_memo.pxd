cdef class Validity:
    cdef readonly bint holds


cdef class AnswerRenewal:
    cdef Validity validity
    cdef object deadline
    cdef double seconds
    cdef object client_id
    cdef object client_host

    cdef bint renew(self, object client_id, object connection) except -1


cdef class AnswerMemo:
    cdef dict answers
    cdef dict repetitions

    cdef tuple key(self, object view, int api_key, int api_version, tuple end, const char* body, Py_ssize_t size)
    cdef bytes recall(self, tuple key, int correlation_id, object client_id, object connection)
    cdef int keep(self, tuple key, bytes frame, AnswerRenewal renewal) except -1
