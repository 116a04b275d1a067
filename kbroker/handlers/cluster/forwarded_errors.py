"""Answers to requests that were to be forwarded and have no answer of the controller: one error for all that they name,
where Kafka's `getErrorResponse` of each API puts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.api import ApiKey
from kbroker.schemas import response_message, schema, wire
from kbroker.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.protocol.messages import Message
    from kbroker.protocol.schema import Field

    ConfigRequest = wire.AlterConfigsRequest | wire.IncrementalAlterConfigsRequest
    ConfigResource = (
        wire.AlterConfigsRequest.AlterConfigsResource | wire.IncrementalAlterConfigsRequest.AlterConfigsResource
    )
    ConfigRow = (
        wire.AlterConfigsResponse.AlterConfigsResourceResponse
        | wire.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    )


REQUESTER_FROM = schema("CreateDelegationTokenResponse").first_version("token_requester_principal_name")
# Kafka's words for these codes.  Only answers to these APIs carry these texts.
_IN_WORDS = frozenset({ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.CONTROLLER_REGISTRATION})
WORDS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
}
CODE_OF_ELECTIONS_FROM = schema("ElectLeadersResponse").first_version("error_code")


class Rows(NamedTuple):
    """Rows of a request, those that its answer has for them, and the fields by which both are known; `inner`: the rows
    within them.  What is asked for by a number alone has that in the field."""

    asked: str
    answered: str
    fields: tuple[str, ...] = ()
    inner: Rows | None = None


_RESOURCES = Rows("resources", "responses", ("resource_type", "resource_name"))
_ENTITIES = Rows("entity", "entity", ("entity_type", "entity_name"))
_ELECTIONS = Rows("partitions", "partition_result", ("partition_id",))
_REASSIGNMENTS = Rows("partitions", "partitions", ("partition_index",))
ROWS = {
    ApiKey.CREATE_TOPICS: Rows("topics", "topics", ("name",)),
    ApiKey.CREATE_PARTITIONS: Rows("topics", "results", ("name",)),
    ApiKey.CREATE_ACLS: Rows("creations", "results"),
    ApiKey.DELETE_ACLS: Rows("filters", "filter_results"),
    ApiKey.ALTER_CONFIGS: _RESOURCES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _RESOURCES,
    ApiKey.ALTER_CLIENT_QUOTAS: Rows("entries", "entries", inner=_ENTITIES),
    ApiKey.ELECT_LEADERS: Rows("topic_partitions", "replica_election_results", ("topic",), _ELECTIONS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Rows("topics", "responses", ("name",), _REASSIGNMENTS),
}


def refusal(request: Message, version: int, error: KafkaError) -> Struct:
    """The answer to `request` that says `error` of the whole of it: where the answer has a place for that, and in all
    rows that have one."""
    assert request.api_key is not None
    api_key = ApiKey(request.api_key)
    answer: Message = response_message(api_key)()
    if api_key in _IN_WORDS:
        error = KafkaError.of(error.code, WORDS.get(error.code, error.message))
    _put(answer, error)
    match request:
        case wire.DeleteTopicsRequest():
            row = wire.DeleteTopicsResponse.DeletableTopicResult
            rows = [row(name=each.name, topic_id=each.topic_id, error_code=error.code) for each in request.topics]
            rows += [row(name=name, error_code=error.code) for name in request.topic_names]
            return wire.DeleteTopicsResponse(responses=rows)
        case wire.AlterUserScramCredentialsRequest():
            return _scram(request, error)
        case wire.CreateDelegationTokenRequest():
            return _token(version, error)
    if isinstance(answer, wire.ElectLeadersResponse) and version < CODE_OF_ELECTIONS_FROM:
        answer.error_code = 0
    if api_key in ROWS:
        _add_rows(answer, answer.schema.fields, answer.structs, ROWS[api_key], request, error)
    return answer


def _put(row: Struct, error: KafkaError) -> None:
    for name, value in (("error_code", error.code), ("error_message", error.message)):
        if hasattr(row, name):
            setattr(row, name, value)


def _add_rows(
    made: Struct,
    fields: Iterable[Field],
    structs: Mapping[str, type[Struct]],
    rows: Rows,
    asked: Struct,
    error: KafkaError,
) -> None:
    """Gives `made`, which has these fields, the rows that answer those of `asked`."""
    field = next(each for each in fields if each.name == rows.answered)
    answers = []
    for each in getattr(asked, rows.asked) or ():
        names = {name: each if isinstance(each, int) else getattr(each, name) for name in rows.fields}
        row = structs[field.item_type](**names)
        _put(row, error)
        if rows.inner is not None:
            _add_rows(row, field.fields, structs, rows.inner, each, error)
        answers.append(row)
    setattr(made, rows.answered, answers)


def _token(version: int, error: KafkaError) -> Struct:
    anonymous, never = ANONYMOUS, -1
    answer = wire.CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=anonymous.kind,
        principal_name=anonymous.name,
        issue_timestamp_ms=never,
        expiry_timestamp_ms=never,
        max_timestamp_ms=never,
        hmac=b"",
    )
    if version >= REQUESTER_FROM:
        answer.token_requester_principal_type = anonymous.kind
        answer.token_requester_principal_name = anonymous.name
    return answer


def _scram(request: wire.AlterUserScramCredentialsRequest, error: KafkaError) -> Struct:
    row = wire.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    users = sorted({each.name for each in request.deletions} | {each.name for each in request.upsertions})
    return wire.AlterUserScramCredentialsResponse(
        results=[row(user=user, error_code=error.code, error_message=error.message) for user in users]
    )


def config_row(request: ConfigRequest, resource: ConfigResource, error: KafkaError | None) -> ConfigRow:
    """The answer's row of a resource; None: it is changed."""
    assert request.api_key is not None
    row: ConfigRow = response_message(request.api_key).AlterConfigsResourceResponse(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    if error is not None:
        _put(row, error)
    return row


def altered(request: ConfigRequest, rows: Sequence[ConfigRow], throttle_ms: int) -> Struct:
    """The answer to a change of settings; its rows are of the request's API."""
    assert request.api_key is not None
    answer: Struct = response_message(request.api_key)(throttle_time_ms=throttle_ms, responses=list(rows))
    return answer
