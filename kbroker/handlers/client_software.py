"""What software a client says that it is: name and version in its ApiVersions request (KIP-511).

The connection keeps the bytes of that request; they are decoded only on demand, for subscriptions to client metrics and
for the console.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.schemas import schema, wire

if TYPE_CHECKING:
    from kbroker.handlers.services import ClientConnection

SOFTWARE_FROM = schema("ApiVersionsRequest").first_version("client_software_name")
"""The first version of ApiVersions that says it."""


class Software(NamedTuple):
    """Name and version."""

    name: str
    version: str


def client_software(connection: ClientConnection) -> Software | None:
    """What the client of a connection says; None where it does not."""
    return None if connection.introduction is None else software_in(*connection.introduction)


@lru_cache(maxsize=256)
def software_in(version: int, body: bytes) -> Software | None:
    """What an ApiVersions request says; None where it does not."""
    if version < SOFTWARE_FROM:
        return None
    try:
        said = wire.ApiVersionsRequest.program(version).decode(body, 0)
    except DecodeError:
        return None
    return Software(said.client_software_name, said.client_software_version)
