"""Configurations: describe, alter, list resources."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(32, "DescribeConfigs", "0-4", "4+").of(
        F("resources", "[]DescribeConfigsResource", "0+").of(
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
            F("configuration_keys", "[]string", "0+", nullable="0+"),
        ),
        F("include_synonyms", "bool", "1+"),
        F("include_documentation", "bool", "3+"),
    ),
    response(32, "DescribeConfigs", "0-4", "4+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("results", "[]DescribeConfigsResult", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
            F("configs", "[]DescribeConfigsResourceResult", "0+").of(
                F("name", "string", "0+"),
                F("value", "string", "0+", nullable="0+"),
                F("read_only", "bool", "0+"),
                F("is_default", "bool", "0"),
                F("config_source", "int8", "1+", default=-1, ignorable=True),
                F("is_sensitive", "bool", "0+"),
                F("synonyms", "[]DescribeConfigsSynonym", "1+", ignorable=True).of(
                    F("name", "string", "1+"),
                    F("value", "string", "1+", nullable="0+"),
                    F("source", "int8", "1+"),
                ),
                F("config_type", "int8", "3+", ignorable=True),
                F("documentation", "string", "3+", nullable="0+", ignorable=True),
            ),
        ),
    ),
    request(33, "AlterConfigs", "0-2", "2+").of(
        F("resources", "[]AlterConfigsResource", "0+").of(
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
            F("configs", "[]AlterableConfig", "0+").of(
                F("name", "string", "0+"),
                F("value", "string", "0+", nullable="0+"),
            ),
        ),
        F("validate_only", "bool", "0+"),
    ),
    response(33, "AlterConfigs", "0-2", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("responses", "[]AlterConfigsResourceResponse", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
        ),
    ),
    request(44, "IncrementalAlterConfigs", "0-1", "1+").of(
        F("resources", "[]AlterConfigsResource", "0+").of(
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
            F("configs", "[]AlterableConfig", "0+").of(
                F("name", "string", "0+"),
                F("config_operation", "int8", "0+"),
                F("value", "string", "0+", nullable="0+"),
            ),
        ),
        F("validate_only", "bool", "0+"),
    ),
    response(44, "IncrementalAlterConfigs", "0-1", "1+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("responses", "[]AlterConfigsResourceResponse", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
        ),
    ),
    request(74, "ListConfigResources", "0-1", "0+").of(
        F("resource_types", "[]int8", "1+"),
    ),
    response(74, "ListConfigResources", "0-1", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("config_resources", "[]ConfigResource", "0+").of(
            F("resource_name", "string", "0+"),
            F("resource_type", "int8", "1+", default=16, ignorable=True),
        ),
    ),
)
