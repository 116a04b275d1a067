"""What passes between brokers, as proxies see it: requests of the APIs that are asked for, each with its answer."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from kbroker.protocol.frames import decode_request_header, decode_response
from kbroker.schemas import request_message, response_message
from tests.scenarios.faults.proxy import Tap

HEAD = 8
"""What says of a frame whether it is to be kept: its length and four bytes of its header."""


@dataclass(slots=True)
class Exchange:
    """A request to broker `to`, and the answer once it is there."""

    at: float
    to: int
    request: Any
    answer: Any = None


class Frames:
    """One way of a connection: `take(payload)` gets the frames of which `is_kept(head)`, their first four bytes."""

    def __init__(self, is_kept: Callable[[bytes], bool], take: Callable[[bytes], None]) -> None:
        self._is_kept = is_kept
        self._take = take
        self._buffer = bytearray()
        self._skipped = 0

    def feed(self, chunk: bytes) -> None:
        """What passes next."""
        self._buffer += chunk
        while self._step():
            pass

    def _step(self) -> bool:
        buffer = self._buffer
        if self._skipped:
            passed = min(self._skipped, len(buffer))
            del buffer[:passed]
            self._skipped -= passed
            return not self._skipped and bool(buffer)
        if len(buffer) < HEAD:
            return False
        (size,) = struct.unpack_from(">i", buffer)
        if not self._is_kept(bytes(buffer[4:HEAD])):
            self._skipped = 4 + size
            return True
        if len(buffer) < 4 + size:
            return False
        self._take(bytes(buffer[4 : 4 + size]))
        del buffer[: 4 + size]
        return True


class Recorder:
    """Keeps the exchanges of `apis`; written by the proxies' thread, read by others."""

    def __init__(self, apis: Collection[int]) -> None:
        self._apis = frozenset(apis)
        self.exchanges: list[Exchange] = []

    def taps(self, to: int) -> tuple[Tap, Tap]:
        """Of a new connection to broker `to`."""
        pending: dict[int, tuple[Exchange, int]] = {}

        def sent(payload: bytes) -> None:
            header = decode_request_header(payload)
            message = request_message(header.api_key)
            body = message.program(header.api_version).decode(memoryview(payload), header.size)
            exchange = Exchange(time.monotonic(), to, body)
            self.exchanges.append(exchange)
            pending[header.correlation_id] = exchange, header.api_version

        def came(payload: bytes) -> None:
            (correlation_id,) = struct.unpack_from(">i", payload)
            exchange, version = pending.pop(correlation_id)
            _, exchange.answer = decode_response(response_message(exchange.request.api_key), version, payload)

        requests = Frames(lambda head: struct.unpack_from(">h", head)[0] in self._apis, sent)
        answers = Frames(lambda head: struct.unpack(">i", head)[0] in pending, came)
        return requests.feed, answers.feed

    def since(self, at: float) -> list[Exchange]:
        """Those that began at that time or later."""
        return [each for each in self.exchanges if each.at >= at]
