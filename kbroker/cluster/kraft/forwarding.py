"""Passes requests of clients on to the active controller of a quorum, as they came (KIP-590).

    channel = ForwardingChannel(loop, transport, lambda: quorum.leader_endpoint, node_id)
    forwarding = Forwarding(channel)
    answer = await forwarding.forward(frame, session, address)

An Envelope carries the client's frame, its principal and its address; the controller authorizes the client, counts its
quotas, and answers with a frame for the client.  A request that meets a lost connection, or a controller that is not
the active one, is asked again, for RETRY_SECONDS in all, as Kafka's brokers do: what a controller did before it failed
may so be asked a second time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.authenticated import LoginFailedError
from kbroker.cluster.client import ClientSettings, NodeClient, NodeError, UnsupportedVersionError
from kbroker.cluster.controller_channel import is_of_no_controller
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_output import RateLimitedLog
from kbroker.outage import REMIND_SECONDS
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.cluster.client import Transport
    from kbroker.metadata.image import Endpoint
    from kbroker.protocol.messages import Message
    from kbroker.security.principal import Session

logger = logging.getLogger("kbroker.cluster")

RETRY_SECONDS = 60.0
BACKOFF = ExponentialBackoff(0.05, 1.0)
"""In seconds."""
ENVELOPE_VERSION = 0
PRINCIPAL_VERSION = 0
_VERSION = struct.Struct(">h")


class ForwardingChannel:
    """The connection to the active controller, wherever `find` says that it is by now (None: not known).

    Its owner calls `leader_changed` when `find` says something else.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        find: Callable[[], Endpoint | None],
        node_id: int,
        request_seconds: float = 30.0,
        rng: random.Random | None = None,
    ) -> None:
        self._loop = loop
        self._find = find
        self._random = rng or random.Random()
        self._endpoint: Endpoint | None = None
        self._news = asyncio.Event()
        self._asking: set[asyncio.Task[object]] = set()
        self._complaints = RateLimitedLog(logger, REMIND_SECONDS, monotonic=loop.time)
        settings = ClientSettings(
            client_id=str(node_id),
            negotiates=True,
            request_seconds=request_seconds,
            backoff_seconds=BACKOFF.initial,
            max_backoff_seconds=BACKOFF.longest,
        )
        self._client = NodeClient(loop, transport, self._find_endpoint, settings, rng)

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and last version of each API that the controller has; empty before the first connection."""
        return self._client.versions

    def _find_endpoint(self) -> Endpoint | None:
        self._endpoint = self._find()
        return self._endpoint

    def leader_changed(self) -> None:
        """Leave a controller that is not the active one any more; what waits asks the next one at once."""
        if self._endpoint != self._find():
            self._client.disconnect()
        self._news.set()
        self._news = asyncio.Event()

    async def ask(self, request: Message, at_most: int, seconds: float = RETRY_SECONDS) -> object:
        """The active controller's answer, in the highest common version up to `at_most`.

        KafkaError: REQUEST_TIMED_OUT where there was none in time, UNKNOWN_SERVER_ERROR where the controller has no
        version of the API, or this broker and it do not trust each other.
        """
        # In a task of its own: a handler may run outside of one, and time limits need one.
        task = self._loop.create_task(self._ask(request, at_most, seconds))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        try:
            return await task
        finally:
            del task  # It keeps its error, and the error this frame.

    async def _ask(self, request: Message, at_most: int, seconds: float) -> object:
        deadline = self._loop.time() + seconds
        attempts = 0
        why = ""
        while (left := deadline - self._loop.time()) > 0:
            news = self._news
            try:
                async with asyncio.timeout(left):
                    answer = await self._ask_once(request, at_most)
            except TimeoutError:
                break
            except UnsupportedVersionError as error:
                raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            except NodeError as error:
                if isinstance(error.__cause__, LoginFailedError | ssl.SSLError):
                    # Kafka's brokers do not ask again, either: settings have to change.
                    logger.error("a controller does not take this broker for one: %s", error)
                    raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR) from error
                why = str(error)
            else:
                if not is_of_no_controller(answer):
                    self._complaints.flush()
                    return answer
                why = "the controller is not the active one"
            # A failed attempt to connect has its own wait behind it, in the client.
            wait = min(BACKOFF.backoff(attempts, self._random.uniform), max(0.0, deadline - self._loop.time()))
            attempts += 1
            try:
                async with asyncio.timeout(wait):
                    await news.wait()
                attempts = 0
            except TimeoutError:
                pass
        name = "" if request.api_key is None else ApiKey(request.api_key).message_name
        text = "%s was not answered by an active controller within %g s: %s"
        self._complaints.warning(request.api_key, text, name, seconds, why)
        raise KafkaError.of(ErrorCode.REQUEST_TIMED_OUT)

    async def _ask_once(self, request: Message, at_most: int) -> object:
        if self._endpoint is not None and self._find() != self._endpoint:
            self._client.disconnect()
        await self._client.connect()
        assert request.api_key is not None
        try:
            return await self._client.send(request, self._client.version_of(request.api_key, at_most))
        except ValueError as error:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def close(self) -> None:
        """Hang up for good; what waits is cancelled."""
        for task in self._asking:
            task.cancel()
        self._client.close()


class Forwarding:
    """See the module."""

    def __init__(self, channel: ForwardingChannel) -> None:
        self._channel = channel

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """See `ForwardingChannel.versions`."""
        return self._channel.versions

    async def forward(self, frame: bytes, session: Session, client_address: str) -> bytes:
        """The answer to a client's request, both without their lengths and with their headers.

        KafkaError: UNSUPPORTED_VERSION where the controller does not know the request's version, so that the client's
        connection has to be closed; else what the client is to be answered with.
        """
        envelope = wire.EnvelopeRequest(
            request_data=frame,
            request_principal=principal_data(session),
            client_host_address=address_bytes(client_address),
        )
        answer = await self._channel.ask(envelope, ENVELOPE_VERSION)
        assert isinstance(answer, wire.EnvelopeResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION)
        if answer.error_code or answer.response_data is None:
            # Brokers and controllers do not fit together, which is nothing to tell a client.
            logger.error("a request was not taken by the controller: %s", KafkaError.of(ErrorCode(answer.error_code)))
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
        return bytes(answer.response_data)


def principal_data(session: Session) -> bytes:
    """Who the client is, as Kafka's DefaultKafkaPrincipalBuilder writes it: a version and DefaultPrincipalData."""
    principal = session.principal
    data = wire.DefaultPrincipalData(type=principal.kind, name=principal.name, token_authenticated=session.by_token)
    return _VERSION.pack(PRINCIPAL_VERSION) + bytes(wire.DefaultPrincipalData.program(PRINCIPAL_VERSION).encode(data))


def address_bytes(host: str) -> bytes:
    """An address as Java's InetAddress has it: an IPv4 client of a dual-stack socket has 4 bytes.

    A peer without an address, as behind a Unix socket, is this machine.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ipaddress.IPv4Address("127.0.0.1").packed
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed
