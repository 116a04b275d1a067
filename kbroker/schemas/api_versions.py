"""ApiVersions (API key 18)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(18, "ApiVersions", "0-4", "3+").of(
        F("client_software_name", "string", "3+", ignorable=True),
        F("client_software_version", "string", "3+", ignorable=True),
    ),
    response(18, "ApiVersions", "0-4", "3+").of(
        F("error_code", "int16", "0+"),
        F("api_keys", "[]ApiVersion", "0+").of(
            F("api_key", "int16", "0+"),
            F("min_version", "int16", "0+"),
            F("max_version", "int16", "0+"),
        ),
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("supported_features", "[]SupportedFeatureKey", "3+", tag=0, tagged="3+", ignorable=True).of(
            F("name", "string", "3+"),
            F("min_version", "int16", "3+"),
            F("max_version", "int16", "3+"),
        ),
        F("finalized_features_epoch", "int64", "3+", tag=1, tagged="3+", default=-1, ignorable=True),
        F("finalized_features", "[]FinalizedFeatureKey", "3+", tag=2, tagged="3+", ignorable=True).of(
            F("name", "string", "3+"),
            F("max_version_level", "int16", "3+"),
            F("min_version_level", "int16", "3+"),
        ),
        F("zk_migration_ready", "bool", "3+", tag=3, tagged="3+", ignorable=True),
    ),
)
