"""The security of a kind of listener: how its connections carry bytes, and which session each begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart


class FirstSession(Protocol):
    """Who a client is, as far as the network has to know (`security.principal.Session`)."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the client may ask for more than what authentication takes."""

    @property
    def takes_tokens(self) -> bool:
        """Whether frames are tokens of its authentication, which have no request's header."""

    def take_token(self, connection: Connection, token: bytes) -> bytes | None:
        """One of those has come: its answer as a frame; None where the connection is closed instead."""


class ListenerSecurity(Protocol):
    """The security protocol of a listener.  A client has only the session that is given here; without one it gets no
    answer."""

    @property
    def authenticates(self) -> bool:
        """Whether clients have to prove who they are, so that a gatekeeper has to look at each request."""

    @property
    def first_frame_bytes(self) -> int | None:
        """The most that a frame may have before its client has authenticated; None: what all frames may have."""

    def make_socket(self, connection: Connection) -> SocketPart:
        """The part that reads and writes the bytes of a connection."""

    def first_session(self, connection: Connection) -> FirstSession | None:
        """The session that a connection begins with; None: it is served nothing."""
