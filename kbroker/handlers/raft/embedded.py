"""A request within an envelope, and the client who sent it, as handlers see them: `services.RequestContext` and
`services.ClientConnection`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker._fast.gate.gate import Gate
    from kbroker._fast.net.answer_memo import AnswerRenewal
    from kbroker.handlers.services import ClientConnection, RequestContext, Services
    from kbroker.protocol.frames import RequestHeader
    from kbroker.security.principal import Session


class EmbeddedConnection:
    """Where an embedded request comes from: its client's address and principal, by the listener of `carrier`."""

    introduction: tuple[int, bytes] | None = None
    peer_port = 0

    def __init__(self, carrier: ClientConnection, session: Session) -> None:
        self._carrier = carrier
        self._hung_up = False
        self.session = session
        self.peer_host = session.host
        self.local_host = carrier.local_host
        self.local_port = carrier.local_port
        self.listener_name = carrier.listener_name

    @property
    def closed(self) -> bool:
        """Whether there is nothing to answer: the client was to be hung up on, or the broker is gone."""
        return self._hung_up or self._carrier.closed

    def close(self, reason: str) -> None:
        """The client is to be hung up on; the broker stays connected."""
        self._hung_up = True


class EmbeddedRequest:
    """An embedded request under way; `carrier` is the envelope."""

    by_follower = False
    cacheable = False
    frame: bytes | None = None
    left: Callable[[], object] | None = None
    renewal: AnswerRenewal | None = None

    def __init__(
        self, carrier: RequestContext, header: RequestHeader, connection: EmbeddedConnection, gate: Gate | None
    ) -> None:
        self._carrier = carrier
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.connection = connection
        self.gate = gate

    @property
    def services(self) -> Services:
        """The node's parts."""
        return self._carrier.services

    @property
    def open(self) -> bool:
        """Whether the answer would still reach the broker."""
        return self._carrier.open

    def note_error(self, code: int) -> None:
        """A part of its answer has an error."""
        self._carrier.note_error(code)

    def forward_answer(self, frame: bytes, throttle_ms: int) -> None:
        """A controller passes nothing on."""
        raise NotImplementedError
