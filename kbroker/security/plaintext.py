"""A PLAINTEXT listener: its clients are ANONYMOUS, and need not authenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker._fast.net.socket_part import PlainSocket
from kbroker.security.principal import ANONYMOUS, AuthenticationState, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart


class Plaintext:
    """See `ListenerSecurity`.  `make_socket` is for connections that are not TCP's."""

    authenticates = False
    first_frame_bytes = None

    def __init__(self, make_socket: Callable[[Connection], SocketPart] = PlainSocket) -> None:
        self.make_socket = make_socket

    def first_session(self, connection: Connection) -> Session:
        """ANONYMOUS, at the client's address."""
        return Session(ANONYMOUS, connection.peer_host, connection.listener_name, AuthenticationState.AUTHENTICATED)
