"""How this broker reaches other brokers: the one place that says with what security."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.client_tcp import TcpTransport

if TYPE_CHECKING:
    from kbroker.cluster.client import Transport
    from kbroker.security.client.client_security import ClientSecurity
    from kbroker.security.sasl.mechanism import ClientMechanism

CLIENT_ID = "kbroker"


class Outbound:
    """Makes the transports of all clients of other brokers.

    `security()` says how, None for plain connections; it is called for each purpose, and raises ClientSecurityError.
    What security needs is imported where there is some.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, security: Callable[[], ClientSecurity | None] = lambda: None
    ) -> None:
        self._loop = loop
        self._security = security

    def transport(self, receive_buffer_bytes: int = -1) -> Transport:
        """For the clients of one purpose; `receive_buffer_bytes` -1: the system's choice.

        ClientSecurityError or TlsError where no connection could be made.
        """
        security = self._security()
        if security is None:
            return TcpTransport(self._loop, receive_buffer_bytes)
        return self._secured(security, receive_buffer_bytes)

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
