"""LZ4 and zstd by the C interfaces of their libraries: a batch is decompressed without the GIL.

Without the libraries (`native_libraries`), and for what C does not read (several frames, a window over
8 MiB, damaged data, too much of it), the answer is UNPACK_NOT, and `records.compression` decompresses the data or
raises the error.  Costs are charged as there: the bytes given out, plus a charge for each frame, block and piece of
input.

A `Codecs` is what one user keeps between batches; not for several threads at once.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kbroker._fast.records.native_libraries cimport (
    CODEC_LZ4,
    CODEC_ZSTD,
    LZ4F_VERSION,
    Lz4FramePreferences,
    ZstdIn,
    ZstdOut,
    lz4,
    serves,
    zstd,
)


cdef enum:
    LZ4F_MAX_64_KB = 4
    LZ4F_INDEPENDENT = 1
    LZ4_INDEPENDENT_FLAG = 0x20
    LEAST_FRAME_BYTES = 7
    ZSTD_LEVEL = 3
    ZSTD_RESET_SESSION = 1
    ZSTD_WINDOW_LOG_MAX = 100
    ZSTD_LARGEST_WINDOW_LOG = 23
    ZSTD_BLOCK_BYTES = 131072
    PIECE_BYTES = 16384             # of input, which `records.compression` charges for
    CHARGE_BYTES = 1024             # for a piece or a block
    FRAME_CHARGE_BYTES = 65536
    KEPT_WINDOW_BYTES = 2097152
    KEPT_LZ4_BLOCK = 5              # 256 KiB: for larger ones the library keeps several MiB

cdef uint32_t LZ4_MAGIC = 0x184D2204
cdef uint32_t ZSTD_MAGIC = 0xFD2FB528

cdef Lz4FramePreferences preferences
memset(&preferences, 0, sizeof(preferences))
preferences.block_size = LZ4F_MAX_64_KB
preferences.block_mode = LZ4F_INDEPENDENT


cdef void free_codecs(Codecs* self) noexcept nogil:
    if self.lz4_reader != NULL:
        lz4.release(self.lz4_reader)
    if self.zstd_reader != NULL:
        zstd.free_reader(self.zstd_reader)
    if self.zstd_writer != NULL:
        zstd.free_writer(self.zstd_writer)
    free(self.scratch)
    memset(self, 0, sizeof(Codecs))


cdef bint reserve_scratch(Codecs* self, Py_ssize_t size) noexcept nogil:
    """Room for so many bytes; what was there is kept."""
    cdef void* grown
    if self.scratch_bytes >= size:
        return True
    grown = realloc(self.scratch, <size_t> size)
    if grown == NULL:
        return False
    self.scratch = <uint8_t*> grown
    self.scratch_bytes = size
    return True


cdef inline uint32_t little32(const uint8_t* at) noexcept nogil:
    return <uint32_t> at[0] | <uint32_t> at[1] << 8 | <uint32_t> at[2] << 16 | <uint32_t> at[3] << 24


cdef int begin_lz4(Codecs* self, Reading* reading) noexcept nogil:
    if (
        reading.size < LEAST_FRAME_BYTES
        or little32(reading.data) != LZ4_MAGIC
        or not reading.data[4] & LZ4_INDEPENDENT_FLAG
    ):
        return UNPACK_NOT
    reading.left_bytes -= CHARGE_BYTES * (reading.size // PIECE_BYTES + 1)
    if self.lz4_reader == NULL and lz4.is_error(lz4.create(&self.lz4_reader, LZ4F_VERSION)):
        return UNPACK_NO_MEMORY
    lz4.reset(self.lz4_reader)
    return 0


cdef Py_ssize_t zstd_header_bytes(Reading* reading) noexcept nogil:
    """Reads a frame's header but for its magic: its size, or UNPACK_NOT (RFC 8878, 3.1.1.1)."""
    cdef const uint8_t* data = reading.data
    cdef int descriptor = data[4]
    cdef bint single = descriptor >> 5 & 1
    cdef int content_bytes = 1 << (descriptor >> 6)
    cdef int dictionary_bytes = descriptor & 3
    cdef Py_ssize_t at = 5
    cdef int place
    if dictionary_bytes == 3:
        dictionary_bytes = 4
    if content_bytes == 1 and not single:
        content_bytes = 0
    if reading.size < 5 + (not single) + dictionary_bytes + content_bytes:
        return UNPACK_NOT
    if not single:
        reading.window_bytes = <int64_t> 1 << (10 + (data[5] >> 3))
        reading.window_bytes += (reading.window_bytes >> 3) * (data[5] & 7)
        at += 1
    at += dictionary_bytes
    reading.content_bytes = 0 if content_bytes else -1
    for place in range(content_bytes):
        reading.content_bytes |= <int64_t> (<uint64_t> data[at + place] << (8 * place))
    if content_bytes == 2:
        reading.content_bytes += 256
    if single:
        reading.window_bytes = reading.content_bytes
    return at + content_bytes


