"""SASL and delegation tokens."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, data, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(17, "SaslHandshake", "0-1", "none").of(
        F("mechanism", "string", "0+"),
    ),
    response(17, "SaslHandshake", "0-1", "none").of(
        F("error_code", "int16", "0+"),
        F("mechanisms", "[]string", "0+"),
    ),
    request(36, "SaslAuthenticate", "0-2", "2+").of(
        F("auth_bytes", "bytes", "0+"),
    ),
    response(36, "SaslAuthenticate", "0-2", "2+").of(
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("auth_bytes", "bytes", "0+"),
        F("session_lifetime_ms", "int64", "1+", ignorable=True),
    ),
    request(38, "CreateDelegationToken", "0-3", "2+").of(
        F("owner_principal_type", "string", "3+", nullable="3+"),
        F("owner_principal_name", "string", "3+", nullable="3+"),
        F("renewers", "[]CreatableRenewers", "0+").of(
            F("principal_type", "string", "0+"),
            F("principal_name", "string", "0+"),
        ),
        F("max_lifetime_ms", "int64", "0+"),
    ),
    response(38, "CreateDelegationToken", "0-3", "2+").of(
        F("error_code", "int16", "0+"),
        F("principal_type", "string", "0+"),
        F("principal_name", "string", "0+"),
        F("token_requester_principal_type", "string", "3+"),
        F("token_requester_principal_name", "string", "3+"),
        F("issue_timestamp_ms", "int64", "0+"),
        F("expiry_timestamp_ms", "int64", "0+"),
        F("max_timestamp_ms", "int64", "0+"),
        F("token_id", "string", "0+"),
        F("hmac", "bytes", "0+"),
        F("throttle_time_ms", "int32", "0+"),
    ),
    request(39, "RenewDelegationToken", "0-2", "2+").of(
        F("hmac", "bytes", "0+"),
        F("renew_period_ms", "int64", "0+"),
    ),
    response(39, "RenewDelegationToken", "0-2", "2+").of(
        F("error_code", "int16", "0+"),
        F("expiry_timestamp_ms", "int64", "0+"),
        F("throttle_time_ms", "int32", "0+"),
    ),
    request(40, "ExpireDelegationToken", "0-2", "2+").of(
        F("hmac", "bytes", "0+"),
        F("expiry_time_period_ms", "int64", "0+"),
    ),
    response(40, "ExpireDelegationToken", "0-2", "2+").of(
        F("error_code", "int16", "0+"),
        F("expiry_timestamp_ms", "int64", "0+"),
        F("throttle_time_ms", "int32", "0+"),
    ),
    request(41, "DescribeDelegationToken", "0-3", "2+").of(
        F("owners", "[]DescribeDelegationTokenOwner", "0+", nullable="0+").of(
            F("principal_type", "string", "0+"),
            F("principal_name", "string", "0+"),
        ),
    ),
    response(41, "DescribeDelegationToken", "0-3", "2+").of(
        F("error_code", "int16", "0+"),
        F("tokens", "[]DescribedDelegationToken", "0+").of(
            F("principal_type", "string", "0+"),
            F("principal_name", "string", "0+"),
            F("token_requester_principal_type", "string", "3+"),
            F("token_requester_principal_name", "string", "3+"),
            F("issue_timestamp", "int64", "0+"),
            F("expiry_timestamp", "int64", "0+"),
            F("max_timestamp", "int64", "0+"),
            F("token_id", "string", "0+"),
            F("hmac", "bytes", "0+"),
            F("renewers", "[]DescribedDelegationTokenRenewer", "0+").of(
                F("principal_type", "string", "0+"),
                F("principal_name", "string", "0+"),
            ),
        ),
        F("throttle_time_ms", "int32", "0+"),
    ),
    data("DefaultPrincipalData", "0", "0+").of(
        F("type", "string", "0+"),
        F("name", "string", "0+"),
        F("token_authenticated", "bool", "0+"),
    ),
)
