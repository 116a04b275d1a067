"""The cluster: describe, features, unregister a broker."""

from __future__ import annotations

from kbroker.protocol.schema import INT32_MIN, F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(60, "DescribeCluster", "0-2", "0+").of(
        F("include_cluster_authorized_operations", "bool", "0+"),
        F("endpoint_type", "int8", "1+", default=1),
        F("include_fenced_brokers", "bool", "2+"),
    ),
    response(60, "DescribeCluster", "0-2", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("endpoint_type", "int8", "1+", default=1),
        F("cluster_id", "string", "0+"),
        F("controller_id", "int32", "0+", default=-1),
        F("brokers", "[]DescribeClusterBroker", "0+").of(
            F("broker_id", "int32", "0+"),
            F("host", "string", "0+"),
            F("port", "int32", "0+"),
            F("rack", "string", "0+", nullable="0+", default=None),
            F("is_fenced", "bool", "2+"),
        ),
        F("cluster_authorized_operations", "int32", "0+", default=INT32_MIN),
    ),
    request(57, "UpdateFeatures", "0-2", "0+").of(
        F("timeout_ms", "int32", "0+", default=60000),
        F("feature_updates", "[]FeatureUpdateKey", "0+").of(
            F("feature", "string", "0+"),
            F("max_version_level", "int16", "0+"),
            F("allow_downgrade", "bool", "0"),
            F("upgrade_type", "int8", "1+", default=1),
        ),
        F("validate_only", "bool", "1+"),
    ),
    response(57, "UpdateFeatures", "0-2", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("results", "[]UpdatableFeatureResult", "0-1", ignorable=True).of(
            F("feature", "string", "0+"),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
        ),
    ),
    request(64, "UnregisterBroker", "0", "0+").of(
        F("broker_id", "int32", "0+"),
    ),
    response(64, "UnregisterBroker", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
    ),
)