cdef int begin_zstd(Codecs* self, Reading* reading) noexcept nogil:
    """Checks by the block headers that the data is exactly one frame, and charges the budget for the blocks."""
    cdef const uint8_t* data = reading.data
    cdef Py_ssize_t at
    cdef uint32_t block
    if reading.size < LEAST_FRAME_BYTES or little32(data) != ZSTD_MAGIC:
        return UNPACK_NOT
    at = zstd_header_bytes(reading)
    if at < 0 or reading.content_bytes < -1:
        return UNPACK_NOT
    reading.left_bytes -= FRAME_CHARGE_BYTES
    while True:
        if at + 3 > reading.size:
            return UNPACK_NOT
        block = <uint32_t> data[at] | <uint32_t> data[at + 1] << 8 | <uint32_t> data[at + 2] << 16
        reading.left_bytes -= CHARGE_BYTES
        reading.most_bytes += ZSTD_BLOCK_BYTES if block >> 1 & 3 == 2 else block >> 3
        at += 3 + (1 if block >> 1 & 3 == 1 else <Py_ssize_t> (block >> 3))
        if block >> 1 & 3 == 2 and not block >> 3:
            return UNPACK_NOT       # some of the library's ways take it as an empty block
        if block & 1:
            break
    at += 4 if data[4] & 4 else 0
    if at != reading.size or reading.left_bytes < max(reading.content_bytes, <int64_t> 0):
        return UNPACK_NOT
    if not 0 <= reading.window_bytes <= 1 << ZSTD_LARGEST_WINDOW_LOG:
        return UNPACK_NOT
    if self.zstd_reader == NULL:
        self.zstd_reader = zstd.create_reader()
        if self.zstd_reader == NULL:
            return UNPACK_NO_MEMORY
        zstd.set_parameter(self.zstd_reader, ZSTD_WINDOW_LOG_MAX, ZSTD_LARGEST_WINDOW_LOG)
    return 0


cdef int begin_unpack(
    Codecs* self, int codec, const uint8_t* data, Py_ssize_t size, int64_t limit_bytes, Reading* reading
) noexcept nogil:
    """Sets out to read; 0 or a Refusal.  `end_unpack` follows each 0, failure or not."""
    cdef int begun
    memset(reading, 0, sizeof(Reading))
    reading.data = data
    reading.size = size
    reading.left_bytes = limit_bytes
    reading.content_bytes = -1
    reading.codec = codec
    if not serves(codec):
        return UNPACK_NOT
    begun = begin_lz4(self, reading) if codec == CODEC_LZ4 else begin_zstd(self, reading)
    if begun == 0 and codec == CODEC_ZSTD:
        zstd.reset(self.zstd_reader, ZSTD_RESET_SESSION)
    return UNPACK_NOT if begun == 0 and reading.left_bytes < 0 else begun


cdef bint step(Codecs* self, Reading* reading, uint8_t* out, size_t* made, size_t* took) noexcept nogil:
    """One call of the library; False for an error."""
    cdef ZstdIn source
    cdef ZstdOut target
    cdef size_t code
    if reading.codec == CODEC_LZ4:
        code = lz4.decompress(self.lz4_reader, out, made, reading.data + reading.position, took, NULL)
        reading.ended = code == 0
        return not lz4.is_error(code)
    source.data = reading.data + reading.position
    source.size = took[0]
    source.position = 0
    target.data = out
    target.size = made[0]
    target.position = 0
    code = zstd.decompress_stream(self.zstd_reader, &target, &source)
    made[0] = target.position
    took[0] = source.position
    reading.ended = code == 0
    return not zstd.is_error(code)


cdef inline bint is_other_size(const Reading* reading) noexcept nogil:
    return 0 <= reading.content_bytes != reading.made_bytes


