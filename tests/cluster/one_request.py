"""One request over a connection of its own: what one broker itself says, and no client library chooses which."""

from __future__ import annotations

import socket
import struct
from typing import Any

from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message


def ask_port(port: int, request: Any, version: int, client_id: str = "c", *, timeout: float = 90.0) -> Any:
    """The answer of the broker at a port of this machine.  OSError where it gives none in `timeout` seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as client:
        client.sendall(encode_request(request.api_key, version, 5, client_id, request))
        data = client.makefile("rb")
        head = data.read(4)
        if len(head) < 4:
            raise ConnectionResetError("the broker hangs up")
        (size,) = struct.unpack(">i", head)
        _, answer = decode_response(response_message(request.api_key), version, data.read(size))
    return answer
