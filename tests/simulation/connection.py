"""A connection of a model client: raw frames, any number of requests under way, and every answer judged.

An answer belongs to the oldest request that has none, by its correlation id, which no other request of the history has;
it has exactly the version that was asked for, and it comes while its request's time lasts.
"""

from __future__ import annotations

import asyncio
import random
import re
import struct
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.loop import SimulatedLoop
    from tests.simulation.sockets import End

PATIENCE_SECONDS = 30.0
WAKE_SECONDS = 10.0
"""Within so long a request is answered that waited for something, once that is there."""
RECEIVED = bytearray(65536)
"""Where bytes come for all of them, which take them out at once."""
VERSION_AT = 6
STALL_SECONDS = 5.0
"""Bytes of an answer do not stay away for so long."""

FOLDER = re.compile(rb"kbroker-world-\w{8}")
"""The folder of a history, which errors of its brokers name, has another name in each process."""


@dataclass(slots=True)
class Asked:
    """A request under way."""

    api_key: int
    version: int
    correlation_id: int
    request: Any
    allowed_seconds: float
    """How long it may take from the moment on at which it is the oldest."""
    then: Callable[[Any], None] | None
    """Called with the answer, or None when the connection is gone."""
    late: Callable[[], bool] | None = None
    """Whether it has to be answered by now, whatever time it was given; asked every second."""
    late_since: float | None = None

    def __str__(self) -> str:
        return f"{ApiKey(self.api_key).message_name} v{self.version} #{self.correlation_id:x}"


