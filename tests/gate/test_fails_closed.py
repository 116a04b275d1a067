"""Authentication fails closed: what a listener does not say of a client's session is not taken for granted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker._fast.net.connection import Connection
from kbroker._fast.net.socket_part import PlainSocket, SocketPart
from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from kbroker.handlers import dispatch
from kbroker.network.listener_security import FirstSession
from kbroker.protocol.api import ApiKey
from kbroker.security.principal import ANONYMOUS, AuthenticationState, Session
from tests.network.served_connection import answer, frame

FIRST_BYTES = 1_000


class Kind:
    """A kind of listener that gives each connection the same session."""

    authenticates = True
    first_frame_bytes = FIRST_BYTES

    def __init__(self, session: FirstSession | None) -> None:
        self.session = session

    def make_socket(self, connection: Connection) -> SocketPart:
        return PlainSocket(connection)

    def first_session(self, connection: Connection) -> FirstSession | None:
        return self.session


class Served:
    """A whole broker whose listener is of that kind."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        values = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": "none"}
        self.broker = Broker(BrokerConfig.from_mapping(values), asyncio.get_running_loop())
        security: Any = {"PLAINTEXT": kind}
        self.broker.node.listeners._security = security

    async def __aenter__(self) -> Served:
        await self.broker.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.broker.stop()

    async def answer_to(self, request: bytes) -> bytes | None:
        """The body of the answer; None where the broker hangs up instead."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.node.listeners.all[0].port)
        writer.write(request)
        try:
            return (await answer(reader))[1]
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        finally:
            writer.close()

    def hung_up(self, reason: str) -> int:
        """How many connections the listener has ended for a reason."""
        return self.broker.node.listeners.all[0].closed[reason]


ASKED = [
    (handler.api_key, version)
    for handler in dispatch.broker_rows()
    for version in range(handler.min_version, handler.max_version + 1)
]
VERSIONS = (frame(ApiKey.API_VERSIONS, 1, b""), frame(ApiKey.API_VERSIONS, 1, b"\x02a\x02b\0", version=3))


def test_a_new_kind_of_listener_without_a_session_serves_nothing(tmp_path: Path) -> None:
    """A kind that forgets to say who its clients are would serve everybody everything."""

    async def main() -> None:
        async with Served(tmp_path, Kind(None)) as served:
            for api_key, version in ASKED:
                assert await served.answer_to(frame(api_key, 1, bytes(64), version=version)) is None, (api_key, version)
            assert served.broker.node.stats.total() == 0
            assert served.hung_up("unauthenticated request") == len(ASKED)

    uvloop.run(main())


def test_before_authentication_only_what_it_takes_is_served(tmp_path: Path) -> None:
    """The metadata of a cluster would be shown to whoever connects, or clients could not find out how to begin."""
    waiting = Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT")

    async def main() -> None:
        async with Served(tmp_path, Kind(waiting)) as served:
            for api_key, version in ASKED:
                if api_key != ApiKey.API_VERSIONS:
                    got = await served.answer_to(frame(api_key, 1, bytes(64), version=version))
                    assert got is None, (api_key, version)
            for request in VERSIONS:
                assert await served.answer_to(request) is not None
            assert served.broker.node.stats.total() == len(VERSIONS)

    uvloop.run(main())


@pytest.mark.parametrize("client_id", [b"test", None])
def test_a_change_of_session_is_seen_by_the_next_request(tmp_path: Path, client_id: bytes | None) -> None:
    """A user who was removed, or has become another one, would go on under what its first session was allowed."""
    kind = Kind(Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT", AuthenticationState.AUTHENTICATED))
    request = frame(ApiKey.METADATA, 1, bytes(4), client_id=client_id or b"")

    async def main() -> None:
        async with Served(tmp_path, kind) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.broker.node.listeners.all[0].port)
            writer.write(request)
            await answer(reader)
            (connection,) = served.broker.node.listeners.all[0].endpoint.connections
            connection.session = Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT", AuthenticationState.FAILED)
            writer.write(request)
            with pytest.raises(asyncio.IncompleteReadError):
                await answer(reader)
            writer.close()
            assert served.hung_up("unauthenticated request") == 1

    uvloop.run(main())


def test_a_frame_before_authentication_is_small(tmp_path: Path) -> None:
    """Anybody could have the broker hold 100 MB for each connection."""
    kind = Kind(Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT"))

    async def main() -> None:
        async with Served(tmp_path, kind) as served:
            assert await served.answer_to(frame(ApiKey.API_VERSIONS, 1, bytes(FIRST_BYTES))) is None
            assert served.hung_up("bad frame") == 1
            kind.session = Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT", AuthenticationState.AUTHENTICATED)
            # Metadata 0 names topics: it is as large, and is taken.
            names = b"".join(b"\x00\x05t-%03d" % number for number in range(200))
            request = frame(ApiKey.METADATA, 1, (200).to_bytes(4, "big") + names)
            assert len(request) > FIRST_BYTES
            assert await served.answer_to(request) is not None

    uvloop.run(main())
