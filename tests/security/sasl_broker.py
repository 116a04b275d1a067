"""A broker in this process whose listener wants SASL, and a client of it that sends frames as it likes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from kbroker.metadata.security_image import ScramKey, SecurityDelta, SecurityImage
from kbroker.protocol.api import ApiKey, request_header_version, response_header_version
from kbroker.schemas import message
from kbroker.security.scram import ScramMechanism, credential_of_password

LISTENER = "SASL_PLAINTEXT"
PREFIX = f"listener.name.{LISTENER.lower()}"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN_MODULE} required username="admin" password="admin-pw" user_admin="admin-pw" user_alice="alice-pw";'
PLAIN = {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}.plain.sasl.jaas.config": JAAS}
ALL = {**PLAIN, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}


class PutUser:
    """Adds a user of both SCRAM mechanisms."""

    def __init__(self, name: str, password: str) -> None:
        self._keys = {ScramKey(name, each): credential_of_password(each, password) for each in ScramMechanism}

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, None]:
        return SecurityDelta(scram=self._keys), None


@asynccontextmanager
async def sasl_broker(folder: Path, settings: Mapping[str, str]) -> AsyncIterator[Broker]:
    """One that is up."""
    own = {"log.dirs": str(folder / "logs"), "listeners": f"{LISTENER}://127.0.0.1:0", "metrics.listener": "none"}
    broker = Broker(BrokerConfig.from_mapping({**own, **settings}), asyncio.get_running_loop())
    await broker.start()
    try:
        yield broker
    finally:
        hang_up()
        await broker.stop()


class RawClient:
    """A connection."""

    def __init__(self, broker: Broker | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.broker = broker
        self._reader = reader
        self.writer = writer
        self._correlation = 0

    @classmethod
    async def connect(cls, broker: Broker, listener: int = 0) -> RawClient:
        """To a listener of the broker."""
        return await cls.dial(broker.node.listeners.all[listener].port, broker)

    @classmethod
    async def dial(cls, port: int, broker: Broker | None = None, host: str = "127.0.0.1") -> RawClient:
        """To a port of any broker."""
        client = cls(broker, *await asyncio.open_connection(host, port))
        _clients.append(client)
        return client

    def frame(self, api: str, version: int, **fields: Any) -> bytes:
        """A request."""
        self._correlation += 1
        key = ApiKey[_snake(api)]
        struct_ = message(f"{api}Request")
        header = struct.pack(">hhih", key, version, self._correlation, 4) + b"test"
        if request_header_version(key, version) >= 2:
            header += b"\0"
        body = struct_.program(version).encode(struct_(**fields))
        return struct.pack(">i", len(header) + len(body)) + header + body

    async def ask(self, api: str, version: int, **fields: Any) -> Any:
        """The answer to a request; None where the connection ends instead."""
        self.writer.write(self.frame(api, version, **fields))
        return await self.answer(api, version)

    async def answer(self, api: str, version: int) -> Any:
        """The next answer."""
        frame = await self.token()
        if frame is None:
            return None
        (correlation,) = struct.unpack_from(">i", frame)
        assert correlation == self._correlation
        key = ApiKey[_snake(api)]
        at = 4 + (response_header_version(key, version) >= 1)
        return message(f"{api}Response").program(version).decode(frame[at:])

    async def token(self) -> bytes | None:
        """The next frame as it is; None at the end of the connection."""
        try:
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def send_token(self, token: bytes) -> None:
        """A frame without a header."""
        self.writer.write(struct.pack(">i", len(token)) + token)

    async def handshake(self, mechanism: str, version: int = 1) -> int:
        """The code of the answer to SaslHandshake."""
        answer = await self.ask("SaslHandshake", version, mechanism=mechanism)
        assert answer is not None
        return int(answer.error_code)

    async def authenticate(self, token: bytes, version: int = 2) -> Any:
        """The answer to SaslAuthenticate."""
        return await self.ask("SaslAuthenticate", version, auth_bytes=token)

    async def log_in(self, name: str = "alice", password: str | None = None, version: int = 2) -> Any:
        """By PLAIN; the last answer."""
        assert await self.handshake("PLAIN") == 0
        return await self.authenticate(f"\0{name}\0{password or f'{name}-pw'}".encode(), version)

    @property
    def session(self) -> Any:
        """What the broker has of this connection."""
        port = self.writer.get_extra_info("sockname")[1]
        (found,) = [each for each in self._connections() if each.peer_port == port]
        return found.session

    def _connections(self) -> list[Any]:
        assert self.broker is not None
        return [each for listener in self.broker.node.listeners.all for each in listener.endpoint.connections]


_clients: list[RawClient] = []


def hang_up() -> None:
    """Close all clients."""
    while _clients:
        _clients.pop().writer.close()


def _snake(name: str) -> str:
    return "".join(f"_{char}" if char.isupper() and at else char for at, char in enumerate(name)).upper()