class ModelConnection:
    """What the loop takes for the connection's protocol."""

    def __init__(
        self, name: str, loop: SimulatedLoop, judge: Judge, client_id: str, next_correlation_id: Callable[[], int]
    ) -> None:
        self.name = name
        self._next_correlation_id = next_correlation_id
        self.client_id = client_id
        self.end: End
        self.outstanding: deque[Asked] = deque()
        self.gone = False
        self._said_all = False
        self.node = 0
        self.may_be_closed = False
        """Whether the broker has a reason to hang up."""
        self.broker_stops = False
        """Whether the broker is about to stop in order: what waits is answered before its time."""
        self.oldest_since = 0.0
        self._loop = loop
        self._judge = judge
        self._bytes = bytearray()
        self._came_at = 0.0
        self._unsent: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None

    # For a client

    def ask(
        self,
        request: Any,
        version: int,
        then: Callable[[Any], None] | None = None,
        *,
        allowed_seconds: float = PATIENCE_SECONDS,
        is_answered: bool = True,
        late: Callable[[], bool] | None = None,
        said: int | None = None,
    ) -> None:
        """Send a request with the next `flush`; `said`: another version that it says to be of, which is answered in
        version 0."""
        correlation_id = self._next_correlation_id()
        data = encode_request(request.api_key, version, correlation_id, self.client_id, request)
        if said is not None:
            data, version = data[:VERSION_AT] + struct.pack(">h", said) + data[VERSION_AT + 2 :], 0
        asked = Asked(request.api_key, version, correlation_id, request, allowed_seconds, then, late)
        self._unsent.append(data)
        self._judge.note("%s asks %s", self.name, asked)
        self._judge.moved(self.client_id)
        if is_answered:
            if not self.outstanding:
                self.oldest_since = self._loop.time()
            self.outstanding.append(asked)

    def flush(self) -> None:
        """Send what was asked since the last time, all at once."""
        if self._unsent:
            data, self._unsent = b"".join(self._unsent), []
            self.end.write(data)

    async def answer(self, request: Any, version: int, **options: Any) -> Any:
        """The answer to one request; None when the connection is gone."""
        if self.gone:
            return None
        got: asyncio.Future[Any] = self._loop.create_future()
        self.ask(request, version, lambda each: got.done() or got.set_result(each), **options)
        self.flush()
        return await got

    async def change(self) -> None:
        """Return when an answer has come, or the connection is gone."""
        if not self.gone:
            self._waiter = self._loop.create_future()
            await self._waiter

    @property
    def may_send(self) -> bool:
        """Whether it is open for more requests."""
        return not (self.gone or self.end.closed or self._said_all)

    def half_close(self) -> None:
        """Say that no more requests come; those that were sent are answered all the same."""
        self._judge.note("%s sends no more", self.name)
        self._said_all = True
        self.end.write_eof()

    def finish(self, rng: random.Random) -> None:
        """End the connection, in one way or another."""
        self.may_be_closed = self._said_all = True
        if rng.random() < 0.5:
            self.end.write_eof()
        else:
            self.end.abort()

    def abort(self) -> None:
        """Hang up."""
        self._judge.note("%s hangs up", self.name)
        self.may_be_closed = True
        self.end.reset()

    def has_late(self) -> bool:
        """Whether a request under way has to be answered by now."""
        return any(each.late is not None and each.late() for each in self.outstanding)

    # For the judge

    def nothing_was_answered(self) -> None:
        """The broker was held up until now: its answers take so much longer."""
        self.oldest_since = self._loop.time()
        for each in self.outstanding:
            each.late_since = None

    def check(self, now: float) -> None:
        """An answer may not be missing; one of which bytes come is not, however slow the network is."""
        if self._bytes and now - self._came_at < STALL_SECONDS:
            return
        if self.outstanding and not self.gone and not self.end.paused:
            oldest = self.outstanding[0]
            if now - self.oldest_since > oldest.allowed_seconds:
                self._judge.fail(f"{self.name} has no answer to {oldest} after {now - self.oldest_since:.3f} s")
            if oldest.late is not None:
                oldest.late_since = (oldest.late_since or now) if oldest.late() else None
            if oldest.late_since is not None and now - oldest.late_since > WAKE_SECONDS:
                self._judge.fail(
                    f"{self.name} has had no answer to {oldest} since there is one, {oldest.late_since:.3f}"
                )

    # What the loop calls

    def connection_made(self, end: End) -> None:
        self.end = end

    def get_buffer(self, _sizehint: int) -> bytearray:
        return RECEIVED

    def buffer_updated(self, size: int) -> None:
        received = self._bytes
        received += RECEIVED[:size]
        self._came_at = self._loop.time()
        while len(received) >= 4:
            (length,) = struct.unpack_from(">i", received)
            if length < 4:
                self._judge.fail(f"{self.name} gets a frame of {length} bytes")
            if len(received) < 4 + length:
                break
            frame = bytearray(received[4 : 4 + length])
            del received[: 4 + length]
            self._answered(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self.gone = True
        self._judge.note("%s is gone, with %d requests under way", self.name, len(self.outstanding))
        self._judge.moved(self.client_id)
        lost, self.outstanding = self.outstanding, deque()
        if lost and not self.may_be_closed:
            self._judge.fail(f"the broker ends {self.name}, which waits for {lost[0]}")
        for asked in lost:
            if asked.then is not None:
                asked.then(None)
        self.wake()

    def _answered(self, frame: bytearray) -> None:
        judge = self._judge
        (correlation_id,) = struct.unpack_from(">i", frame)
        if not self.outstanding:
            judge.fail(f"{self.name} gets an answer #{correlation_id:x} that it did not ask for")
        asked = self.outstanding.popleft()
        self.oldest_since = self._loop.time()
        if correlation_id != asked.correlation_id:
            judge.fail(f"{self.name} gets an answer #{correlation_id:x} where {asked} is the oldest request")
        answer = self._decode(asked, frame)
        judge.answers += 1
        judge.note("%s has an answer to %s of %d bytes", self.name, asked, len(frame))
        judge.moved(self.client_id)
        self._loop.note(self.name, asked.correlation_id, zlib.crc32(FOLDER.sub(b"", frame)))
        if asked.then is not None:
            asked.then(answer)
        self.wake()

    def _decode(self, asked: Asked, frame: bytearray) -> Any:
        message = response_message(asked.api_key)
        try:
            answer: Any = decode_response(message, asked.version, frame)[1]
        except ValueError as error:
            self._judge.fail(f"{self.name}: the answer to {asked} cannot be read in its version: {error}")
        flexible = response_header_version(ApiKey(asked.api_key), asked.version) > 0
        parts: Any = type(answer).program(asked.version).encode_response(answer, asked.correlation_id, flexible)
        again = parts if isinstance(parts, bytes) else b"".join(map(bytes, parts))
        if again[4:] != frame:
            self._judge.fail(f"{self.name}: the answer to {asked} is not what its version has: {bytes(frame[:200])!r}")
        return answer

    def wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
