"""A controller whose every answer the test decides, and a broker that forwards to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kbroker._fast.net.socket_part import PlainSocket
from kbroker.broker import Broker
from kbroker.cluster.client import ClientSettings
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.controller_client import ControllerClient
from kbroker.cluster.kraft.forwarding import Forwarding
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode
from kbroker.handlers import dispatch
from kbroker.handlers.cluster.forwarding_view import ForwardingView
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message, wire
from kbroker.security.principal import AuthenticationState, Principal, Session
from tests.cluster.kraft.frames import captured, read, whole

NODE_ID = 9
# Body of an Envelope, and what the controller makes of it: an EnvelopeResponse, or None for no answer.
Serve = Callable[[Any], Any]


class Controller:
    """Answers ApiVersions as Kafka's controller (or, by its vector, a broker), and all else as `serve` says."""

    def __init__(self, serve: Serve, versions: str = "51-ApiVersions-4-controller") -> None:
        self.serve = serve
        self._versions = versions
        self.frames: list[bytes] = []
        self.asked: list[Any] = []
        self.bodies: list[bytes] = []
        self.client_ids: set[str | None] = set()
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await read(reader)
                header = decode_request_header(frame)
                self.client_ids.add(header.client_id)
                if header.api_key == ApiKey.API_VERSIONS:
                    # In the version that was asked for: the first fields are the same in 3 and 4.
                    answer = captured(self._versions, "answer")
                    writer.write(whole(header.correlation_id.to_bytes(4, "big") + answer[4:]))
                    continue
                self.frames.append(frame)
                self.bodies.append(frame[header.size :])
                body = request_message(header.api_key).program(header.api_version).decode(frame, header.size)
                self.asked.append(body)
                made = self.serve(body)
                if made is not None:
                    writer.write(
                        type(made).program(header.api_version).encode_response(made, header.correlation_id, True)
                    )

    def hang_up(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def stop(self) -> None:
        self._server.close()
        self.hang_up()


class Known:
    """A listener's kind whose clients are all the same one."""

    authenticates = True
    first_frame_bytes = 1_000

    def __init__(self, session: Session | None) -> None:
        self._session = session

    def make_socket(self, connection: Any) -> Any:

        return PlainSocket(connection)

    def first_session(self, _connection: Any) -> Session | None:
        return self._session


ALICE = Session(Principal("User", "alice"), "127.0.0.1", "PLAINTEXT", AuthenticationState.AUTHENTICATED)


class FoundController:
    """`ControllerFinder`: the controller is where `find` says, and `changed` that it says something else."""

    def __init__(self, find: Callable[[], Endpoint | None]) -> None:
        self._find = find
        self.changed: Callable[[], None] = lambda: None

    def endpoint(self) -> Endpoint | None:
        return self._find()

    def on_change(self, changed: Callable[[], None]) -> None:
        self.changed = changed


def client_of(finder: FoundController, transport: Any = None) -> ControllerClient:
    """A broker's client of that controller."""
    loop = asyncio.get_running_loop()
    settings = ClientSettings(str(NODE_ID), negotiates=True)
    return ControllerClient(loop, transport or TcpTransport(loop), finder, settings)


class ForwardingBroker:
    """A whole broker whose settings are its own and whose administration is the controller's.

    `retry_seconds`: how long it asks."""

    def __init__(self, folder: Path, find: Callable[[], Endpoint | None], kind: Known | None = None) -> None:
        loop = asyncio.get_running_loop()
        values = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": "none"}
        self.broker = Broker(BrokerConfig.from_mapping(values), loop)
        self.client = client_of(FoundController(find))
        forwarding = Forwarding(self.client)
        membership: Any = self.broker.membership
        membership.forwarding = forwarding
        membership.handlers = lambda _listener: dispatch.forwarding_rows()
        membership.view = lambda: ForwardingView(forwarding)
        if kind is not None:
            security: Any = {"PLAINTEXT": kind}
            self.broker.node.listeners._security = security

    @property
    def port(self) -> int:
        return self.broker.node.listeners.all[0].port

    async def ask(self, frame: bytes) -> bytes | None:
        """The answer's frame; None where the broker hangs up instead."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(whole(frame))
        try:
            return await read(reader)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def forwarding(
    folder: Path, serve: Serve, kind: Known | None = None
) -> AsyncIterator[tuple[ForwardingBroker, Controller]]:
    """A broker and its controller, started."""
    controller = Controller(serve)
    await controller.start()
    served = ForwardingBroker(folder, lambda: Endpoint("127.0.0.1", controller.port), kind)
    await served.broker.start()
    try:
        async with asyncio.timeout(60):
            yield served, controller
    finally:
        await served.broker.stop()
        served.client.close()
        await controller.stop()


def answered(data: bytes) -> Any:
    """An envelope's answer with the answer to the client in it."""
    return wire.EnvelopeResponse(response_data=data)


def refused(code: ErrorCode) -> Any:
    """An envelope's answer without one."""
    return wire.EnvelopeResponse(error_code=code, response_data=None)
