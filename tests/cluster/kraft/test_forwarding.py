"""Requests that a broker of a KRaft cluster passes on: frames of Apache Kafka, and a controller that the test plays.

Also of `kbroker.cluster.controller_client`, `kbroker.handlers.cluster.forwarded_errors`,
`kbroker.handlers.throttle_time`.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kbroker.cluster.authenticated import LoginFailedError
from kbroker.cluster.controller_client import ControllerClient
from kbroker.cluster.kraft.forwarding import address_bytes
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import api_versions, dispatch
from kbroker.handlers.cluster.forwarded import FORWARDED, throttle_time
from kbroker.handlers.cluster.forwarded_errors import refusal
from kbroker.handlers.cluster.forwarding_view import ForwardingView
from kbroker.metadata.features import KRAFT_FEATURES, Features
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey, request_header_version
from kbroker.protocol.frames import decode_request_header, decode_response, encode_request
from kbroker.schemas import request_message, response_message, wire
from kbroker.security.principal import AuthenticationState, Session
from tests.cluster.kraft.frames import captured, read, whole
from tests.cluster.kraft.stand_in import (
    ALICE,
    NODE_ID,
    Controller,
    ForwardingBroker,
    FoundController,
    Known,
    answered,
    client_of,
    forwarding,
    refused,
)

Scenario = Callable[[ForwardingBroker, Controller], Awaitable[None]]


def run(folder: Path, serve: Callable[[Any], Any], scenario: Scenario, kind: Known | None = None) -> None:
    async def main() -> None:
        async with forwarding(folder, serve, kind) as (served, controller):
            await scenario(served, controller)

    uvloop.run(main())


def body_of(frame: bytes) -> bytes:
    return frame[decode_request_header(frame).size :]


def envelope(name: str) -> tuple[bytes, Any]:
    """A captured envelope: its body, and as a struct."""
    body = body_of(captured(name))
    return body, wire.EnvelopeRequest.program(0).decode(body)


def inner_answer(name: str) -> bytes:
    _, answer = decode_response(wire.EnvelopeResponse, 0, captured(name, "answer"))
    assert isinstance(answer, wire.EnvelopeResponse) and answer.response_data is not None
    return bytes(answer.response_data)


@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("27-Envelope-0-create-topics", None),
        ("28-Envelope-0-acls", None),
        ("29-Envelope-0-token-user", ALICE),
        ("30-Envelope-0-quorum", None),
    ],
)
def test_a_forwarded_request_is_kafkas_byte_for_byte(name: str, session: Any, tmp_path: Path) -> None:
    """A controller could not read it, or would take the client for another one; the client would get another answer."""
    body, expected = envelope(name)
    answer = inner_answer(name)

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        assert await served.ask(bytes(expected.request_data)) == answer
        assert controller.bodies == [body]
        assert controller.client_ids == {str(NODE_ID)}

    run(tmp_path, lambda _: answered(answer), scenario, None if session is None else Known(session))


def test_a_large_request_is_forwarded_whole(tmp_path: Path) -> None:
    """A request that is decoded in pieces would lose its frame meanwhile."""
    row = wire.CreateTopicsRequest.CreatableTopic
    topics = [row(name=f"t{number:06d}", num_partitions=1, replication_factor=1) for number in range(8_000)]
    frame = encode_request(ApiKey.CREATE_TOPICS, 7, 5, "c", wire.CreateTopicsRequest(topics=topics))[4:]
    assert len(frame) > 128 << 10

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        assert await served.ask(frame) == struct.pack(">i", 5) + bytes(200_000)
        assert bytes(controller.asked[0].request_data) == frame

    run(tmp_path, lambda _: answered(struct.pack(">i", 5) + bytes(200_000)), scenario)


CREATE = encode_request(
    ApiKey.CREATE_TOPICS,
    7,
    77,
    "c",
    wire.CreateTopicsRequest(
        topics=[wire.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    ),
)[4:]
CREATED = wire.CreateTopicsResponse.program(7).encode_response(
    wire.CreateTopicsResponse(topics=[wire.CreateTopicsResponse.CreatableTopicResult(name="t")]), 77, True
)[4:]


def test_answers_keep_their_order_and_the_connection_waits(tmp_path: Path) -> None:
    """A client takes answers in the order of its requests."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        versions = encode_request(ApiKey.METADATA, 9, 78, "c", wire.MetadataRequest(topics=[]))
        writer.write(whole(CREATE) + versions)
        assert (await read(reader))[:4] == struct.pack(">i", 77)
        assert (await read(reader))[:4] == struct.pack(">i", 78)
        writer.close()

    run(tmp_path, lambda _: answered(CREATED), scenario)


