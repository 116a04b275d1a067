"""Raw requests over one connection, in any version, well-formed or not."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.protocol.schema import Field, MessageSchema
from kbroker.schemas import message

CLIENT_ID = "scenario"


class Closed(Exception):
    """The broker closed the connection instead of answering."""


def build(message_class: Any, values: Mapping[str, Any]) -> Any:
    """A message out of plain dictionaries and lists."""
    return _fill(message_class, message_class.schema.fields, message_class, values)


def _fill(message_class: Any, fields: Sequence[Field], struct_class: Any, values: Mapping[str, Any]) -> Any:
    known = {field.name: field for field in fields}
    made = struct_class()
    for name, value in values.items():
        setattr(made, name, _value(message_class, known[name], value))
    return made


def _value(message_class: Any, field: Field, value: Any) -> Any:
    if value is None or not field.is_struct:
        return value
    fields = struct_fields(message_class.schema, field)
    struct_class = getattr(message_class, field.item_type)
    if field.is_array:
        return [_fill(message_class, fields, struct_class, item) for item in value]
    return _fill(message_class, fields, struct_class, value)


def struct_fields(schema: MessageSchema, field: Field) -> Sequence[Field]:
    """The fields of the struct that `field` holds."""
    return field.fields or next(shared.fields for shared in schema.structs if shared.name == field.item_type)


class Wire:
    """One connection to a broker."""

    def __init__(self, port: int, seconds: float = 60, source: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds, source_address=(source, 0))
        self._correlation_id = 0

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def patience(self, seconds: float) -> None:
        """How long to wait for an answer from here on."""
        self._socket.settimeout(seconds)

    def ask(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """Send one request and decode its answer; `Closed` when the broker hangs up."""
        self.send(api, version, values)
        return self.answer(api, version)

    def send(self, api: str, version: int, values: Mapping[str, Any]) -> None:
        """Send one request without waiting."""
        self._correlation_id += 1
        request = message(f"{api}Request")
        body = build(request, values)
        self.send_raw(encode_request(request.api_key, version, self._correlation_id, CLIENT_ID, body))

    def answer(self, api: str, version: int) -> Any:
        """Receive and decode the answer to the request sent last."""
        correlation_id, body = decode_response(message(f"{api}Response"), version, self.receive())
        if correlation_id != self._correlation_id:
            raise AssertionError(f"{api}: answer to request {correlation_id} where {self._correlation_id} was due")
        return body

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def send_body(self, api_key: int, version: int, body: bytes, flexible: bool = False) -> None:
        """Send a frame with a right header and any body."""
        self._correlation_id += 1
        name = CLIENT_ID.encode()
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(name)) + name
        payload = header + (b"\0" if flexible else b"") + body
        self.send_raw(struct.pack(">i", len(payload)) + payload)

    def receive(self) -> bytearray:
        """Receive one frame without its length."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def silent(self) -> bool:
        """Whether nothing has arrived that was not asked for; only what is there already counts."""
        self._socket.setblocking(False)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) is None
        except BlockingIOError:
            return True
        finally:
            self._socket.setblocking(True)

    def _exactly(self, size: int) -> bytearray:
        found = bytearray()
        while len(found) < size:
            try:
                chunk = self._socket.recv(size - len(found))
            except ConnectionError:
                chunk = b""
            if not chunk:
                raise Closed
            found += chunk
        return found


def api_name(api_key: int) -> str:
    """The name of an API."""
    return str(ApiKey(api_key).message_name)
