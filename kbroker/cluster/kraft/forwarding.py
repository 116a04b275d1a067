"""Passes requests of clients on to the active controller of a quorum, as they came (KIP-590).

    forwarding = Forwarding(ControllerClient(loop, transport, finder, settings))
    answer = await forwarding.forward(frame, session, address)

An Envelope carries the client's frame, its principal and its address; the controller authorizes the client, counts its
quotas, and answers with a frame for the client.
"""

from __future__ import annotations

import ipaddress
import logging
import struct
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.schemas import wire
from kbroker.security.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.cluster.controller_client import ControllerClient
    from kbroker.security.principal import Session

logger = logging.getLogger("kbroker.cluster")

ENVELOPE_VERSION = 0
PRINCIPAL_VERSION = 0
_VERSION = struct.Struct(">h")


class Forwarding:
    """See the module."""

    def __init__(self, client: ControllerClient) -> None:
        self._client = client

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """See `ControllerClient.versions`."""
        return self._client.versions

    async def forward(self, frame: bytes, session: Session, client_address: str) -> bytes:
        """The answer to a client's request, both without their lengths and with their headers.

        KafkaError: UNSUPPORTED_VERSION where the controller does not know the request's version, so that the client's
        connection has to be closed; else what the client is to be answered with.
        """
        envelope = wire.EnvelopeRequest(
            request_data=frame,
            request_principal=principal_data(session),
            client_host_address=address_bytes(client_address),
        )
        answer = await self._client.ask(envelope, ENVELOPE_VERSION)
        assert isinstance(answer, wire.EnvelopeResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION)
        if answer.error_code or answer.response_data is None:
            # Brokers and controllers do not fit together, which is nothing to tell a client.
            logger.error("a request was not taken by the controller: %s", KafkaError.of(ErrorCode(answer.error_code)))
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
        return bytes(answer.response_data)


def principal_data(session: Session) -> bytes:
    """Who the client is, as Kafka's DefaultKafkaPrincipalBuilder writes it: a version and DefaultPrincipalData."""
    principal = session.principal
    data = wire.DefaultPrincipalData(type=principal.kind, name=principal.name, token_authenticated=session.by_token)
    return _VERSION.pack(PRINCIPAL_VERSION) + bytes(wire.DefaultPrincipalData.program(PRINCIPAL_VERSION).encode(data))


def address_bytes(host: str) -> bytes:
    """An address as Java's InetAddress has it: an IPv4 client of a dual-stack socket has 4 bytes.

    A peer without an address, as behind a Unix socket, is this machine.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ipaddress.IPv4Address("127.0.0.1").packed
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed


def principal_of(data: bytes) -> tuple[Principal, bool]:
    """The client that `principal_data` has written, and whether it has shown a token.  ValueError for what is no such
    data."""
    if len(data) < _VERSION.size:
        raise ValueError(f"a principal of {len(data)} bytes has no version")
    (version,) = _VERSION.unpack_from(data)
    if version != PRINCIPAL_VERSION:
        raise ValueError(f"Invalid principal data version {version}")
    found: wire.DefaultPrincipalData = wire.DefaultPrincipalData.program(version).decode(data, _VERSION.size)
    return Principal(found.type, found.name), found.token_authenticated


def host_of(data: bytes) -> str:
    """The address that `address_bytes` has written; one of IPv4 within IPv6 is IPv4's, as in Java.  ValueError."""
    address = ipaddress.ip_address(data)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
