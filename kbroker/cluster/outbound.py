"""How this broker reaches other brokers: the one place that says with what security."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.authenticated import AuthenticatedTransport
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.security.client.between_brokers import FreshContext
from kbroker.security.client.client_security import NO_SECURITY, ClientSecurity

if TYPE_CHECKING:
    from kbroker.cluster.client import Transport
    from kbroker.security.sasl.mechanism import ClientMechanism

CLIENT_ID = "kbroker"


class Outbound:
    """Makes the transports of all clients of other brokers.

    `security()` says how, when the first transport is asked for; it raises ClientSecurityError.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, security: Callable[[], ClientSecurity] = lambda: NO_SECURITY
    ) -> None:
        self._loop = loop
        self._make_security = security
        self._security: ClientSecurity | None = None
        self._context: FreshContext | None = None

    def transport(self, receive_buffer_bytes: int = -1) -> Transport:
        """For the clients of one purpose; `receive_buffer_bytes` -1: the system's choice.

        ClientSecurityError or TlsError, at the first call, where no connection could be made.
        """
        security = self._security
        if security is None:
            security = self._security = self._make_security()
            if security.encrypts:
                self._context = FreshContext(security)
                self._context()
        plain = TcpTransport(self._loop, receive_buffer_bytes, self._context)
        if not security.authenticates:
            return plain
        return AuthenticatedTransport(self._loop, plain, self._mechanism, CLIENT_ID)

    async def _mechanism(self) -> ClientMechanism:
        """In a thread, since a token may have to be asked for."""
        assert self._security is not None
        return await self._loop.run_in_executor(None, self._security.client_mechanism)
