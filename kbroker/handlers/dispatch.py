"""The one table of served APIs: joins the handlers of each family and turns them into routes for the connections.

A request for an API or version outside the table closes its connection, as in Kafka, with one exception: ApiVersions
of an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the ranges, so that a newer client can fall
back (KIP-511).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker._fast.net.route import Route
from kbroker.handlers import (
    alter_configs,
    api_versions,
    cluster,
    config_resources,
    configs,
    delete_records,
    elections,
    features,
    fetch,
    groups,
    log_dirs,
    log_offsets,
    metadata,
    offsets,
    produce,
    producer_ids,
    producers,
    reassignments,
    topics,
    transaction_markers,
)
from kbroker.handlers.table import narrowed
from kbroker.protocol.api import ApiKey, request_header_version, response_header_version
from kbroker.schemas import message

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext
    from kbroker.handlers.table import Handler

FAMILIES = (
    alter_configs,
    api_versions,
    cluster,
    config_resources,
    configs,
    delete_records,
    elections,
    features,
    fetch,
    groups,
    log_dirs,
    log_offsets,
    metadata,
    offsets,
    produce,
    producer_ids,
    producers,
    reassignments,
    topics,
    transaction_markers,
)
FLEXIBLE_REQUEST_HEADER = 2
FLEXIBLE_RESPONSE_HEADER = 1
NEVER = 0x7FFF


def served(ranges: Iterable[str] = ()) -> tuple[Handler, ...]:
    """Every handler of this broker, in the versions that `kbroker.api.versions` leaves.  Raises as `narrowed` does."""
    return narrowed((handler for family in FAMILIES for handler in family.HANDLERS), ranges)


def routes(handlers: Iterable[Handler]) -> list[Route]:
    """A route for each handler; codec programs are compiled when a version is first asked for."""
    return [_route(handler) for handler in handlers]


def _route(handler: Handler) -> Route:
    api_key = ApiKey(handler.api_key)
    return Route(
        int(api_key),
        handler.min_version,
        handler.max_version,
        handler.handle,
        partial(_program, f"{api_key.message_name}Request"),
        partial(_program, f"{api_key.message_name}Response"),
        _first(
            lambda version: request_header_version(api_key, version) >= FLEXIBLE_REQUEST_HEADER, handler.max_version
        ),
        _first(
            lambda version: response_header_version(api_key, version) >= FLEXIBLE_RESPONSE_HEADER, handler.max_version
        ),
        handler.lasting,
        handler.direct,
    )


def _program(name: str, version: int) -> Any:
    struct: Any = message(name)
    return struct.program(version)


def _first(matches: Callable[[int], bool], max_version: int) -> int:
    return next((version for version in range(max_version + 1) if matches(version)), NEVER)


def unsupported(ctx: RequestContext) -> bytes | None:
    """The answer to an ApiVersions request of an unknown version; None for anything else."""
    if ctx.api_key != ApiKey.API_VERSIONS:
        return None
    response = api_versions.unsupported_version_response(ctx.services)
    program = _program("ApiVersionsResponse", 0)
    frame: bytes = program.encode_response(response, ctx.correlation_id, False)
    return frame
