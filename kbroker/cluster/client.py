"""What this broker asks of another one: requests as structs out, answers as structs in, over one connection.

    client = NodeClient(loop, transport, lambda: Endpoint("10.0.0.2", 9092), ClientSettings(client_id="1"))
    answer = await client.send(wire.AlterPartitionRequest(...), 3)
    client.close()

The first request opens the connection, and so does the first request after it was lost.  After a failed attempt each
next one waits longer (`reconnect.backoff.ms`, `.max.ms`).  Requests are pipelined: each is written at once, and answers
come in the order of the requests.  An answer's `records` are memoryviews over the received frame, which belongs to the
caller.

A client that `negotiates` asks ApiVersions first; `version_of` then says which version both sides have.  Without
`negotiates` the caller chooses the versions (`protocol_version`): brokers of a cluster do not send each other
ApiVersions.

Failures are `NodeError`s and close the connection: UnreachableError (nothing was sent), ConnectionLostError and
NodeTimeoutError (the other side may have done what was asked), MalformedAnswerError.  The caller handles the error
codes in answers.

All belongs to the event loop.  The network is behind `Transport`, so that a simulation can stand in its place.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kbroker import __version__
from kbroker._fast.wire.codec import DecodeError, EncodeError
from kbroker.backoff import ExponentialBackoff
from kbroker.error_codes import ErrorCode
from kbroker.errors import bare
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request_parts
from kbroker.schemas import request_message, response_message, wire

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker.metadata.image import Endpoint
    from kbroker.protocol.messages import Message

logger = logging.getLogger("kbroker.cluster.client")

API_VERSIONS_VERSION = 3
CORRELATION_MASK = 0x7FFFFFFF
LAST_LOOK_SECONDS = 0.001
LENGTH_BYTES = 4


class NodeError(Exception):
    """A request to another broker that got no answer."""


class UnreachableError(NodeError):
    """There was no connection: nothing was sent."""


class ConnectionLostError(NodeError):
    """The connection ended with the request under way: it may have been served."""


class NodeTimeoutError(ConnectionLostError):
    """No answer in time; the connection was closed."""


class MalformedAnswerError(NodeError):
    """The answer cannot be read, or is not the one to the oldest request."""


class UnsupportedVersionError(NodeError):
    """The other side has no version of the API that this one knows."""


class Channel(Protocol):
    """An open connection's sending side."""

    def send(self, parts: list[Buffer]) -> None:
        """Write one frame; never blocks."""

    def close(self) -> None:
        """Hang up; `lost` is not called after this."""


class Transport(Protocol):
    """The network: opens connections.  OSError where it cannot."""

    async def connect(
        self,
        host: str,
        port: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
    ) -> Channel:
        """A connection that calls `received` with what follows each frame's length, and `lost` once when it ends."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times are in seconds, sizes in bytes."""

    client_id: str
    negotiates: bool = False
    connect_seconds: float = 10.0
    request_seconds: float = 30.0
    backoff_seconds: float = 0.05
    max_backoff_seconds: float = 1.0
    max_request_bytes: int = 100 << 20
    max_answer_bytes: int = (1 << 31) - 1


A = TypeVar("A")


class _Pending:
    """A request under way."""

    __slots__ = ("answer", "api_key", "correlation_id", "timer", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int, answer: asyncio.Future[object]) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, error: NodeError) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.answer.done():
            self.answer.set_exception(error)


