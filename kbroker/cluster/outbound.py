"""How this broker reaches other brokers: the one place that says with what security."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.client_tcp import TcpTransport

if TYPE_CHECKING:
    from kbroker.cluster.client import Channel, Transport
    from kbroker.security.client.client_security import ClientSecurity
    from kbroker.security.sasl.mechanism import ClientMechanism

CLIENT_ID = "kbroker"


class Outbound:
    """Makes the transports of all clients of other brokers.

    `security()` says how, None for plain connections; it is called for each purpose, and raises ClientSecurityError.
    What security needs is imported where there is some.  Where others are not `expected`, settings by which none can be
    reached are no error until one is.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        security: Callable[[], ClientSecurity | None] = lambda: None,
        *,
        expected: bool = True,
    ) -> None:
        self._loop = loop
        self._security = security
        self._expected = expected

    def transport(self, receive_buffer_bytes: int = -1) -> Transport:
        """For the clients of one purpose; `receive_buffer_bytes` -1: the system's choice.

        ClientSecurityError or TlsError where no connection could be made.
        """
        try:
            security = self._security()
            if security is None:
                return TcpTransport(self._loop, receive_buffer_bytes)
            return self._secured(security, receive_buffer_bytes)
        except ValueError as error:
            if self._expected:
                raise
            return _NoTransport(str(error))

    def _secured(self, security: ClientSecurity, receive_buffer_bytes: int) -> Transport:
        from kbroker.cluster.authenticated import AuthenticatedTransport
        from kbroker.security.client.between_brokers import FreshContext

        context = None
        if security.encrypts:
            context = FreshContext(security)
            context()
        carrier = TcpTransport(self._loop, receive_buffer_bytes, context)
        if not security.authenticates:
            return carrier

        async def mechanism() -> ClientMechanism:
            """In a thread, since a token may have to be asked for."""
            return await self._loop.run_in_executor(None, security.client_mechanism)

        return AuthenticatedTransport(self._loop, carrier, mechanism, CLIENT_ID)


class _NoTransport:
    """Of a node whose settings reach no other broker.  `reason` says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def connect(self, *_asked: object) -> Channel:
        """See `cluster.client.Transport`: ConnectionError."""
        raise ConnectionError(self._reason)
