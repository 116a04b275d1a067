"""The walk over the records of a batch in lz4 or zstd, decompression included, without Python in between.

C accepts valid payloads only.  For any other the caller runs `walk_decompressed` of `record_stream`, which raises the
error.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from kbroker._fast.records.batch_info cimport BatchInfo, Header
from kbroker._fast.records.layout cimport COMPRESSION_MASK, LOG_OVERHEAD_BYTES, RECORDS_POSITION
from kbroker._fast.base.cursor cimport Cursor, cursor_init
from kbroker._fast.records.native_codecs cimport (
    UNPACK_ROOM,
    Codecs,
    Reading,
    begin_unpack,
    end_unpack,
    reserve_scratch,
    unpack,
    unpack_more,
)
from kbroker._fast.records.native_libraries cimport CODEC_ZSTD
from kbroker._fast.records.native_payloads cimport borrow_codecs, give_back_codecs
from kbroker._fast.records.record_walk cimport Walk
from kbroker._fast.records.record_stream cimport Stream, begin_stream, feed, is_complete

cdef enum:
    SCRATCH_BYTES = 131072
    # From this size on other threads may run meanwhile; below it is shorter than handing them the interpreter.
    RELEASE_GIL_BYTES = 65536


cdef bint feed_piece(Stream* self, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Cursor cursor
    cursor_init(&cursor, data, size)
    return feed(self, &cursor)


cdef bint walk_payload(
    Stream* self, Codecs* codecs, int codec, const uint8_t* data, Py_ssize_t size, int64_t limit_bytes
) noexcept nogil:
    """Decompresses and walks; False where the payload or a record is not what C reads.

    In pieces that the processor's cache holds, but a zstd frame that fits one at once, which takes the library half as
    long.
    """
    cdef Reading reading
    cdef Py_ssize_t made
    if not reserve_scratch(codecs, SCRATCH_BYTES):
        return False
    if codec == CODEC_ZSTD and size < SCRATCH_BYTES:
        made = unpack(codecs, codec, data, size, codecs.scratch, SCRATCH_BYTES, limit_bytes)
        if made >= 0:
            return feed_piece(self, codecs.scratch, made) and is_complete(self)
        if made != UNPACK_ROOM:
            return False
    if begin_unpack(codecs, codec, data, size, limit_bytes, &reading) < 0:
        return False
    while True:
        made = unpack_more(codecs, &reading, codecs.scratch, SCRATCH_BYTES)
        if made <= 0 or not feed_piece(self, codecs.scratch, made):
            break
    end_unpack(codecs, &reading)
    return made == 0 and is_complete(self)


cdef bint walk_unpacked(
    Walk* walk, const Header* header, Codecs* codecs, const uint8_t* payload, Py_ssize_t size, int64_t limit_bytes
) noexcept nogil:
    """The walk over the payload of a compressed batch; False where Python has to decide."""
    cdef Stream stream
    begin_stream(&stream, header)
    if not walk_payload(&stream, codecs, header.attributes & COMPRESSION_MASK, payload, size, limit_bytes):
        return False
    walk[0] = stream.walk
    return True


cdef bint walk_in_c(BatchInfo info, const uint8_t* payload, Py_ssize_t size, int64_t limit_bytes) except -1:
    """`walk_decompressed` in C; False, with `info` unchanged, where the caller must run `walk_decompressed` itself."""
    cdef Walk walk
    cdef bint good
    cdef Codecs* codecs = borrow_codecs()
    if size >= RELEASE_GIL_BYTES:
        with nogil:
            good = walk_unpacked(&walk, &info.header, codecs, payload, size, limit_bytes)
    else:
        good = walk_unpacked(&walk, &info.header, codecs, payload, size, limit_bytes)
    give_back_codecs(codecs)
    if good:
        info.take_walk(&walk)
    return good


cpdef bint walk_compressed(BatchInfo info, batch, int64_t limit_bytes) except -1:
    """Walks the records of the compressed batch of `info` that `batch` begins with, its codec being one that C reads.

    False, with `info` unchanged, when C does not read the codec or finds a fault: `walk_decompressed` then raises it.
    """
    cdef Py_buffer view
    cdef Py_ssize_t size = <Py_ssize_t> info.header.batch_length + LOG_OVERHEAD_BYTES
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        if size < RECORDS_POSITION or size > view.len:
            raise ValueError(f"a batch of {size} bytes in a buffer of {view.len}")
        return walk_in_c(
            info, <const uint8_t*> view.buf + RECORDS_POSITION, size - RECORDS_POSITION, limit_bytes
        )
    finally:
        PyBuffer_Release(&view)