cdef Py_ssize_t unpack_more(Codecs* self, Reading* reading, uint8_t* out, Py_ssize_t room) noexcept nogil:
    """Decompresses into `out`: the number of bytes; 0 at the end of frame and data; or a Refusal."""
    cdef size_t made, took
    while not reading.ended:
        made = <size_t> room
        took = <size_t> (reading.size - reading.position)
        if not step(self, reading, out, &made, &took):
            return UNPACK_NOT
        reading.position += <Py_ssize_t> took
        reading.left_bytes -= <int64_t> made
        reading.made_bytes += <int64_t> made
        if reading.left_bytes < 0 or (reading.ended and (reading.position != reading.size or is_other_size(reading))):
            return UNPACK_NOT
        if made:
            return <Py_ssize_t> made
        if not took and not reading.ended:
            return UNPACK_NOT if room else UNPACK_ROOM
    return 0


cdef void end_unpack(Codecs* self, Reading* reading) noexcept nogil:
    """Frees a reader that holds much memory, and an lz4 reader that stopped within a frame: a reset may leave the
    content size that this frame announced, and the next frame would be refused for it."""
    if reading.codec == CODEC_ZSTD:
        if reading.window_bytes > KEPT_WINDOW_BYTES and self.zstd_reader != NULL:
            zstd.free_reader(self.zstd_reader)
            self.zstd_reader = NULL
    elif not reading.ended or reading.data[5] >> 4 & 7 > KEPT_LZ4_BLOCK:
        lz4.release(self.lz4_reader)
        self.lz4_reader = NULL


cdef Py_ssize_t unpack_zstd(Codecs* self, Reading* reading, uint8_t* out, Py_ssize_t room) noexcept nogil:
    """A frame block by block into `out`, which serves as the window.

    One call for the whole frame would accept a damaged block that expands to more than a block may hold, which
    consumers refuse.  Block by block the library does not compare the content's size with the header, so this function
    does.
    """
    cdef Py_ssize_t at = 0
    cdef size_t taken, made
    if reading.content_bytes > room:
        return UNPACK_ROOM
    zstd.begin(self.zstd_reader)
    while True:
        taken = zstd.next_bytes(self.zstd_reader)
        if taken == 0:
            break
        if <Py_ssize_t> taken > reading.size - at:
            return UNPACK_NOT
        made = zstd.decompress_next(
            self.zstd_reader, out + reading.made_bytes, <size_t> (room - reading.made_bytes), reading.data + at, taken
        )
        if zstd.is_error(made):
            return UNPACK_ROOM if reading.content_bytes < 0 and reading.most_bytes > room else UNPACK_NOT
        at += <Py_ssize_t> taken
        reading.made_bytes += <int64_t> made
    if at != reading.size or reading.made_bytes > reading.left_bytes or is_other_size(reading):
        return UNPACK_NOT
    return <Py_ssize_t> reading.made_bytes


cdef Py_ssize_t unpack(
    Codecs* self, int codec, const uint8_t* data, Py_ssize_t size, uint8_t* out, Py_ssize_t room, int64_t limit_bytes
) noexcept nogil:
    """All of it into `out`: how many bytes, or a Refusal."""
    cdef Reading reading
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t more = begin_unpack(self, codec, data, size, limit_bytes, &reading)
    if more < 0:
        return more
    if codec == CODEC_ZSTD:
        return unpack_zstd(self, &reading, out, room)
    while True:
        more = unpack_more(self, &reading, out + done, room - done)
        if more <= 0:
            break
        done += more
    end_unpack(self, &reading)
    return more if more < 0 else done


cdef Py_ssize_t pack_bound(int codec, Py_ssize_t size) noexcept nogil:
    """The largest compressed size of `size` bytes."""
    if codec == CODEC_LZ4:
        return <Py_ssize_t> lz4.bound(<size_t> size, &preferences)
    return <Py_ssize_t> zstd.bound(<size_t> size)


cdef Py_ssize_t pack(
    Codecs* self, int codec, const uint8_t* data, Py_ssize_t size, uint8_t* out, Py_ssize_t room
) noexcept nogil:
    """One frame, at the codec's default level, as Java's clients read it; a Refusal when that failed."""
    cdef size_t made
    if codec == CODEC_LZ4:
        made = lz4.compress(out, <size_t> room, data, <size_t> size, &preferences)
        return UNPACK_NO_MEMORY if lz4.is_error(made) else <Py_ssize_t> made
    if self.zstd_writer == NULL:
        self.zstd_writer = zstd.create_writer()
        if self.zstd_writer == NULL:
            return UNPACK_NO_MEMORY
    made = zstd.compress(self.zstd_writer, out, <size_t> room, data, <size_t> size, ZSTD_LEVEL)
    return UNPACK_NO_MEMORY if zstd.is_error(made) else <Py_ssize_t> made
