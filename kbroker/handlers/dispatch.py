"""The one table of served APIs: joins the handlers of each family and turns them into routes for the connections.

A request for an API or version outside the table closes its connection, as in Kafka, with one exception: ApiVersions
of an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the ranges, so that a newer client can fall
back (KIP-511).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from kbroker._fast.net.route import Route
from kbroker.handlers import api_versions
from kbroker.handlers.cluster import forwarded
from kbroker.handlers.throttle_time import throttle_at
from kbroker.network.unreached import FOR_ADDRESSES, FOR_WORK
from kbroker.protocol.api import ApiKey, request_header_version, response_header_version
from kbroker.protocol.schema import fields_of
from kbroker.schemas import message, request_schema

if TYPE_CHECKING:
    from kbroker._fast.gate.gate import Gatekeeper
    from kbroker._fast.wire.codec import Program
    from kbroker.handlers.services import RequestContext
    from kbroker.handlers.table import Handler
    from kbroker.protocol.messages import Message

FAMILIES = """
api_versions
cluster: client_quotas cluster elections features log_dirs reassignments telemetry
groups: consumer_groups groups offsets streams_groups
records: delete_records fetch log_offsets produce producers
security: acls authentication delegation_tokens scram_credentials
share: share_acknowledge share_fetch share_groups share_offsets share_state
topics: alter_configs config_resources configs metadata topics
transactions: transaction_markers transaction_reports transactional_offsets transactions
"""
"""The modules with handlers, by the room that they are in; each is imported when a kind of broker has its rows."""
# Of a broker that is no member of a ZooKeeper cluster.
OTHER_FAMILIES = "cluster: raft_voters"
# Of one that is.
MEMBER_FAMILIES = "cluster: inter_broker to_controller"
# Of a node with the controller role, at that role's listeners.
CONTROLLER_FAMILIES = """
api_versions
cluster: client_quotas cluster elections features reassignments to_controller
security: acls authentication delegation_tokens scram_credentials
topics: alter_configs configs topics
raft: controllers lives quorum
"""
FLEXIBLE_REQUEST_HEADER = 2
FLEXIBLE_RESPONSE_HEADER = 1
NO_VERSION = 0x7FFF


def broker_rows() -> tuple[Handler, ...]:
    """Of a broker that has its cluster's metadata, or follows the one that has."""
    return (*_rows(FAMILIES), *_rows(OTHER_FAMILIES))


def member_rows() -> tuple[Handler, ...]:
    """Of a broker of a ZooKeeper cluster, which serves its controller and other brokers as well."""
    return (*_rows(FAMILIES), *_rows(MEMBER_FAMILIES))


def controller_rows(
    gatekeeper: Gatekeeper | None = None, is_active: Callable[[], bool] = lambda: True
) -> tuple[Handler, ...]:
    """Of a node with the controller role, for other voters, brokers, and clients by envelope, whose gates are
    `gatekeeper`'s.  `is_active`: whether the node's controller decides by now."""
    from kbroker.handlers.raft.controllers import served_by_controllers

    return served_by_controllers(_rows(CONTROLLER_FAMILIES), gatekeeper, is_active)


def _rows(families: str) -> Iterator[Handler]:
    for line in families.strip().split("\n"):
        room, _, names = line.rpartition(": ")
        for name in names.split():
            path = f"{room}.{name}" if room else name
            handlers: tuple[Handler, ...] = import_module(f"kbroker.handlers.{path}").HANDLERS
            yield from handlers


def forwarding_rows() -> tuple[Handler, ...]:
    """Of a broker of a KRaft cluster, whose controllers serve some of the requests."""
    return tuple(forwarded.forwarding(broker_rows()))


def routes(handlers: Iterable[Handler]) -> list[Route]:
    """A route for each handler; codec programs are compiled when a version is first asked for."""
    return [_route(handler) for handler in handlers]


# What their answers have is counted in bytes.
_WITH_RECORDS = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
_FOR_ADDRESSES = frozenset({ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER})
_FOR_NEITHER = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)
"""What clients also ask before they know where to go."""


def _asks(api_key: ApiKey) -> int:
    if api_key in _FOR_ADDRESSES:
        return FOR_ADDRESSES
    return 0 if api_key in _FOR_NEITHER else FOR_WORK


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
        handler.cacheable,
        handler.direct,
        partial(throttle_at, api_key),
        partial(_limits_at, api_key) if api_key in _WITH_RECORDS else None,
        _asks(api_key),
        handler.keeps_frame,
    )


@cache
def _limits_at(api_key: ApiKey, version: int) -> int:
    """The position of a Fetch's min_bytes, with max_bytes behind it; see `Route`.  A ShareFetch has strings before
    them, so its handler asks the gate."""
    if api_key is not ApiKey.FETCH:
        return -1
    names = [field.name for field in fields_of(request_schema(api_key), version)]
    # All fields before min_bytes have 4 bytes; max_bytes follows it in the versions that have it.
    return names.index("min_bytes") * 4 if "max_bytes" in names else -1


def _program(name: str, version: int) -> Program:
    struct: type[Message] = message(name)
    return struct.program(version)


def _first(matches: Callable[[int], bool], max_version: int) -> int:
    return next((version for version in range(max_version + 1) if matches(version)), NO_VERSION)


def unsupported(ctx: RequestContext) -> bytes | None:
    """The answer to an ApiVersions request of an unknown version; None for anything else."""
    if ctx.api_key != ApiKey.API_VERSIONS:
        return None
    session = ctx.connection.session
    if session is not None and not session.may_ask(ctx.api_key):
        return None
    response = api_versions.unsupported_version_response(ctx.services)
    program = _program("ApiVersionsResponse", 0)
    frame = program.encode_response(response, ctx.correlation_id, False)
    assert isinstance(frame, bytes)
    return frame
