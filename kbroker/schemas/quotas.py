"""Client quotas."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(48, "DescribeClientQuotas", "0-1", "1+").of(
        F("components", "[]ComponentData", "0+").of(
            F("entity_type", "string", "0+"),
            F("match_type", "int8", "0+"),
            F("match", "string", "0+", nullable="0+"),
        ),
        F("strict", "bool", "0+"),
    ),
    response(48, "DescribeClientQuotas", "0-1", "1+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("entries", "[]EntryData", "0+", nullable="0+").of(
            F("entity", "[]EntityData", "0+").of(
                F("entity_type", "string", "0+"),
                F("entity_name", "string", "0+", nullable="0+"),
            ),
            F("values", "[]ValueData", "0+").of(
                F("key", "string", "0+"),
                F("value", "float64", "0+"),
            ),
        ),
    ),
    request(49, "AlterClientQuotas", "0-1", "1+").of(
        F("entries", "[]EntryData", "0+").of(
            F("entity", "[]EntityData", "0+").of(
                F("entity_type", "string", "0+"),
                F("entity_name", "string", "0+", nullable="0+"),
            ),
            F("ops", "[]OpData", "0+").of(
                F("key", "string", "0+"),
                F("value", "float64", "0+"),
                F("remove", "bool", "0+"),
            ),
        ),
        F("validate_only", "bool", "0+"),
    ),
    response(49, "AlterClientQuotas", "0-1", "1+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("entries", "[]EntryData", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
            F("entity", "[]EntityData", "0+").of(
                F("entity_type", "string", "0+"),
                F("entity_name", "string", "0+", nullable="0+"),
            ),
        ),
    ),
)
