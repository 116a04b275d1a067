"""The headers of requests and answers."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, data

MESSAGES: tuple[MessageSchema, ...] = (
    data("RequestHeader", "0-2", "2+").of(
        F("request_api_key", "int16", "0+"),
        F("request_api_version", "int16", "0+"),
        F("correlation_id", "int32", "0+"),
        F("client_id", "string", "1+", nullable="1+", flexible="none"),
    ),
    data("ResponseHeader", "0-1", "1+").of(
        F("correlation_id", "int32", "0+"),
    ),
)
