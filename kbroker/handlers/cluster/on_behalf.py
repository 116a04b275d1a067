"""Requests that a broker of a KRaft cluster makes for a client: what is left of a change of settings, and the topics
that a Metadata request names and that do not exist.

They have the client's own header and go by envelope, so that the controller authorizes the client and counts its
quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import request_message, response_message, wire

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext
    from kbroker.protocol.messages import Message

LENGTH_BYTES = 4


async def ask_for_client(ctx: RequestContext, request: Message, version: int) -> object:
    """The controller's answer.  KafkaError: see `Forwarding.forward`."""
    forwarding = ctx.services.forwarding
    assert forwarding is not None and request.api_key is not None
    frame = encode_request(request.api_key, version, ctx.correlation_id, ctx.client_id, request)[LENGTH_BYTES:]
    answered = await forwarding.forward(frame, ctx.connection.session, ctx.connection.peer_host)
    try:
        correlation_id, answer = decode_response(response_message(request.api_key), version, answered)
    except ValueError as error:
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    if correlation_id != ctx.correlation_id:
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
    return answer


async def ask_creation(ctx: RequestContext, request: wire.CreateTopicsRequest) -> wire.CreateTopicsResponse:
    """The same of topics that a client has named, in the highest version that the controller has."""
    forwarding = ctx.services.forwarding
    assert forwarding is not None
    latest = request_message(ApiKey.CREATE_TOPICS).max_version
    known = forwarding.versions.get(ApiKey.CREATE_TOPICS)
    answer = await ask_for_client(ctx, request, latest if known is None else min(latest, known[1]))
    assert isinstance(answer, wire.CreateTopicsResponse)
    return answer
