"""Answers to requests that were to be forwarded and have no answer of the controller: one error for all that they name,
where Kafka's `getErrorResponse` of each API puts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from kbroker.errors import ErrorCode
from kbroker.schemas import response_message, schema, wire
from kbroker.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.errors import KafkaError
    from kbroker.protocol.messages import Message

    ConfigRequest = wire.AlterConfigsRequest | wire.IncrementalAlterConfigsRequest
    ConfigResource = (
        wire.AlterConfigsRequest.AlterConfigsResource | wire.IncrementalAlterConfigsRequest.AlterConfigsResource
    )
    ConfigRow = (
        wire.AlterConfigsResponse.AlterConfigsResourceResponse
        | wire.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    )


REQUESTER_FROM = schema("CreateDelegationTokenResponse").first_version("token_requester_principal_name")
# Kafka's words for these codes.  Only AlterClientQuotas answers carry these texts.
WORDS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
}
CODE_OF_ELECTIONS_FROM = schema("ElectLeadersResponse").first_version("error_code")


def refusal(request: Message, version: int, error: KafkaError) -> Struct:
    """The answer to `request` that says `error` of the whole of it."""
    answer = _refusal(request, error)
    if isinstance(answer, wire.CreateDelegationTokenResponse) and version >= REQUESTER_FROM:
        answer.token_requester_principal_type = answer.principal_type
        answer.token_requester_principal_name = answer.principal_name
    if isinstance(answer, wire.ElectLeadersResponse) and version >= CODE_OF_ELECTIONS_FROM:
        answer.error_code = error.code
    return answer


def _refusal(request: Message, error: KafkaError) -> Struct:
    match request:
        case wire.CreateTopicsRequest():
            return _create_topics(request, error)
        case wire.DeleteTopicsRequest():
            return _delete_topics(request, error)
        case wire.CreatePartitionsRequest():
            return _create_partitions(request, error)
        case wire.AlterConfigsRequest() | wire.IncrementalAlterConfigsRequest():
            return altered(request, [config_row(request, each, error) for each in _resources(request)], 0)
        case wire.AlterClientQuotasRequest():
            return _alter_client_quotas(request, error)
        case wire.AlterUserScramCredentialsRequest():
            return _alter_scram(request, error)
        case wire.CreateAclsRequest():
            return _create_acls(request, error)
        case wire.DeleteAclsRequest():
            return _delete_acls(request, error)
        case wire.ElectLeadersRequest():
            return _elect_leaders(request, error)
        case wire.AlterPartitionReassignmentsRequest():
            return _alter_reassignments(request, error)
        case wire.CreateDelegationTokenRequest():
            return _create_token(request, error)
    return _on_top(request, error)


class _Coded(Protocol):
    error_code: int


def _on_top(request: Message, error: KafkaError) -> Struct:
    """One code for the request, with a message where the API has one."""
    assert request.api_key is not None
    answer: Struct = response_message(request.api_key)()
    cast("_Coded", answer).error_code = error.code
    if hasattr(answer, "error_message"):
        answer.error_message = error.message
    return answer


def _create_token(_request: wire.CreateDelegationTokenRequest, error: KafkaError) -> Struct:
    anonymous, never = ANONYMOUS, -1
    return wire.CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=anonymous.kind,
        principal_name=anonymous.name,
        issue_timestamp_ms=never,
        expiry_timestamp_ms=never,
        max_timestamp_ms=never,
        hmac=b"",
    )


def _create_topics(request: wire.CreateTopicsRequest, error: KafkaError) -> Struct:
    response = wire.CreateTopicsResponse
    return response(
        topics=[
            response.CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def _delete_topics(request: wire.DeleteTopicsRequest, error: KafkaError) -> Struct:
    response = wire.DeleteTopicsResponse
    row = response.DeletableTopicResult
    rows = [row(name=each.name, topic_id=each.topic_id, error_code=error.code) for each in request.topics]
    rows += [row(name=name, error_code=error.code) for name in request.topic_names]
    return response(responses=rows)


def _create_partitions(request: wire.CreatePartitionsRequest, error: KafkaError) -> Struct:
    response = wire.CreatePartitionsResponse
    return response(
        results=[
            response.CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def _resources(request: ConfigRequest) -> Sequence[ConfigResource]:
    return request.resources


def config_row(request: ConfigRequest, resource: ConfigResource, error: KafkaError | None) -> ConfigRow:
    """The answer's row of a resource; None: it is changed."""
    row: type[ConfigRow] = wire.AlterConfigsResponse.AlterConfigsResourceResponse
    if isinstance(request, wire.IncrementalAlterConfigsRequest):
        row = wire.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return row(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def altered(request: ConfigRequest, rows: Sequence[ConfigRow], throttle_ms: int) -> Struct:
    """The answer to a change of settings; its rows are of the request's API."""
    if isinstance(request, wire.IncrementalAlterConfigsRequest):
        incremental = wire.IncrementalAlterConfigsResponse
        of_it = cast("list[wire.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]", rows)
        return incremental(throttle_time_ms=throttle_ms, responses=of_it)
    plain = cast("list[wire.AlterConfigsResponse.AlterConfigsResourceResponse]", rows)
    return wire.AlterConfigsResponse(throttle_time_ms=throttle_ms, responses=plain)


def _alter_client_quotas(request: wire.AlterClientQuotasRequest, error: KafkaError) -> Struct:
    response = wire.AlterClientQuotasResponse
    return response(
        entries=[
            response.EntryData(
                error_code=error.code,
                error_message=WORDS.get(error.code, error.message),
                entity=[
                    response.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alter_scram(request: wire.AlterUserScramCredentialsRequest, error: KafkaError) -> Struct:
    response = wire.AlterUserScramCredentialsResponse
    users = sorted({each.name for each in request.deletions} | {each.name for each in request.upsertions})
    return response(
        results=[
            response.AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
            for user in users
        ]
    )


def _create_acls(request: wire.CreateAclsRequest, error: KafkaError) -> Struct:
    row = wire.CreateAclsResponse.AclCreationResult
    return wire.CreateAclsResponse(
        results=[row(error_code=error.code, error_message=error.message) for _ in request.creations]
    )


def _delete_acls(request: wire.DeleteAclsRequest, error: KafkaError) -> Struct:
    row = wire.DeleteAclsResponse.DeleteAclsFilterResult
    return wire.DeleteAclsResponse(
        filter_results=[row(error_code=error.code, error_message=error.message) for _ in request.filters]
    )


def _elect_leaders(request: wire.ElectLeadersRequest, error: KafkaError) -> Struct:
    response = wire.ElectLeadersResponse
    return response(
        replica_election_results=[
            response.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    response.PartitionResult(partition_id=each, error_code=error.code, error_message=error.message)
                    for each in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_reassignments(request: wire.AlterPartitionReassignmentsRequest, error: KafkaError) -> Struct:
    response = wire.AlterPartitionReassignmentsResponse
    row = response.ReassignablePartitionResponse
    return response(
        error_code=error.code,
        error_message=error.message,
        responses=[
            response.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    row(partition_index=each.partition_index, error_code=error.code, error_message=error.message)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