def test_what_the_active_controller_does_not_take_is_asked_again(tmp_path: Path) -> None:
    """Every election of a controller would fail the requests of that moment."""
    answers = [refused(ErrorCode.NOT_CONTROLLER), refused(ErrorCode.NOT_CONTROLLER), answered(CREATED)]

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        assert await served.ask(CREATE) == CREATED
        assert len(controller.asked) == 3
        assert controller.connections == 1, "the same controller may become active: no need for another connection"

    run(tmp_path, lambda _: answers.pop(0), scenario)


def test_a_new_leader_is_asked_at_once_what_the_old_one_has_not_answered() -> None:
    """Requests would wait for a controller that hangs until their time is over."""

    async def main() -> None:
        old, new = Controller(lambda _: None), Controller(lambda _: answered(CREATED))
        await old.start()
        await new.start()
        leader = Endpoint("127.0.0.1", old.port)
        finder = FoundController(lambda: leader)
        client = client_of(finder)
        asked = asyncio.ensure_future(client.ask(wire.EnvelopeRequest(request_data=b"r"), 0))
        async with asyncio.timeout(60):
            while not old.asked:
                await asyncio.sleep(0.001)
            leader = Endpoint("127.0.0.1", new.port)
            finder.changed()
            assert bytes((await asked).response_data) == CREATED
        client.close()
        await old.stop()
        await new.stop()

    uvloop.run(main())


@pytest.mark.parametrize("error", [LoginFailedError("no such user"), ssl.SSLError("no such certificate")])
def test_a_controller_that_does_not_trust_this_broker_is_not_asked_again(error: OSError) -> None:
    """A client would wait for a minute for what only other settings can mend."""

    class Distrusting:
        def __init__(self) -> None:
            self.asked = 0

        async def connect(self, *_where: object) -> Any:
            self.asked += 1
            raise error

    async def main() -> None:
        transport = Distrusting()
        client = client_of(FoundController(lambda: Endpoint("h", 1)), transport)
        with pytest.raises(KafkaError) as failed:
            await client.ask(wire.EnvelopeRequest(request_data=b"r"), 0)
        assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert transport.asked == 1
        client.close()

    uvloop.run(main())


def test_an_unknown_leader_is_waited_for_and_asked_when_it_is_known(tmp_path: Path) -> None:
    """A broker that has just started would refuse its first administrators."""

    async def main() -> None:
        controller = Controller(lambda _: answered(CREATED))
        await controller.start()
        found: list[Endpoint] = []
        finder = FoundController(lambda: found[-1] if found else None)
        client = client_of(finder)
        asked = asyncio.ensure_future(client.ask(wire.EnvelopeRequest(request_data=b"r"), 0))
        async with asyncio.timeout(60):
            while client._client._failures < 2:
                await asyncio.sleep(0.001)
            found.append(Endpoint("127.0.0.1", controller.port))
            finder.changed()
            assert bytes((await asked).response_data) == CREATED
        client.close()
        await controller.stop()

    uvloop.run(main())