class NodeClient:
    """A connection to one broker, or to the one that `find` says by then (None: not known where)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        find: Callable[[], Endpoint | None],
        settings: ClientSettings,
        rng: random.Random | None = None,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._find = find
        self._settings = settings
        self._random = rng or random.Random()
        self._channel: Channel | None = None
        self._endpoint: Endpoint | None = None
        self._opening: asyncio.Task[Channel] | None = None
        self._connecting: asyncio.Timeout | None = None
        self._in_flight: deque[_Pending] = deque()
        self._correlation_id = 0
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False
        self.request_count = self.request_bytes = 0
        self.answer_count = self.answer_bytes = 0
        self.versions: dict[int, tuple[int, int]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether there is an open connection."""
        return self._channel is not None

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._in_flight)

    def version_of(self, api_key: int, at_most: int) -> int:
        """The highest version up to `at_most` that both sides have; after a connection that negotiated.

        Raises UnsupportedVersionError."""
        low, high = self.versions.get(api_key, (0, -1))
        ours = request_message(api_key)
        version = min(high, at_most, int(ours.max_version))
        if version < max(low, int(ours.min_version)):
            raise UnsupportedVersionError(f"{ApiKey(api_key).message_name} has no common version up to {at_most}")
        return version

    async def connect(self) -> None:
        """Open the connection, if there is none.  UnreachableError."""
        await self._connected()

    async def send(self, request: Message, version: int, *, seconds: float | None = None) -> Any:
        """The answer.  Raises a `NodeError`; ValueError for a request that is larger than the setting allows."""
        channel = self._channel
        if channel is None:
            channel = await self._connected()
            if channel is not self._channel:
                raise UnreachableError("the connection was lost as soon as it was there")
        return await self._post(channel, request, version, seconds)

    async def ask(
        self, kind: type[A], request: Message, at_most: int | None = None, *, seconds: float | None = None
    ) -> A:
        """The answer, of its `kind`, in the highest version up to `at_most` that both sides have.  As `send`, and
        UnsupportedVersionError."""
        assert request.api_key is not None
        await self.connect()
        version = self.version_of(request.api_key, int(type(request).max_version) if at_most is None else at_most)
        answer = await self.send(request, version, seconds=seconds)
        assert isinstance(answer, kind)
        return answer

    def _post(self, channel: Channel, request: Message, version: int, seconds: float | None) -> asyncio.Future[Any]:
        assert request.api_key is not None
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_MASK
        try:
            parts = encode_request_parts(
                request.api_key, version, self._correlation_id, self._settings.client_id, request
            )
        except EncodeError as error:
            raise ValueError(f"{ApiKey(request.api_key).message_name} {version}: {error}") from error
        size = sum(memoryview(part).nbytes for part in parts)
        if size > self._settings.max_request_bytes:
            raise ValueError(f"a request of {size} bytes, {self._settings.max_request_bytes} are allowed")
        answer: asyncio.Future[object] = self._loop.create_future()
        pending = _Pending(request.api_key, version, self._correlation_id, answer)
        seconds = self._settings.request_seconds if seconds is None else seconds
        pending.timer = self._loop.call_later(seconds, self._late, channel, pending, seconds)
        self._in_flight.append(pending)
        self.request_count += 1
        self.request_bytes += LENGTH_BYTES + size
        channel.send(parts)
        return answer

    # -- the connection -----------------------------------------------------------------------------------------------

    async def _connected(self) -> Channel:
        if self._channel is not None:
            return self._channel
        if self._closed:
            raise UnreachableError("the client is closed")
        if self._opening is None:
            self._opening = self._loop.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening, task = self._opening, asyncio.current_task()
        try:
            # A request that is given up must not end the attempt that others wait for.
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and not (task is not None and task.cancelling()):
                # `close` has cancelled the attempt; the caller's own task was not cancelled.
                raise UnreachableError("the client is closed") from None
            raise
        finally:
            del opening, task  # A task keeps its error, and the error this frame.

    def _opened(self, task: asyncio.Task[Channel]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()

    async def _open(self) -> Channel:
        wait = self._retry_at - self._loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        endpoint = self._find()
        if endpoint is None:
            self._back_off()
            raise UnreachableError("it is not known where the broker is")
        channel: Channel | None = None
        failures: list[Exception | None] = []

        def lost(error: Exception | None) -> None:
            failures.append(error)
            self._lost(channel, error)

        try:
            async with asyncio.timeout(self._settings.connect_seconds) as self._connecting:
                channel = await self._transport.connect(
                    endpoint.host,
                    endpoint.port,
                    self._received,
                    lost,
                    self._settings.max_answer_bytes,
                )
        except (OSError, TimeoutError) as error:
            self._back_off()
            text = f"{endpoint.host}:{endpoint.port}: {error or 'no answer in time'}"
            # The timeout keeps this task, which keeps its error: with the frames of the timeout that would be a cycle.
            raise UnreachableError(text) from bare(error)
        finally:
            self._connecting = None
        if self._closed:
            channel.close()
            raise UnreachableError("the client is closed")
        self._endpoint = endpoint
        if self._settings.negotiates and not failures:
            try:
                await self._negotiate(channel)
            except asyncio.CancelledError:
                # The client was closed meanwhile; only this task knows the connection, so it has to be closed here.
                channel.close()
                raise
        if failures:
            # The connection ended before this task resumed: `lost` has been called already, and will not be called
            # again.
            self._back_off()
            raise UnreachableError(f"{endpoint.host}:{endpoint.port}: {failures[0] or 'the connection was lost'}")
        self._channel = channel
        self._failures = 0
        return channel

    async def _negotiate(self, channel: Channel) -> None:
        request = wire.ApiVersionsRequest(client_software_name="kbroker", client_software_version=__version__)
        try:
            answer = await self._post(channel, request, API_VERSIONS_VERSION, None)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                answer = await self._post(channel, wire.ApiVersionsRequest(), 0, None)
        except NodeError as error:
            channel.close()
            self._back_off()
            raise UnreachableError(f"ApiVersions: {error}") from error
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def _back_off(self) -> None:
        settings = self._settings
        backoff = ExponentialBackoff(settings.backoff_seconds, settings.max_backoff_seconds)
        self._retry_at = self._loop.time() + backoff.backoff(self._failures, self._random.uniform)
        self._failures += 1

    def _received(self, frame: Buffer) -> None:
        if not self._in_flight:
            self._end(MalformedAnswerError("an answer that was not asked for"))
            return
        pending = self._in_flight.popleft()
        self.answer_count += 1
        self.answer_bytes += LENGTH_BYTES + memoryview(frame).nbytes
        version = pending.version
        if pending.api_key == ApiKey.API_VERSIONS and bytes(memoryview(frame)[4:6]) == b"\0\x23":
            version = 0  # Another version is answered in this one, with UNSUPPORTED_VERSION (KIP-511).
        try:
            correlation_id, answer = decode_response(response_message(pending.api_key), version, frame)
            if correlation_id != pending.correlation_id:
                raise DecodeError(f"answer {correlation_id} where {pending.correlation_id} is due")
        except DecodeError as error:
            failure = MalformedAnswerError(f"{ApiKey(pending.api_key).message_name} {version}: {error}")
            pending.fail(failure)
            self._end(failure)
            return
        if pending.timer is not None:
            pending.timer.cancel()
        if not pending.answer.done():
            pending.answer.set_result(answer)

    def _late(self, channel: Channel, pending: _Pending, seconds: float) -> None:
        """The time of a request is over.  What has come meanwhile is read first: this process may have been held up."""
        pending.timer = self._loop.call_later(LAST_LOOK_SECONDS, self._timed_out, channel, pending, seconds)

    def _timed_out(self, channel: Channel, pending: _Pending, seconds: float) -> None:
        if pending in self._in_flight:
            channel.close()
            name = ApiKey(pending.api_key).message_name
            self._fail_all(NodeTimeoutError(f"{name} was not answered within {seconds:g} s"))

    def _lost(self, channel: Channel | None, error: Exception | None) -> None:
        if channel is not None and (channel is self._channel or self._channel is None):
            self._fail_all(ConnectionLostError(str(error or "the other side has closed the connection")))

    def _end(self, error: NodeError) -> None:
        if self._channel is not None:
            self._channel.close()
        self._fail_all(error)

    def _fail_all(self, error: NodeError) -> None:
        self._channel = None
        if not self._closed:
            self._back_off()
        pending, self._in_flight = self._in_flight, deque()
        for each in pending:
            each.fail(error)

    def disconnect(self) -> None:
        """Hang up, or stop connecting; what waits fails, and the next request connects anew, where `find` says."""
        given_up = ConnectionLostError("this side has closed the connection")
        if self._channel is not None:
            self._end(given_up)
            return
        if self._connecting is not None and not self._connecting.expired():
            self._connecting.reschedule(self._loop.time())
        if self._in_flight:
            # The question for versions.
            self._fail_all(given_up)

    def close(self) -> None:
        """Hang up for good."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._channel is not None:
            self._channel.close()
        self._fail_all(ConnectionLostError("the client is closed"))
