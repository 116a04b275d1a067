"""One blocking connection to one broker: requests as objects out, answers as objects in.

    with Connection("127.0.0.1", 9092) as connection:
        MetadataRequest = request_message(ApiKey.METADATA)
        answer = connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        answer.brokers[0].port

Opening connects and negotiates: ApiVersions says which versions the broker has, and `version_of` picks the highest that
both sides know.  A caller that must stay below some version (Fetch names topics up to version 12 and numbers them
from 13 on) gives `version`.

Several requests may be in flight; a broker answers them in order:

    first = connection.post(fetch_1)         # bytes are on their way
    second = connection.post(fetch_2)
    answer_1 = connection.take(first)        # in the order in which they were posted
    answer_2 = connection.take(second)

`post(request, expects_answer=False)` is for Produce with acks=0, which a broker does not answer.  `answers_waiting()`
says without blocking whether bytes have arrived.

An answer's `records` fields are memoryviews over the received frame.  `take(ticket, into=buffer)` receives the frame
into the caller's bytearray, made larger where needed, so that large fetches do not allocate; the views are then only
valid until the caller uses the buffer again.

A connection is under TLS and begins with SASL where its `security` asks for that.  SASL is repeated in time, when no
request is under way.

Every failure closes the connection and raises a `ClientError` that says what to do: BrokerUnreachableError,
ConnectionLostError, BrokerTimeoutError, MalformedAnswerError, UnsupportedError.  Error codes within answers are the
caller's to look at.  Not thread-safe; times are in seconds.
`connect_timeout_s` is the time for all of opening: to connect, to negotiate and to log in.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.client.address import other_protocol
from kbroker.client.closing import Closing
from kbroker.client.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    ConnectionLostError,
    MalformedAnswerError,
    OtherProtocolError,
    UnsupportedError,
)
from kbroker.client.readable import readable
from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request_parts
from kbroker.schemas import request_message, response_message
from kbroker.security.client.client_security import NO_SECURITY, ClientSecurity
from kbroker.security.client.oauth_tokens import OAuthTokenError
from kbroker.security.sasl.login import LoginError, LoginExchange
from kbroker.security.tls.settings import TlsError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker.protocol.messages import Message

DEFAULT_CLIENT_ID = "kbroker-spark"
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
RECEIVE_BUFFER_BYTES = 4 << 20
MAX_FRAME_BYTES = (1 << 31) - 1
# An answer to ApiVersions is a few kB: more than this is no Kafka broker, but, say, a web server.
MAX_GREETING_BYTES = 1 << 20
# The kernel takes at most 1,024 at once.
MOST_PARTS = 512
# Of the time that a proof counts, after which it is repeated (KIP-368).
LIFETIME_SHARE = 0.85

_API_VERSIONS_VERSION = 3


def _left(until: float) -> float:
    """Seconds until then; a millisecond where it is over, as no time at all would mean not to wait for a socket."""
    return max(until - time.monotonic(), 0.001)


class Ticket(NamedTuple):
    """A request in flight."""

    correlation_id: int
    api_key: int
    version: int
    deadline: float


class Connection(Closing):
    """A connected, negotiated socket.  See the module's text."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.request_timeout_s = request_timeout_s
        self.versions: dict[int, tuple[int, int]] = {}
        self._in_flight: deque[Ticket] = deque()
        self._next_id = 0
        self._head = bytearray(4)
        self._security = security
        self._tls = self._context()
        self._log_in_by: float | None = None
        until = time.monotonic() + connect_timeout_s
        self._socket: socket.socket | None = self._connect(connect_timeout_s, receive_buffer_bytes)
        self._negotiate(_left(until))
        if security.authenticates:
            self._log_in(_left(until))

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def closed(self) -> bool:
        """Whether there is no socket any more."""
        return self._socket is None

    @property
    def in_flight(self) -> int:
        """Posted requests whose answers have not been taken."""
        return len(self._in_flight)

    def version_of(self, api_key: int, at_most: int | None = None) -> int:
        """The highest version of an API that both sides know, not above `at_most`.  UnsupportedError when none is."""
        name = ApiKey(api_key).message_name
        message = request_message(api_key)
        offered = self.versions.get(api_key)
        if offered is None:
            raise UnsupportedError(f"the broker at {self.address} has no {name}: its release does not offer this")
        highest = min(int(message.max_version), offered[1])
        if at_most is not None:
            highest = min(highest, at_most)
        if highest < max(message.min_version, offered[0]):
            raise UnsupportedError(
                f"no common version of {name}: the broker at {self.address} has {offered[0]} to {offered[1]}, "
                f"asked for were {message.min_version} to {message.max_version if at_most is None else at_most}"
            )
        return highest

    def send(self, request: Message, *, version: int | None = None, timeout_s: float | None = None) -> Any:
        """The answer to one request.  With others in flight, theirs must have been taken before."""
        return self.take(self.post(request, version=version, timeout_s=timeout_s))

    def post(
        self,
        request: Message,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        expects_answer: bool = True,
    ) -> Ticket:
        """Sends a request and does not wait.  The time for its answer counts from now (default: request_timeout_s)."""
        api_key = type(request).api_key
        assert api_key is not None
        if version is None:
            version = self.version_of(api_key)
        if self._log_in_by is not None and not self._in_flight and time.monotonic() >= self._log_in_by:
            self._log_in(self.request_timeout_s)
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        deadline = time.monotonic() + (self.request_timeout_s if timeout_s is None else timeout_s)
        ticket = Ticket(self._next_id, api_key, version, deadline)
        self._write(encode_request_parts(api_key, version, ticket.correlation_id, self.client_id, request), deadline)
        if expects_answer:
            self._in_flight.append(ticket)
        return ticket

    def take(self, ticket: Ticket, into: bytearray | None = None) -> Any:
        """Waits for the answer to the oldest request in flight, which must be `ticket`."""
        return self._decode(ticket, self._take_frame(ticket, into))

    def answers_waiting(self) -> bool:
        """Whether bytes, or the end of the stream, can be read without waiting."""
        if self._socket is None:
            return False
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return readable(self._socket.fileno(), 0)

    def close(self) -> None:
        """Close the socket; answers under way are lost."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._in_flight.clear()

    def _context(self) -> ssl.SSLContext | None:
        """UnsupportedError for stores that cannot be used."""
        if not self._security.encrypts:
            return None
        try:
            return self._security.context()
        except (TlsError, OSError) as error:
            raise UnsupportedError(f"no connection under TLS can be made: {error}") from error

    def _connect(self, timeout_s: float, receive_buffer_bytes: int) -> socket.socket:
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise BrokerUnreachableError(
                f"the name of broker {self.address} cannot be resolved ({error.strerror}): check the name, "
                "and the broker's advertised.listeners if it came from there"
            ) from error
        failure: OSError | None = None
        until = time.monotonic() + timeout_s
        for family, kind, protocol, _, address in addresses:
            link = socket.socket(family, kind, protocol)
            try:
                # Before connecting, for the window of TCP is agreed upon then.
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.settimeout(_left(until))
                link.connect(address)
                link.settimeout(_left(until))
                return link if self._tls is None else self._tls.wrap_socket(link, server_hostname=self.host)
            except OSError as error:
                link.close()
                failure = error
        raise self._unreachable(failure, timeout_s)

    def _unreachable(self, failure: OSError | None, timeout_s: float) -> BrokerUnreachableError:
        if isinstance(failure, ConnectionRefusedError):
            text = "nothing listens there: start the broker, or correct kafka.bootstrap.servers"
        elif isinstance(failure, ssl.SSLError):
            why = getattr(failure, "verify_message", "") or failure.reason or failure
            text = f"TLS cannot be agreed upon there: {why}"
        elif isinstance(failure, TimeoutError):
            text = f"no connection within {timeout_s:g} s: check the address, the network and its firewalls"
        else:
            text = f"{failure}: check the address and the network"
        error = BrokerUnreachableError(f"broker {self.address} cannot be reached, {text}")
        error.__cause__ = failure
        return error

    def _negotiate(self, timeout_s: float) -> None:
        request = request_message(ApiKey.API_VERSIONS)(
            client_software_name="kbroker-spark", client_software_version="1"
        )
        try:
            answer = self._greet(request, _API_VERSIONS_VERSION, timeout_s)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                answer = self._greet(request, 0, timeout_s)
        except OtherProtocolError:
            raise
        except (ConnectionLostError, MalformedAnswerError) as error:
            self.close()
            raise type(error)(
                f"{error}; it did not answer the first question: is this address a Kafka listener with "
                f"security.protocol {self._security.protocol}?"
            ) from error
        if answer.error_code:
            self.close()
            raise UnsupportedError(f"the broker at {self.address} does not tell its versions: {answer.error_code}")
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def _log_in(self, timeout_s: float) -> None:
        """Prove who this client is.  UnsupportedError where the broker does not accept it."""
        deadline = time.monotonic() + timeout_s
        try:
            exchange = LoginExchange(self._security.client_mechanism(), self.client_id)
            request: list[Buffer] | None = exchange.begin()
            while request is not None:
                self._write(request, deadline)
                ticket = Ticket(0, ApiKey.SASL_AUTHENTICATE, 0, deadline)
                self._in_flight.append(ticket)
                request = exchange.answered(self._take_frame(ticket, None, MAX_GREETING_BYTES))
        except (LoginError, OAuthTokenError) as error:
            self.close()
            raise UnsupportedError(f"the broker at {self.address} does not let this client in: {error}") from error
        seconds = exchange.lifetime_ms / 1000
        self._log_in_by = time.monotonic() + LIFETIME_SHARE * seconds if seconds else None

    def _greet(self, request: Message, version: int, timeout_s: float) -> Any:
        ticket = self.post(request, version=version, timeout_s=timeout_s)
        frame = self._take_frame(ticket, None, MAX_GREETING_BYTES)
        # A broker that does not know the version answers in version 0 (KIP-511).
        if len(frame) >= 6 and struct.unpack_from(">h", frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
            return response_message(ApiKey.API_VERSIONS)(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
        return self._decode(ticket, frame)

    def _decode(self, ticket: Ticket, frame: memoryview) -> object:
        try:
            correlation_id, answer = decode_response(response_message(ticket.api_key), ticket.version, frame)
        except DecodeError as error:
            raise self._malformed(
                f"its answer to {ApiKey(ticket.api_key).message_name} is malformed: {error}"
            ) from error
        if correlation_id != ticket.correlation_id:
            raise self._malformed(f"it answered request {correlation_id} instead of {ticket.correlation_id}")
        return answer

    def _malformed(self, text: str) -> MalformedAnswerError:
        self.close()
        return MalformedAnswerError(f"broker {self.address}: {text}")

    def _take_frame(self, ticket: Ticket, into: bytearray | None, limit: int = MAX_FRAME_BYTES) -> memoryview:
        if not self._in_flight or self._in_flight[0] != ticket:
            if self._socket is None:
                raise ConnectionLostError(f"the connection to {self.address} is closed")
            raise RuntimeError("answers must be taken in the order of their requests")
        self._read(memoryview(self._head), ticket)
        (size,) = struct.unpack(">i", self._head)
        if not 4 <= size <= limit:
            other = other_protocol(bytes(self._head))
            if other is not None:
                self.close()
                raise OtherProtocolError(f"broker {self.address}: {other}")
            raise self._malformed(f"a frame of {size} bytes")
        if into is None:
            into = bytearray(size)
        elif len(into) < size:
            into.extend(bytes(size - len(into)))
        frame = memoryview(into)[:size]
        self._read(frame, ticket)
        self._in_flight.popleft()
        return frame

    def _write(self, parts: Iterable[Buffer], deadline: float) -> None:
        link = self._socket
        if link is None:
            raise ConnectionLostError(f"the connection to {self.address} is closed")
        try:
            left = [memoryview(part) for part in parts]
            while left:
                seconds = deadline - time.monotonic()
                if seconds <= 0:
                    raise TimeoutError
                link.settimeout(seconds)
                if isinstance(link, ssl.SSLSocket):
                    link.sendall(b"".join(left))
                    return
                sent = link.sendmsg(left[:MOST_PARTS])
                while left and sent >= len(left[0]):
                    sent -= len(left.pop(0))
                if sent:
                    left[0] = left[0][sent:]
        except TimeoutError as error:
            size = sum(len(part) for part in left)
            self.close()
            raise BrokerTimeoutError(
                f"broker {self.address} did not take the last {size} bytes of a request in time"
            ) from error
        except OSError as error:
            self.close()
            raise ConnectionLostError(f"the connection to broker {self.address} broke: {error}") from error

    def _read(self, target: memoryview, ticket: Ticket) -> None:
        link = self._socket
        assert link is not None
        done = 0
        try:
            while done < len(target):
                link.settimeout(max(ticket.deadline - time.monotonic(), 0.001))
                size = link.recv_into(target[done:])
                if size == 0:
                    raise ConnectionResetError("the broker closed it")
                done += size
        except TimeoutError as error:
            self.close()
            raise BrokerTimeoutError(
                f"broker {self.address} did not answer {ApiKey(ticket.api_key).message_name} in time: "
                "it is overloaded or hangs; look at its log, or allow a longer kafka.request.timeout.ms"
            ) from error
        except OSError as error:
            self.close()
            raise ConnectionLostError(
                f"the connection to broker {self.address} ended within {ApiKey(ticket.api_key).message_name}: {error}"
            ) from error
