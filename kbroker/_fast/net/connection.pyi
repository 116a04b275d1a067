from typing import Any

from kbroker._fast.net.connection_interface import ConnectionInterface
from kbroker._fast.net.route import NO_RESPONSE as NO_RESPONSE
from kbroker._fast.net.route import Endpoint
from kbroker._fast.net.socket_part import SocketPart

class Connection(ConnectionInterface):
    endpoint: Endpoint
    socket: SocketPart
    busy: bool
    serving: bool
    closed: bool
    ended: bool
    holds_budget: bool
    throttled: bool
    asked: int
    queued_bytes: int
    listener_name: str
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    session: Any
    client_id: str | None
    introduction: tuple[int, bytes] | None
    traffic: tuple[int, int, int]
    def __init__(self, endpoint: Endpoint) -> None: ...
    def helped(self, sent: int = ...) -> None: ...
    def mute(self) -> None: ...
    def unmute(self) -> None: ...
    def decoded(self) -> None: ...
    def malformed(self, ctx: Any, error: ValueError) -> int: ...
