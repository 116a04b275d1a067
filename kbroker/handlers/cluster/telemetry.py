"""GetTelemetrySubscriptions (API 71): v0.  PushTelemetry (API 72): v0.

Clients push their own metrics (KIP-714) as resources of type CLIENT_METRICS request.  A scrape of the broker's metrics
shows the last values of each client, with the client's id and instance id as labels.

- A client asks first, without an id, and gets one; then it pushes once in each interval.  Too early:
  THROTTLING_QUOTA_EXCEEDED.  By another subscription than it has: UNKNOWN_SUBSCRIPTION_ID.
- More than `telemetry.max.bytes`, compressed or not: TELEMETRY_TOO_LARGE.  What is not OTLP's: INVALID_RECORD.
- A subscription may select clients by their software: the name and version of the connection's ApiVersions request.
- A push is unpacked and read by a thread.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import InvalidRecordError, KafkaError, TelemetryTooLargeError
from kbroker.handlers.client_software import client_software
from kbroker.handlers.table import Handler
from kbroker.log_output import RateLimitedLog
from kbroker.protocol.api import ApiKey
from kbroker.records.compression import CompressionError, DecompressionLimitError, decompress
from kbroker.schemas import wire
from kbroker.telemetry.clients import COMPRESSION_TYPES, MAX_POINTS
from kbroker.telemetry.otlp import Point, read_points
from kbroker.telemetry.subscription import UNKNOWN, ClientIdentity

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

logger = logging.getLogger("kbroker.telemetry")
complaints = RateLimitedLog(logger)

MAX_BYTES: Final = "telemetry.max.bytes"
# The largest ratio of an unpacked push to `telemetry.max.bytes`; the text of metrics compresses well.
EXPANSION = 16


def handle_get_telemetry_subscriptions(ctx: RequestContext, request: wire.GetTelemetrySubscriptionsRequest) -> Struct:
    """GetTelemetrySubscriptions v0; see the module's docstring."""
    response = wire.GetTelemetrySubscriptionsResponse
    services = ctx.services
    try:
        instance_id, subscription = services.telemetry.subscribe(
            bytes(request.client_instance_id), partial(_identity, ctx), ctx.connection
        )
    except KafkaError as error:
        return response(error_code=error.code)
    return response(
        client_instance_id=instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=services.config.get(MAX_BYTES),
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )


async def handle_push_telemetry(ctx: RequestContext, request: wire.PushTelemetryRequest) -> Struct:
    """PushTelemetry v0; see the module's docstring."""
    response = wire.PushTelemetryResponse
    services = ctx.services
    max_bytes = services.config.get(MAX_BYTES)
    try:
        client = services.telemetry.admit(
            bytes(request.client_instance_id),
            partial(_identity, ctx),
            ctx.connection,
            request.subscription_id,
            is_terminating=request.terminating,
            compression_type=request.compression_type,
            size_bytes=len(request.metrics),
            max_bytes=max_bytes,
        )
        packed = bytes(request.metrics)
        loop = services.loop
        read = partial(_read, request.compression_type, packed, EXPANSION * max_bytes)
        points = read() if loop is None else await loop.run_in_executor(None, read)
    except KafkaError as error:
        complaints.warning(
            (ctx.client_id, error.code), "the metrics that client %s pushed are refused: %s", ctx.client_id, error
        )
        return response(error_code=error.code)
    services.telemetry.store(client, points)
    return response()


def _read(compression_type: int, packed: bytes, limit_bytes: int) -> list[Point]:
    try:
        data = decompress(compression_type, packed, limit_bytes) if compression_type else packed
    except DecompressionLimitError as error:
        raise TelemetryTooLargeError(str(error)) from None
    except CompressionError as error:
        raise InvalidRecordError(str(error)) from None
    return read_points(data, MAX_POINTS)


def _identity(ctx: RequestContext, instance_id: str) -> ClientIdentity:
    address, port = ctx.connection.peer_host, ctx.connection.peer_port
    name, version = client_software(ctx.connection) or (UNKNOWN, UNKNOWN)
    return ClientIdentity(instance_id, ctx.client_id or "", name, version, address, port)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, handle_get_telemetry_subscriptions),
    Handler(ApiKey.PUSH_TELEMETRY, 0, 0, handle_push_telemetry),
)
