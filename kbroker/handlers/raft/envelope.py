"""Envelope (API 58): v0.  A broker's client asks the controllers, by way of the broker (KIP-590).

The sender needs CLUSTER_ACTION.  The request within is served by the handlers of the same listener, with the rights and
the quotas of the principal that the envelope names, at the address that it names; its answer is the envelope's data.
Its throttle time is for the broker to obey, so the broker's connection is never muted for it.

An envelope itself is answered with PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST (an address that is none; an API
that brokers do not forward, such as an envelope), UNSUPPORTED_VERSION (what is within cannot be read, so the broker
hangs up on its client), and NOT_CONTROLLER, so that the broker looks for the active controller.  The order is that of
Kafka's `EnvelopeUtils`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING

from kbroker._fast.wire.codec import Struct
from kbroker._fast.wire.encoding import Encoding
from kbroker.cluster.kraft.forwarding import host_of, principal_of
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError, NotControllerError
from kbroker.gate.access import require_cluster
from kbroker.handlers.cluster.forwarded import FORWARDED
from kbroker.handlers.cluster.forwarded_errors import refusal
from kbroker.handlers.raft.embedded import EmbeddedConnection, EmbeddedRequest
from kbroker.handlers.table import Handler
from kbroker.network.pieces import go_on, in_pieces
from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message, response_message, wire
from kbroker.security.authorizer import Operation
from kbroker.security.principal import AuthenticationState, Session

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.gate.gate import Gatekeeper
    from kbroker.handlers.services import RequestContext
    from kbroker.protocol.frames import RequestHeader
    from kbroker.protocol.messages import Message
    from kbroker.protocol.schema import Field

logger = logging.getLogger("kbroker.handlers")

LENGTH_BYTES = 4
ITEMS = 2048
LARGE_BYTES = 65_536


class Envelopes:
    """Serves envelopes by the rows of a listener; `gatekeeper` gives embedded clients their gates."""

    def __init__(self, rows: Iterable[Handler], gatekeeper: Gatekeeper | None = None) -> None:
        self._rows: Mapping[int, Handler] = {row.api_key: row for row in rows if row.api_key in FORWARDED}
        self._gatekeeper = gatekeeper

    def row(self) -> Handler:
        """The row of the API."""
        return Handler(ApiKey.ENVELOPE, 0, 0, self.handle)

    async def handle(self, ctx: RequestContext, request: wire.EnvelopeRequest) -> wire.EnvelopeResponse:
        """Envelope v0; see the module's docstring."""
        began = time.perf_counter_ns()
        try:
            require_cluster(ctx, Operation.CLUSTER_ACTION)
            embedded, at = self._opened(ctx, request)
            data = bytes(request.request_data)
            return wire.EnvelopeResponse(response_data=await self._served(embedded, data, at, began))
        except KafkaError as error:
            return wire.EnvelopeResponse(error_code=error.code, response_data=None)

    def _opened(self, ctx: RequestContext, request: wire.EnvelopeRequest) -> tuple[EmbeddedRequest, int]:
        """The request within, and where its body begins.  KafkaError."""
        try:
            principal, by_token = principal_of(request.request_principal or b"")
        except ValueError as error:
            raise KafkaError.of(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error
        try:
            host = host_of(bytes(request.client_host_address))
        except ValueError as error:
            raise InvalidRequestError("Failed to parse client address from envelope") from error
        header = _header(bytes(request.request_data))
        if header.api_key not in FORWARDED:
            raise InvalidRequestError(f"API {header.api_key} is not enabled or is not eligible for forwarding")
        row = self._rows.get(header.api_key)
        if row is None or not row.serves(header.api_version):
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION)
        session = Session(
            principal, host, ctx.connection.listener_name, AuthenticationState.AUTHENTICATED, by_token=by_token
        )
        connection = EmbeddedConnection(ctx.connection, session)
        keeper = self._gatekeeper
        gate = None if keeper is None else keeper.gate_for(connection, header.client_id)
        return EmbeddedRequest(ctx, header, connection, gate), header.size

    async def _served(self, ctx: EmbeddedRequest, data: bytes, at: int, began: int) -> bytes:
        """The answer, with its header."""
        pace = ctx.services.slices.pace()
        row, version = self._rows[ctx.api_key], ctx.api_version
        request = await _decoded(request_message(ctx.api_key), version, data, at, pace)
        spent_ns = 0
        try:
            answer: object = row.handle(ctx, request)
            if isinstance(answer, CoroutineType):
                answer, spent_ns = await _until_answered(answer, began)
        except Exception:
            logger.exception("API %s version %s failed in an envelope", ctx.api_key, version)
            answer = refusal(request, version, KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR))
        if not isinstance(answer, Struct):
            # The handler hangs up on what Kafka calls unparseable.
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION)
        message = response_message(ctx.api_key)
        if await _has_code(answer, message.schema.fields, ErrorCode.NOT_CONTROLLER, pace):
            raise NotControllerError()
        if ctx.gate is not None:
            spent_ns = spent_ns or time.perf_counter_ns() - began
            throttle_ms, _ = ctx.gate.settle(ctx, len(data), 0, spent_ns)
            if hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
        return await _encoded(answer, message, version, ctx.correlation_id, pace)


def _header(data: bytes) -> RequestHeader:
    """KafkaError(UNSUPPORTED_VERSION) where there is none, or one of an API that Kafka does not have."""
    try:
        header = decode_request_header(data)
        ApiKey(header.api_key)
        return header
    except (ValueError, KeyError, IndexError) as error:
        raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION) from error


async def _decoded(message: type[Message], version: int, data: bytes, at: int, pace: Pace) -> Message:
    program = message.program(version)
    try:
        if len(data) - at <= LARGE_BYTES:
            plain: Message = program.decode(data, at)
            return plain
        decoding = program.decoding(data, at)
        await in_pieces(decoding, pace)
        large: Message = decoding.take()
    except ValueError as error:
        raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION) from error
    return large


async def _until_answered(coroutine: CoroutineType[object, None, object], began: int) -> tuple[object, int]:
    """What a handler answers, and the nanoseconds from `began` to its first wait, 0 where it never waits."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        return end.value, 0
    spent_ns = time.perf_counter_ns() - began
    return await go_on(coroutine, waits_for), spent_ns


async def _has_code(answer: Struct, fields: Iterable[Field], code: int, pace: Pace) -> bool:
    """Whether an answer or a row of it has an error."""
    if getattr(answer, "error_code", 0) == code:
        return True
    for field in fields:
        rows = getattr(answer, field.name) if field.fields else None
        if isinstance(rows, list):
            for row in rows:
                await pace
                if await _has_code(row, field.fields, code, pace):
                    return True
    return False


async def _encoded(answer: Struct, message: type[Message], version: int, correlation_id: int, pace: Pace) -> bytes:
    assert message.api_key is not None
    has_tags = response_header_version(message.api_key, version) >= 1
    frame = message.program(version).begin_response(answer, correlation_id, has_tags, ITEMS)
    if isinstance(frame, Encoding):
        await in_pieces(frame, pace)
        frame = frame.take()
    parts = [frame] if isinstance(frame, bytes) else [each for each in frame if isinstance(each, bytes)]
    return b"".join(parts)[LENGTH_BYTES:]
