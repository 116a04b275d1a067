from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.base.cursor cimport Cursor, cursor_int16, cursor_int32, cursor_take, cursor_uvarint
from kbroker._fast.base.put cimport put16, put32, put_uvarint
from kbroker._fast.gate.gate cimport Gate

cdef enum:
    ID_BYTES = 16
    # The longest name of a topic.
    NAME_BYTES = 249
    # So many requests are answered together at most.
    MOST_REQUESTS = 32


cdef struct Topic:
    const uint8_t* data         # a name or an id
    Py_ssize_t size
    bint is_id


cdef struct DirectRequest:
    int version
    int correlation_id
    uint8_t* data               # the bytes behind the request's header, untrusted, which an append may write into
    Py_ssize_t size
    void* gate                  # the `Gate` that the request has passed and holds, or None


cdef class PartialAppend:
    cdef object finish
    cdef readonly list appended


cdef class DirectAnswers:
    cdef str name
    cdef Py_ssize_t name_bytes
    cdef char[NAME_BYTES] name_utf8

    cdef object answer(self, object services, int version, int correlation_id, uint8_t* data, Py_ssize_t size,
                       Gate gate)
    cdef bint may_wait(self, const DirectRequest* asked) noexcept
    cdef list answer_all(self, object services, const DirectRequest* asked, int count, HelperPool helper_pool)
    cdef object topic_name(self, const Topic* topic, object manager)
    cdef str text(self, const char* data, Py_ssize_t size)


cdef inline Py_ssize_t read_size(Cursor* cursor, bint flexible) noexcept nogil:
    """What stands before an array or bytes; -1 for null."""
    return <Py_ssize_t> cursor_uvarint(cursor) - 1 if flexible else <Py_ssize_t> cursor_int32(cursor)


cdef inline Py_ssize_t read_text_size(Cursor* cursor, bint flexible) noexcept nogil:
    return <Py_ssize_t> cursor_uvarint(cursor) - 1 if flexible else <Py_ssize_t> cursor_int16(cursor)


cdef inline bint read_topic(Cursor* cursor, bint flexible, bint is_id, Topic* topic) noexcept nogil:
    """False for what is no topic's name."""
    topic.is_id = is_id
    topic.size = ID_BYTES if is_id else read_text_size(cursor, flexible)
    topic.data = cursor_take(cursor, topic.size)
    return topic.data != NULL and 0 < topic.size <= NAME_BYTES


cdef inline uint8_t* put_size(uint8_t* at, bint flexible, Py_ssize_t size) noexcept nogil:
    """Before an array or bytes; -1 for null."""
    return put_uvarint(at, <unsigned int> (size + 1)) if flexible else put32(at, <unsigned int> size)


cdef inline uint8_t* put_topic(uint8_t* at, bint flexible, const Topic* topic) noexcept nogil:
    if not topic.is_id:
        at = put_uvarint(at, <unsigned int> topic.size + 1) if flexible else put16(at, <unsigned short> topic.size)
    memcpy(at, topic.data, topic.size)
    return at + topic.size
