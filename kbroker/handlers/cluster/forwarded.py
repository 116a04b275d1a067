"""The APIs that a broker of a KRaft cluster passes on to the active controller, with the client's frame as it came.

A request is decoded first, so that a malformed one closes its connection here, as everywhere.  The answer goes out as
the controller has written it; its throttle time, too, is the controller's, which has counted the request.  Where there
is no answer the client gets an error in the form of its API (`forwarded_errors`), as from Kafka's brokers:
REQUEST_TIMED_OUT when no controller was active for a minute, UNKNOWN_SERVER_ERROR when the controller does not take
envelopes; a version that the controller does not know closes the connection, so that the client asks for versions
again.

Before they forward, brokers refuse tokens to clients that may not ask for them, and take their share of changes of
settings (`forwarded_configs`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.cluster import forwarded_configs
from kbroker.handlers.cluster.forwarded_errors import refusal
from kbroker.handlers.security.delegation_tokens import may_ask
from kbroker.handlers.table import Handler
from kbroker.handlers.throttle_time import THROTTLE_TIME_BYTES, throttle_at
from kbroker.protocol.api import ApiKey

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.cluster.forwarded_errors import ConfigRequest
    from kbroker.handlers.services import RequestContext
    from kbroker.handlers.table import HandlerFunction
    from kbroker.protocol.api import ApiRange
    from kbroker.protocol.messages import Message

FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
_TOKENS = frozenset({ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN})
NO_VERSIONS = (0, -1)
_LENGTH = struct.Struct(">i")


async def forward(ctx: RequestContext, request: Message) -> Struct | None:
    """Any of the APIs: the controller's answer goes out as it is; else the answer that says why there is none."""
    forwarding = ctx.services.forwarding
    assert forwarding is not None and ctx.frame is not None, "only a broker of a KRaft cluster has such rows"
    try:
        answer = await forwarding.forward(ctx.frame, ctx.connection.session, ctx.connection.peer_host)
        if len(answer) < _LENGTH.size or _LENGTH.unpack_from(answer)[0] != ctx.correlation_id:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
    except KafkaError as error:
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            ctx.connection.close("the controller does not know the version")
            return None
        return refusal(request, ctx.api_version, error)
    frame = _LENGTH.pack(len(answer)) + answer
    ctx.forward_answer(frame, throttle_time(ctx.api_key, ctx.api_version, frame))
    return None


def throttle_time(api_key: int, version: int, frame: bytes) -> int:
    """The milliseconds of an answer's frame; 0 where it has none."""
    at = throttle_at(ApiKey(api_key), version)
    if at < 0:
        at += len(frame)
    return _LENGTH.unpack_from(frame, at)[0] if 0 < at <= len(frame) - THROTTLE_TIME_BYTES else 0


def _if_allowed(own: HandlerFunction) -> HandlerFunction:
    """A handler of tokens: `own` refuses the clients that may not ask."""
    return lambda ctx, request: forward(ctx, request) if may_ask(ctx) else own(ctx, request)


async def handle_alter_configs(ctx: RequestContext, request: ConfigRequest) -> Struct | None:
    """AlterConfigs and IncrementalAlterConfigs: what is this broker's is done here; see `forwarded_configs`."""
    settled = await forwarded_configs.preprocess(ctx, request)
    if not settled:
        return await forward(ctx, request)
    return await forwarded_configs.forward_rest(ctx, request, settled)


_OWN_PART: Mapping[ApiKey, HandlerFunction] = {
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_alter_configs,
}


def forwarding(handlers: Iterable[Handler]) -> Iterable[Handler]:
    """The rows of a broker of a KRaft cluster."""
    for row in handlers:
        api_key = ApiKey(row.api_key)
        if api_key not in FORWARDED:
            yield row
            continue
        handle = _if_allowed(row.handle) if api_key in _TOKENS else _OWN_PART.get(api_key, forward)
        yield replace(row, handle=handle, keeps_frame=True, cacheable=False)


def both_serve(ranges: tuple[ApiRange, ...], controllers: Mapping[int, tuple[int, int]]) -> tuple[ApiRange, ...]:
    """Of the APIs that are forwarded, the versions that the controller has as well; all while it is not known."""
    if not controllers:
        return ranges

    def both(ours: ApiRange) -> ApiRange:
        if ours.api_key not in FORWARDED:
            return ours
        low, high = controllers.get(ours.api_key, NO_VERSIONS)
        return ours._replace(min_version=max(low, ours.min_version), max_version=min(high, ours.max_version))

    return tuple(each for each in map(both, ranges) if each.min_version <= each.max_version)
