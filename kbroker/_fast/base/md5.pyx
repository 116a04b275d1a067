"""MD5 of record keys, for the offset map of compaction: it stores hashes, never keys.

Keys are hashed in groups: sixteen that fit one block (at most 55 bytes) side by side in vector registers, longer ones
one by one.  The work is in `md5_impl.h`; `WIDE` says whether this processor has the registers for it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset


cdef extern from "md5_impl.h" nogil:
    enum:
        KB_MD5_LANES
        KB_MD5_ONE_BLOCK
    int kb_md5_choose()
    void kb_md5_one(const uint8_t* data, size_t size, uint8_t* digest)
    void kb_md5_lane(uint32_t (*words)[16], int lane, const uint8_t* data, size_t size, int* used)
    void kb_md5_lanes(uint32_t (*words)[16], uint8_t (*digests)[16])


WIDE = bool(kb_md5_choose())


cdef void md5_digest(const uint8_t* data, Py_ssize_t size, uint8_t* digest) noexcept nogil:
    kb_md5_one(data, <size_t>size, digest)


cdef void md5_digests(const Message* messages, Py_ssize_t count, uint8_t* digests) noexcept nogil:
    """The digests of `count` messages, 16 bytes each, one after the other."""
    cdef uint32_t words[16][16]
    cdef uint8_t found[16][16]
    cdef Py_ssize_t waiting[16]
    cdef int used[16]
    cdef Py_ssize_t at
    cdef int filled = 0
    cdef int lane
    memset(words, 0, sizeof(words))
    memset(used, 0, sizeof(used))
    for at in range(count):
        if messages[at].size > KB_MD5_ONE_BLOCK:
            kb_md5_one(messages[at].data, <size_t>messages[at].size, digests + at * DIGEST_BYTES)
            continue
        waiting[filled] = at
        kb_md5_lane(words, filled, messages[at].data, <size_t>messages[at].size, &used[filled])
        filled += 1
        if filled == KB_MD5_LANES:
            kb_md5_lanes(words, found)
            for lane in range(filled):
                memcpy(digests + waiting[lane] * DIGEST_BYTES, &found[lane][0], DIGEST_BYTES)
            filled = 0
    if filled:
        kb_md5_lanes(words, found)
        for lane in range(filled):
            memcpy(digests + waiting[lane] * DIGEST_BYTES, &found[lane][0], DIGEST_BYTES)


def md5(buffer):
    """The 16-byte digest of one message."""
    cdef Py_buffer view
    cdef uint8_t digest[16]
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    kb_md5_one(<const uint8_t*>view.buf, <size_t>view.len, &digest[0])
    PyBuffer_Release(&view)
    return PyBytes_FromStringAndSize(<char*>digest, DIGEST_BYTES)


def md5_many(list messages not None):
    """The digests of a list of bytes objects, joined."""
    cdef Py_ssize_t count = len(messages)
    cdef Py_ssize_t at
    cdef Message* items
    cdef bytes message
    cdef uint8_t* out
    items = <Message*>calloc(<size_t>(count + 1), sizeof(Message))
    if items == NULL:
        raise MemoryError
    try:
        for at in range(count):
            message = messages[at]
            items[at].data = <const uint8_t*>PyBytes_AS_STRING(message)
            items[at].size = PyBytes_GET_SIZE(message)
        digests = PyBytes_FromStringAndSize(NULL, count * DIGEST_BYTES)
        out = <uint8_t*>PyBytes_AS_STRING(digests)
        with nogil:
            md5_digests(items, count, out)
        return digests
    finally:
        free(items)