def test_a_lost_connection_is_opened_again(tmp_path: Path) -> None:
    """A controller that restarts would fail what was under way."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        def hang_up(_body: Any) -> Any:
            controller.hang_up()
            controller.serve = lambda _: answered(CREATED)

        controller.serve = hang_up
        assert await served.ask(CREATE) == CREATED
        assert len(controller.asked) == 2

    run(tmp_path, lambda _: None, scenario)


def test_without_an_active_controller_the_client_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would wait for ever, or take the topic for created."""
    monkeypatch.setattr(ControllerClient.ask, "__defaults__", (0.05,))

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        answer = await served.ask(CREATE)
        assert answer is not None
        _, body = decode_response(wire.CreateTopicsResponse, 7, answer)
        assert isinstance(body, wire.CreateTopicsResponse)
        assert [(row.name, row.error_code) for row in body.topics] == [("t", ErrorCode.REQUEST_TIMED_OUT)]

    run(tmp_path, lambda _: refused(ErrorCode.NOT_CONTROLLER), scenario)


def test_requests_that_no_controller_answers_are_named_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Clients ask on and on while the controllers are away, and each request would be a line of the log."""

    async def main() -> None:
        client = client_of(FoundController(lambda: None))
        for _ in range(5):
            for request in (wire.CreateTopicsRequest(), wire.DeleteTopicsRequest()):
                with pytest.raises(KafkaError):
                    await client.ask(request, 5, 0.02)
        client.close()

    uvloop.run(main())
    named = [each.partition(" was not answered by an active controller")[0] for each in caplog.messages]
    assert named == ["CreateTopics", "DeleteTopics"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_errors_of_the_envelope_are_not_the_clients(code: ErrorCode, tmp_path: Path) -> None:
    """Kafka hides what is wrong between brokers and controllers; a client could do nothing with it."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        answer = await served.ask(CREATE)
        assert answer is not None
        _, body = decode_response(wire.CreateTopicsResponse, 7, answer)
        assert isinstance(body, wire.CreateTopicsResponse)
        assert [row.error_code for row in body.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(tmp_path, lambda _: refused(code), scenario)


def test_a_version_that_the_controller_does_not_know_ends_the_connection(tmp_path: Path) -> None:
    """The client has to ask for versions again, as at Kafka's brokers."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        assert await served.ask(CREATE) is None

    run(tmp_path, lambda _: refused(ErrorCode.UNSUPPORTED_VERSION), scenario)


def test_an_answer_to_another_request_is_not_passed_on(tmp_path: Path) -> None:
    """The client would take it for its own, or fail for all requests to come."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        answer = await served.ask(CREATE)
        assert answer is not None
        _, body = decode_response(wire.CreateTopicsResponse, 7, answer)
        assert isinstance(body, wire.CreateTopicsResponse)
        assert [row.error_code for row in body.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(tmp_path, lambda _: answered(struct.pack(">i", 78) + CREATED[4:]), scenario)


def test_what_is_no_request_is_not_forwarded(tmp_path: Path) -> None:
    """A controller would see the damage of a client as that of a broker."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        assert await served.ask(CREATE[:-7]) is None
        assert controller.asked == []

    run(tmp_path, lambda _: answered(CREATED), scenario)


def test_a_client_that_has_not_authenticated_reaches_no_controller(tmp_path: Path) -> None:
    """Whoever connects would administrate the cluster."""

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        assert await served.ask(CREATE) is None
        assert controller.asked == []

    run(tmp_path, lambda _: answered(CREATED), scenario, Known(None))


def test_tokens_are_refused_here_to_those_who_may_not_ask(tmp_path: Path) -> None:
    """The controller does not know how the client has authenticated."""
    request = bytes(envelope("29-Envelope-0-token-user")[1].request_data)

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        answer = await served.ask(request)
        assert answer is not None
        _, body = decode_response(wire.CreateDelegationTokenResponse, 3, answer)
        assert isinstance(body, wire.CreateDelegationTokenResponse)
        assert body.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert controller.asked == []

    run(tmp_path, lambda _: answered(b""), scenario)


def test_the_controllers_throttle_time_mutes_the_connection(tmp_path: Path) -> None:
    """A client of before KIP-219 goes on at once; the broker has to hold it."""
    throttled = CREATED[:5] + struct.pack(">i", 150) + CREATED[9:]
    assert throttle_time(ApiKey.CREATE_TOPICS, 7, whole(throttled)) == 150

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        # The connection is mute from its answer on, of which this side hears a little later.
        began = loop.time()
        writer.write(whole(CREATE) + whole(CREATE))
        assert await read(reader) == throttled
        controller.serve = lambda _: answered(CREATED)
        assert await read(reader) == CREATED
        assert loop.time() - began >= 0.149
        writer.close()

    run(tmp_path, lambda _: answered(throttled), scenario)


def some(api_key: ApiKey) -> Any:
    """A request that names something."""
    c = request_message(api_key)
    rows: dict[ApiKey, Callable[[Any], Any]] = {
        ApiKey.CREATE_TOPICS: lambda c: c(topics=[c.CreatableTopic(name="t")]),
        ApiKey.DELETE_TOPICS: lambda c: c(topic_names=["t"]),
        ApiKey.CREATE_PARTITIONS: lambda c: c(topics=[c.CreatePartitionsTopic(name="t")]),
        ApiKey.CREATE_ACLS: lambda c: c(creations=[c.AclCreation()]),
        ApiKey.DELETE_ACLS: lambda c: c(filters=[c.DeleteAclsFilter()]),
        ApiKey.ALTER_CONFIGS: lambda c: c(resources=[c.AlterConfigsResource(resource_type=2)]),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda c: c(resources=[c.AlterConfigsResource(resource_type=2)]),
        ApiKey.ALTER_CLIENT_QUOTAS: lambda c: c(entries=[c.EntryData(entity=[c.EntityData(entity_type="user")])]),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda c: c(upsertions=[c.ScramCredentialUpsertion(name="u")]),
        ApiKey.ELECT_LEADERS: lambda c: c(topic_partitions=[c.TopicPartitions(topic="t", partitions=[0])]),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda c: c(
            topics=[c.ReassignableTopic(name="t", partitions=[c.ReassignablePartition()])]
        ),
    }
    return rows.get(api_key, lambda c: c())(c)


@pytest.mark.parametrize("api_key", sorted(FORWARDED))
def test_every_forwarded_api_has_its_error_in_every_version(api_key: ApiKey) -> None:
    """A client would lose its connection instead of hearing why."""
    (row,) = (each for each in dispatch.forwarding_rows() if each.api_key == api_key)
    assert row.keeps_frame
    for version in range(row.min_version, row.max_version + 1):
        request = some(api_key)
        answer = refusal(request, version, KafkaError.of(ErrorCode.REQUEST_TIMED_OUT))
        frame = type(answer).program(version).encode_response(answer, 1, request_header_version(api_key, version) >= 2)
        _, body = decode_response(response_message(api_key), version, bytes(frame)[4:])
        assert "error_code=7" in str(body)


def test_errors_name_all_that_was_asked_for() -> None:
    """A client waits for a word on each of its topics, users, entities and partitions."""
    error = KafkaError.of(ErrorCode.REQUEST_TIMED_OUT)
    latest = 99
    moves = wire.AlterPartitionReassignmentsRequest
    scram = wire.AlterUserScramCredentialsRequest
    quotas = wire.AlterClientQuotasRequest
    elections = wire.ElectLeadersRequest

    def of(request: Any) -> Any:
        return refusal(request, latest, error)

    deleted = of(wire.DeleteTopicsRequest(topics=[wire.DeleteTopicsRequest.DeleteTopicState(topic_id=b"i" * 16)]))
    assert [(row.topic_id, row.error_code) for row in deleted.responses] == [(b"i" * 16, 7)]
    assert [row.name for row in of(wire.DeleteTopicsRequest(topic_names=["a", "b"])).responses] == ["a", "b"]
    partitions = moves.ReassignablePartition(partition_index=3)
    moved = of(moves(topics=[moves.ReassignableTopic(name="t", partitions=[partitions])]))
    assert (moved.error_code, moved.responses[0].partitions[0].error_code) == (7, 7)
    users = of(scram(deletions=[scram.ScramCredentialDeletion(name="b")], upsertions=[]))
    assert [(row.user, row.error_code) for row in users.results] == [("b", 7)]
    entity = [quotas.EntityData(entity_type="user", entity_name=None)]
    altered = of(quotas(entries=[quotas.EntryData(entity=entity, ops=[])]))
    assert [(row.error_code, row.entity[0].entity_name) for row in altered.entries] == [(7, None)]
    # Kafka 4.3.1 has its own words for the code here, and none in the answers above.
    assert altered.entries[0].error_message == "The request timed out."
    assert users.results[0].error_message is None
    elected = of(elections(topic_partitions=[elections.TopicPartitions(topic="t", partitions=[1, 2])]))
    assert [each.partition_id for each in elected.replica_election_results[0].partition_result] == [1, 2]


def test_addresses_are_those_that_java_has() -> None:
    """The controller would not find the rules for the client's host."""
    assert address_bytes("10.1.2.3") == bytes([10, 1, 2, 3])
    assert address_bytes("::ffff:10.1.2.3") == bytes([10, 1, 2, 3])
    assert address_bytes("fe80::1%eth0")[:2] == b"\xfe\x80"
    assert len(address_bytes("::1")) == 16
    assert address_bytes("unknown") == bytes([127, 0, 0, 1])


def test_versions_are_those_that_the_controller_has_too(tmp_path: Path) -> None:
    """A client would send a version for which its connection ends."""

    def ranges(answer: bytes | None) -> dict[int, tuple[int, int]]:
        assert answer is not None
        found = wire.ApiVersionsResponse.program(0).decode(answer, 4)
        assert isinstance(found, wire.ApiVersionsResponse)
        return {row.api_key: (row.min_version, row.max_version) for row in found.api_keys}

    async def scenario(served: ForwardingBroker, controller: Controller) -> None:
        versions = encode_request(ApiKey.API_VERSIONS, 0, 1, "c", wire.ApiVersionsRequest())[4:]
        before = ranges(await served.ask(versions))
        await served.ask(CREATE)
        after = ranges(await served.ask(versions))
        assert before[ApiKey.CREATE_TOPICS] == (0, 7)
        assert after[ApiKey.CREATE_TOPICS] == (2, 7)
        # Not of the controller's at all.
        assert after[ApiKey.FETCH] == before[ApiKey.FETCH]

    run(tmp_path, lambda _: answered(CREATED), scenario)


def test_what_was_seen_of_kafkas_brokers_is_served() -> None:
    """A tool that works with a Kafka broker would not with this one, or the other way round."""
    seen = wire.ApiVersionsResponse.program(4).decode(captured("50-ApiVersions-4-broker", "answer"), 4)
    assert isinstance(seen, wire.ApiVersionsResponse)
    theirs = {row.api_key: row.max_version for row in seen.api_keys}
    ours = {int(row.api_key): row.max_version for row in dispatch.forwarding_rows()}
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert {key: version for key, version in ours.items() if key not in telemetry} == theirs


def test_features_are_shown_as_by_kafkas_brokers() -> None:
    """Clients and tools choose their protocol by them."""
    seen = wire.ApiVersionsResponse.program(4).decode(captured("50-ApiVersions-4-broker", "answer"), 4)
    assert isinstance(seen, wire.ApiVersionsResponse)
    levels = {row.name: row.max_version_level for row in seen.finalized_features}
    features = Features(seen.finalized_features_epoch, levels, KRAFT_FEATURES)
    cache = SimpleNamespace(image=SimpleNamespace(features=features, configs={}))
    known: Any = SimpleNamespace(versions={})
    services = SimpleNamespace(view=ForwardingView(known), advertised_apis={}, metadata_cache=cache)
    request = wire.ApiVersionsRequest(client_software_name="a", client_software_version="b")
    session = Session(state=AuthenticationState.AUTHENTICATED)
    connection = SimpleNamespace(session=session, listener_name="PLAINTEXT")
    context: Any = SimpleNamespace(api_version=4, services=services, connection=connection)
    ours: Any = api_versions.handle_api_versions(context, request)

    def shown(answer: Any) -> tuple[set[str], set[str], int]:
        supported = {str(row) for row in answer.supported_features}
        finalized = {str(row) for row in answer.finalized_features}
        return supported, finalized, answer.finalized_features_epoch

    assert shown(ours) == shown(seen)
