"""Client metrics (KIP-714)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(71, "GetTelemetrySubscriptions", "0", "0+").of(
        F("client_instance_id", "uuid", "0+"),
    ),
    response(71, "GetTelemetrySubscriptions", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("client_instance_id", "uuid", "0+"),
        F("subscription_id", "int32", "0+"),
        F("accepted_compression_types", "[]int8", "0+"),
        F("push_interval_ms", "int32", "0+"),
        F("telemetry_max_bytes", "int32", "0+"),
        F("delta_temporality", "bool", "0+"),
        F("requested_metrics", "[]string", "0+"),
    ),
    request(72, "PushTelemetry", "0", "0+").of(
        F("client_instance_id", "uuid", "0+"),
        F("subscription_id", "int32", "0+"),
        F("terminating", "bool", "0+"),
        F("compression_type", "int8", "0+"),
        F("metrics", "bytes", "0+"),
    ),
    response(72, "PushTelemetry", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
    ),
)
