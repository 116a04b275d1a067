"""Whole frames from a client's side: requests out, answers in.  For clients, tools and tests; the broker's own side is
`Program.decode` and `Program.encode_response`.

A frame is a 4-byte length; in a request key, version, correlation id, client id and (header 2) tagged fields, in an
answer correlation id and (header 1) tagged fields; then the body.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.protocol.api import request_header_version, response_header_version

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker.protocol.messages import Message


class RequestHeader(NamedTuple):
    """What precedes the body of a request; `size` is the header's length in bytes."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    size: int


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Message) -> bytes:
    """A request frame, its length in front."""
    return b"".join(encode_request_parts(api_key, version, correlation_id, client_id, body))


def encode_request_parts(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: Message
) -> list[Buffer]:
    """The same in parts to send one after the other: records are parts of their own, not copied."""
    header_version = request_header_version(api_key, version)
    header = struct.pack(">hhi", api_key, version, correlation_id)
    if header_version >= 1:
        # The client id keeps its old, two-byte length in flexible headers too.
        text = None if client_id is None else client_id.encode()
        header += struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text
    if header_version >= 2:
        header += b"\0"
    return type(body).program(version).encode_parts(body, header)


def decode_response(message: type[Message], version: int, payload: Buffer) -> tuple[int, object]:
    """Correlation id and body of an answer, given what follows the frame's length.  Raises DecodeError."""
    view = memoryview(payload)
    if len(view) < 4:
        raise DecodeError(f"an answer of {len(view)} bytes has no correlation id")
    (correlation_id,) = struct.unpack_from(">i", view)
    position = 4
    if message.api_key is not None and response_header_version(message.api_key, version) >= 1:
        position = _skip_tags(view, position)
    return correlation_id, message.program(version).decode(view, position)


def decode_request_header(payload: Buffer) -> RequestHeader:
    """The header of a request, given what follows the frame's length.  KeyError for an unknown API key."""
    view = memoryview(payload)
    try:
        api_key, version, correlation_id = struct.unpack_from(">hhi", view)
        position = 8
        client_id = None
        header_version = request_header_version(api_key, version)
        if header_version >= 1:
            (size,) = struct.unpack_from(">h", view, position)
            position += 2
            if size < -1 or position + max(size, 0) > len(view):
                raise DecodeError(f"a client id of {size} bytes where {len(view) - position} are left")
            if size >= 0:
                client_id = bytes(view[position : position + size]).decode()
                position += size
        if header_version >= 2:
            position = _skip_tags(view, position)
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def _skip_tags(view: memoryview, position: int) -> int:
    count, position = _read_uvarint(view, position)
    for _ in range(count):
        _, position = _read_uvarint(view, position)
        size, position = _read_uvarint(view, position)
        position += size
        if position > len(view):
            raise DecodeError("a header's tagged field runs past the end")
    return position


def _read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(view):
            raise DecodeError("a header ends within a varint")
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise DecodeError("a header has a varint of more than 32 bits")
