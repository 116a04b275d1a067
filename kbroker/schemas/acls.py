"""Access control lists and SCRAM credentials."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(29, "DescribeAcls", "0-3", "2+").of(
        F("resource_type_filter", "int8", "0+"),
        F("resource_name_filter", "string", "0+", nullable="0+"),
        F("pattern_type_filter", "int8", "1+", default=3),
        F("principal_filter", "string", "0+", nullable="0+"),
        F("host_filter", "string", "0+", nullable="0+"),
        F("operation", "int8", "0+"),
        F("permission_type", "int8", "0+"),
    ),
    response(29, "DescribeAcls", "0-3", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("resources", "[]DescribeAclsResource", "0+").of(
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
            F("pattern_type", "int8", "1+", default=3),
            F("acls", "[]AclDescription", "0+").of(
                F("principal", "string", "0+"),
                F("host", "string", "0+"),
                F("operation", "int8", "0+"),
                F("permission_type", "int8", "0+"),
            ),
        ),
    ),
    request(30, "CreateAcls", "0-3", "2+").of(
        F("creations", "[]AclCreation", "0+").of(
            F("resource_type", "int8", "0+"),
            F("resource_name", "string", "0+"),
            F("resource_pattern_type", "int8", "1+", default=3),
            F("principal", "string", "0+"),
            F("host", "string", "0+"),
            F("operation", "int8", "0+"),
            F("permission_type", "int8", "0+"),
        ),
    ),
    response(30, "CreateAcls", "0-3", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("results", "[]AclCreationResult", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
        ),
    ),
    request(31, "DeleteAcls", "0-3", "2+").of(
        F("filters", "[]DeleteAclsFilter", "0+").of(
            F("resource_type_filter", "int8", "0+"),
            F("resource_name_filter", "string", "0+", nullable="0+"),
            F("pattern_type_filter", "int8", "1+", default=3),
            F("principal_filter", "string", "0+", nullable="0+"),
            F("host_filter", "string", "0+", nullable="0+"),
            F("operation", "int8", "0+"),
            F("permission_type", "int8", "0+"),
        ),
    ),
    response(31, "DeleteAcls", "0-3", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("filter_results", "[]DeleteAclsFilterResult", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
            F("matching_acls", "[]DeleteAclsMatchingAcl", "0+").of(
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+"),
                F("resource_type", "int8", "0+"),
                F("resource_name", "string", "0+"),
                F("pattern_type", "int8", "1+", default=3),
                F("principal", "string", "0+"),
                F("host", "string", "0+"),
                F("operation", "int8", "0+"),
                F("permission_type", "int8", "0+"),
            ),
        ),
    ),
    request(50, "DescribeUserScramCredentials", "0", "0+").of(
        F("users", "[]UserName", "0+", nullable="0+").of(
            F("name", "string", "0+"),
        ),
    ),
    response(50, "DescribeUserScramCredentials", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("results", "[]DescribeUserScramCredentialsResult", "0+").of(
            F("user", "string", "0+"),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
            F("credential_infos", "[]CredentialInfo", "0+").of(
                F("mechanism", "int8", "0+"),
                F("iterations", "int32", "0+"),
            ),
        ),
    ),
    request(51, "AlterUserScramCredentials", "0", "0+").of(
        F("deletions", "[]ScramCredentialDeletion", "0+").of(
            F("name", "string", "0+"),
            F("mechanism", "int8", "0+"),
        ),
        F("upsertions", "[]ScramCredentialUpsertion", "0+").of(
            F("name", "string", "0+"),
            F("mechanism", "int8", "0+"),
            F("iterations", "int32", "0+"),
            F("salt", "bytes", "0+"),
            F("salted_password", "bytes", "0+"),
        ),
    ),
    response(51, "AlterUserScramCredentials", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("results", "[]AlterUserScramCredentialsResult", "0+").of(
            F("user", "string", "0+"),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+"),
        ),
    ),
)
