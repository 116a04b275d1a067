"""The four codecs of record batches: gzip, snappy, lz4 and zstd, as Kafka's clients write them.

* gzip: RFC 1952, one or more members.
* snappy: xerial's framing as Java and most others write it (`\\x82SNAPPY\\0`, two int32 versions, then blocks of int32
  length and raw snappy), or one raw snappy block as librdkafka and others may send.
* lz4: one LZ4 frame of independent blocks (Java reads no linked ones, so nor may we let one in).
* zstd: one or more frames, with or without the content size.

Ordinary lz4 and zstd payloads that are decompressed as a whole go through C (`_fast.records.native_codecs`), with the
bounds described below.

Decompression streams in chunks of at most 64 KiB (a raw snappy block comes whole: its format allows at most some 22
times its compressed size) and counts against a `Budget`: bytes given out, plus a charge for every member, frame and
block, so that neither ten gigabytes of zeros nor a million empty frames cost more than the limit allows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from kbroker._fast.records.native_payloads import pack_bytes, unpack_bytes
from kbroker.records.codec_libraries import native_codecs_loaded

if TYPE_CHECKING:
    import zstandard
    from typing_extensions import Buffer


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CHUNK_BYTES = 65536
_INPUT_BYTES = 16384
_MEMBER_CHARGE_BYTES = 65536
_BLOCK_CHARGE_BYTES = 1024
_UNLIMITED_BYTES = 2**31 - 1

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES = 32768
_SNAPPY_MAX_RATIO = 22

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_INDEPENDENT = 0x20
_LZ4_BLOCK_64_KB = 4
_LZ4_DEFAULT_LEVEL = 9

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_EMPTY_COMPRESSED_BLOCK = 2  # type and size of a block's header
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_LARGE_WINDOW_BYTES = 8 << 20
_ZSTD_MAX_WINDOW_BYTES = 128 << 20
_ZSTD_KEPT_WINDOW_BYTES = 2 << 20
_ZSTD_KEPT_COUNT = 2

# The levels at which `_fast.records.native_codecs` packs, which are the defaults of Kafka's settings.
_NATIVE_LEVELS = {3: _LZ4_DEFAULT_LEVEL, 4: _ZSTD_DEFAULT_LEVEL}


class CompressionError(ValueError):
    """Bytes that the codec cannot read."""


class DecompressionLimitError(CompressionError):
    """The data expands to more than is allowed."""


class Budget:
    """What a piece of compressed data may still cost, in bytes."""

    __slots__ = ("left_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.left_bytes = limit_bytes

    def spend(self, size_bytes: int) -> None:
        """Count bytes that came out.  DecompressionLimitError when they are too many."""
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise DecompressionLimitError(f"the data expands to more than the limit of {self.limit_bytes} bytes")


def iter_decompress(
    codec: int, view: bytes | bytearray | memoryview, limit_bytes: int = _UNLIMITED_BYTES
) -> Iterator[bytes | memoryview]:
    """The decompressed bytes of `view` in chunks, each valid until the next is asked for.

    Raises DecompressionLimitError past `limit_bytes`, CompressionError when the data is cut off, has something after
    its end, or is not of this codec.
    """
    reader = _READERS.get(codec)
    if reader is None:
        raise CompressionError(f"Unknown compression type id: {codec}")
    return reader(memoryview(view), Budget(limit_bytes))


def decompress(codec: int, view: bytes | bytearray | memoryview, limit_bytes: int = _UNLIMITED_BYTES) -> bytes:
    """All of it at once.  Raises as `iter_decompress` does."""
    if codec in native_codecs_loaded():
        whole = unpack_bytes(codec, view, limit_bytes)
        if whole is not None:
            return whole
    return b"".join(bytes(chunk) for chunk in iter_decompress(codec, view, limit_bytes))


def _read_none(view: memoryview, budget: Budget) -> Iterator[memoryview]:
    budget.spend(len(view))
    yield view


def _read_gzip(view: memoryview, budget: Budget) -> Iterator[bytes]:
    import zlib

    member = None
    for start in range(0, len(view), _INPUT_BYTES):
        piece: bytes | memoryview = view[start : start + _INPUT_BYTES]
        while piece:
            if member is None:
                member = zlib.decompressobj(wbits=31)
                budget.spend(_MEMBER_CHARGE_BYTES)
            try:
                chunk = member.decompress(piece, CHUNK_BYTES)
            except zlib.error as error:
                raise CompressionError(f"gzip: {error}") from error
            budget.spend(len(chunk))
            if chunk:
                yield chunk
            if member.eof:
                piece = member.unused_data
                member = None
            else:
                piece = member.unconsumed_tail
        while member is not None and not member.eof and (chunk := member.decompress(b"", CHUNK_BYTES)):
            budget.spend(len(chunk))
            yield chunk
        if member is not None and member.eof:
            member = None
    if member is not None or not view:
        raise CompressionError("gzip: the data is cut off")


def _snappy_block(block: memoryview, budget: Budget) -> bytes:
    """One raw snappy block; its declared length is judged before anything is allocated."""
    import snappy

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise CompressionError("snappy: the length of a block is malformed")
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise CompressionError(f"snappy: {len(block)} bytes cannot hold {size}")
    budget.spend(size + _BLOCK_CHARGE_BYTES)
    try:
        return cast(bytes, snappy.uncompress(bytes(block)))
    except snappy.UncompressError as error:
        raise CompressionError("snappy: a block is damaged") from error


def _read_snappy(view: memoryview, budget: Budget) -> Iterator[bytes]:
    if bytes(view[:8]) != _XERIAL_MAGIC:
        yield _snappy_block(view, budget)
        return
    position = 0
    while position < len(view):
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            budget.spend(_BLOCK_CHARGE_BYTES)
            compatible = int.from_bytes(view[position + 12 : position + 16], "big")
            position += len(_XERIAL_HEADER)
            if position > len(view) or compatible > 1:
                raise CompressionError("snappy: the header of the framing is cut off or of a later version")
            continue
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if size <= 0 or size > len(view) - position:
            raise CompressionError(f"snappy: a block of {size} bytes, {len(view) - position} are left")
        yield _snappy_block(view[position : position + size], budget)
        position += size


def _read_lz4(view: memoryview, budget: Budget) -> Iterator[bytes]:
    import lz4.frame

    if bytes(view[:4]) != _LZ4_MAGIC or len(view) < 7:
        raise CompressionError("lz4: not an LZ4 frame")
    if not view[4] & _LZ4_BLOCK_INDEPENDENT:
        raise CompressionError("lz4: Dependent block stream is unsupported (BLOCK_INDEPENDENCE must be set)")
    frame = lz4.frame.LZ4FrameDecompressor()
    position = 0
    while not frame.eof:
        piece = b""
        if frame.needs_input:
            piece = bytes(view[position : position + _INPUT_BYTES])
            position += len(piece)
            if not piece:
                raise CompressionError("lz4: the frame is cut off")
            budget.spend(_BLOCK_CHARGE_BYTES)
        try:
            chunk = frame.decompress(piece, max_length=CHUNK_BYTES)
        except RuntimeError as error:
            raise CompressionError(f"lz4: {error}") from error
        budget.spend(len(chunk))
        if chunk:
            yield chunk
    if position < len(view) or frame.unused_data:
        raise CompressionError("lz4: bytes after the frame")


class _ZstdFrame(NamedTuple):
    end: int
    window_bytes: int
    content_bytes: int  # -1 when the frame does not say


def _zstd_frame(view: memoryview, start: int, budget: Budget) -> _ZstdFrame:
    """The frame at `start`, whose end its block headers tell: the library does not report a truncated frame."""
    import zstandard

    budget.spend(_MEMBER_CHARGE_BYTES)
    magic = int.from_bytes(view[start : start + 4], "little")
    if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC and len(view) - start >= 8:
        return _ZstdFrame(start + 8 + int.from_bytes(view[start + 4 : start + 8], "little"), 0, 0)
    if magic != _ZSTD_MAGIC:
        raise CompressionError("zstd: not a frame")
    try:
        header = zstandard.get_frame_parameters(view[start : start + 18])
        position = start + zstandard.frame_header_size(view[start : start + 18])
    except zstandard.ZstdError as error:
        raise CompressionError(f"zstd: {error}") from error
    last = False
    while not last:
        if position + 3 > len(view):
            raise CompressionError("zstd: the frame is cut off")
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last = bool(block & 1)
        if block >> 1 == _ZSTD_EMPTY_COMPRESSED_BLOCK:
            raise CompressionError("zstd: a compressed block without content")
        position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        budget.spend(_BLOCK_CHARGE_BYTES)
    content_bytes = -1 if header.content_size == zstandard.CONTENTSIZE_UNKNOWN else header.content_size
    return _ZstdFrame(position + (4 if header.has_checksum else 0), header.window_size, content_bytes)


def _read_zstd_frame(
    decompressor: zstandard.ZstdDecompressor, data: memoryview, content_bytes: int, budget: Budget
) -> Iterator[memoryview]:
    reader = decompressor.stream_reader(data)
    buffer = bytearray(CHUNK_BYTES)
    whole = memoryview(buffer)
    found_bytes = 0
    while size := reader.readinto(buffer):
        budget.spend(size)
        found_bytes += size
        yield whole[:size]
    if 0 <= content_bytes != found_bytes:
        raise CompressionError(f"zstd: the frame holds {found_bytes} bytes and says {content_bytes}")


def _read_zstd(view: memoryview, budget: Budget) -> Iterator[bytes | memoryview]:
    import zstandard

    position = 0
    while position < len(view):
        frame = _zstd_frame(view, position, budget)
        data = view[position : frame.end]
        if frame.end > len(view):
            raise CompressionError("zstd: the frame is cut off")
        position = frame.end
        if frame.window_bytes > _ZSTD_LARGE_WINDOW_BYTES:
            # The library allocates the whole window, so the output of a batch that asks for a large one is limited.
            budget.left_bytes = min(budget.left_bytes, 2 * _ZSTD_LARGE_WINDOW_BYTES)
        decompressor = _take_zstd_decompressor()
        try:
            if 0 < frame.content_bytes <= CHUNK_BYTES:
                budget.spend(frame.content_bytes)
                yield decompressor.decompress(data)
            else:
                yield from _read_zstd_frame(decompressor, data, frame.content_bytes, budget)
        except zstandard.ZstdError as error:
            raise CompressionError(f"zstd: {error}") from error
        if frame.window_bytes <= _ZSTD_KEPT_WINDOW_BYTES and len(_zstd_decompressors) < _ZSTD_KEPT_COUNT:
            _zstd_decompressors.append(decompressor)


# Making one costs more than decompressing a small batch.  One is taken out while it works, so threads may share them.
_zstd_decompressors: list[zstandard.ZstdDecompressor] = []


def _take_zstd_decompressor() -> zstandard.ZstdDecompressor:
    import zstandard

    try:
        return _zstd_decompressors.pop()
    except IndexError:
        return zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)


_READERS: dict[int, Callable[[memoryview, Budget], Iterator[memoryview | bytes]]] = {
    Codec.NONE: _read_none,
    Codec.GZIP: _read_gzip,
    Codec.SNAPPY: _read_snappy,
    Codec.LZ4: _read_lz4,
    Codec.ZSTD: _read_zstd,
}


class Compressor(Protocol):
    """Takes chunks, gives compressed bytes when it has some, and the rest at the end."""

    def compress(self, data: Buffer, /) -> bytes:
        """Take more bytes; what is ready of the output."""

    def flush(self) -> bytes:
        """The end of the output."""


class _NoCompressor:
    __slots__ = ()

    def compress(self, data: Buffer, /) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


class _XerialCompressor:
    """Snappy in the framing that every Kafka client reads."""

    __slots__ = ("_pending", "_started")

    def __init__(self) -> None:
        self._pending = bytearray()
        self._started = False

    def _blocks(self, least_bytes: int) -> bytes:
        import snappy

        out = bytearray() if self._started else bytearray(_XERIAL_HEADER)
        self._started = True
        while len(self._pending) >= least_bytes and self._pending:
            block = snappy.compress(bytes(self._pending[:_XERIAL_BLOCK_BYTES]))
            del self._pending[:_XERIAL_BLOCK_BYTES]
            out += len(block).to_bytes(4, "big") + block
        return bytes(out)

    def compress(self, data: Buffer, /) -> bytes:
        self._pending += data
        return self._blocks(_XERIAL_BLOCK_BYTES)

    def flush(self) -> bytes:
        return self._blocks(0)


class _Lz4Compressor:
    """One frame of independent 64 KiB blocks, as Java writes it."""

    __slots__ = ("_frame", "_started")

    def __init__(self, level: int) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameCompressor(
            block_size=_LZ4_BLOCK_64_KB, block_linked=False, compression_level=level, auto_flush=True
        )
        self._started = False

    def compress(self, data: Buffer, /) -> bytes:
        head = b"" if self._started else self._frame.begin()
        self._started = True
        return cast(bytes, head + self._frame.compress(data))

    def flush(self) -> bytes:
        head = b"" if self._started else self._frame.begin()
        return cast(bytes, head + self._frame.flush())


def compressor(codec: int, level: int | None = None) -> Compressor:
    """A compressor for one batch; `level` None is the codec's default.  Raises CompressionError."""
    if codec == Codec.NONE:
        return _NoCompressor()
    if codec == Codec.GZIP:
        import zlib

        return cast(Compressor, zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31))
    if codec == Codec.SNAPPY:
        return _XerialCompressor()
    if codec == Codec.LZ4:
        # Kafka's default level, 9, means the fast compressor; any other the slow one.
        return _Lz4Compressor(0 if level is None or level == _LZ4_DEFAULT_LEVEL else max(3, level))
    if codec == Codec.ZSTD:
        return _zstd_compressor(_ZSTD_DEFAULT_LEVEL if level is None else level)
    raise CompressionError(f"Unknown compression type id: {codec}")


def _zstd_compressor(level: int) -> Compressor:
    import zstandard

    return cast(Compressor, zstandard.ZstdCompressor(level=level).compressobj())


def compress_chunks(codec: int, chunks: Iterable[Buffer], level: int | None = None) -> bytes:
    """The chunks as one compressed piece."""
    target = compressor(codec, level)
    return b"".join([*map(target.compress, chunks), target.flush()])


def compress(codec: int, payload: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """The payload, compressed; `level` as the codec counts, None for its default.  UnsupportedCodecError."""
    if level in (None, _NATIVE_LEVELS.get(codec)) and codec in native_codecs_loaded():
        packed = pack_bytes(codec, payload)
        if packed is not None:
            return packed
    return compress_chunks(codec, (payload,), level)


@functools.cache
def codec_of(name: str) -> Codec:
    """The codec of a `compression.type`, "uncompressed" and "none" alike; ValueError for "producer" and the unknown."""
    if name == "uncompressed":
        return Codec.NONE
    try:
        return Codec[name.upper()]
    except KeyError:
        raise ValueError(f"{name!r} is not a codec") from None
