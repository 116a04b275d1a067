import asyncio
import socket as sockets

from kbroker._fast.net.connection_interface import ConnectionInterface

class SocketPart(asyncio.BufferedProtocol):
    fd: int
    lends: bool
    held_bytes: int
    raw: sockets.socket
    def __init__(self, connection: ConnectionInterface) -> None: ...
    @property
    def certificate(self) -> bytes | None: ...

class PlainSocket(SocketPart): ...

class PairedSocket(PlainSocket):
    def __init__(self, connection: ConnectionInterface, peer: tuple[str, int]) -> None: ...
