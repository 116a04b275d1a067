"""How this broker reaches other brokers: the one place that says with what security."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.client_tcp import TcpTransport

if TYPE_CHECKING:
    import asyncio

    from kbroker.cluster.client import Transport


class Outbound:
    """Makes the transports of all clients of other brokers.  The protocol between brokers is PLAINTEXT, as yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def transport(self, receive_buffer_bytes: int = -1) -> Transport:
        """For the clients of one purpose; `receive_buffer_bytes` -1: the system's choice."""
        return TcpTransport(self._loop, receive_buffer_bytes)
