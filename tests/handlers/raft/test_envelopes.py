"""Requests of clients that brokers pass on: `kbroker.handlers.raft.envelope`, `kbroker.handlers.raft.embedded`, and
`kbroker.gate.controller_gate`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.cluster.kraft.forwarding import host_of, principal_of
from kbroker.errors import ErrorCode
from kbroker.metadata.image import MetadataDelta
from kbroker.metadata.security_image import Acl, SecurityDelta
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message, wire
from kbroker.security.principal import AuthenticationState, Principal, Session
from tests.assembly.quorum_stand_ins import ControllerBench, running
from tests.handlers.raft.requests import ALICE, enveloped, request_of

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
BY_ANONYMOUS = {**AUTHORIZER, "super.users": "User:ANONYMOUS"}
BY_ALICE = {**AUTHORIZER, "super.users": "User:ANONYMOUS;User:alice"}
MALLORY = Session(Principal("User", "mallory"), "10.0.0.66", state=AuthenticationState.AUTHENTICATED)
CLUSTER, ALTER, ALLOW, LITERAL = 4, 7, 3, 3


async def within(bench: ControllerBench, request: Any, version: int, session: Session = ALICE) -> Any:
    """The answer to what an envelope holds."""
    answer = await bench.ask(enveloped(request, version, session), 0)
    assert answer.error_code == 0, answer.error_code
    correlation_id, found = decode_response(response_message(request.api_key), version, answer.response_data)
    assert correlation_id == 77
    return found


def test_a_client_within_an_envelope_has_its_own_rights(tmp_path: Path) -> None:
    """Each client of a broker could do what the broker may."""

    async def body() -> None:
        request = request_of(ApiKey.CREATE_PARTITIONS, 3)
        async with running(tmp_path, BY_ALICE) as bench:
            assert (await within(bench, request, 3)).results[0].error_code == 0
            refused = (await within(bench, request, 3, MALLORY)).results[0]
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert [[each.name for each in asked] for what, asked in bench.controller.asked if asked] == [["t"]]

    uvloop.run(body())


def test_an_acl_on_an_address_is_about_the_clients_own(tmp_path: Path) -> None:
    """A rule for one host would be about the brokers' addresses."""

    async def body() -> None:
        rule = Acl(CLUSTER, "kafka-cluster", LITERAL, "User:mallory", "10.0.0.66", ALTER, ALLOW)
        request = wire.UnregisterBrokerRequest(broker_id=9)
        async with running(tmp_path, BY_ANONYMOUS) as bench:
            cache = bench.node.part.cache
            delta = MetadataDelta(security=SecurityDelta(acls={b"1" * 16: rule}))
            cache.publish(cache.image.apply(delta), delta)
            assert (await within(bench, request, 0, MALLORY)).error_code == 0
            elsewhere = Session(MALLORY.principal, "10.0.0.67", state=AuthenticationState.AUTHENTICATED)
            answer = await within(bench, request, 0, elsewhere)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert [asked for _, asked in bench.controller.asked] == [9]

    uvloop.run(body())


def test_a_sender_without_the_right_gets_nothing_done(tmp_path: Path) -> None:
    """Any client could name the principal that it wants to be."""

    async def body() -> None:
        async with running(tmp_path, {**AUTHORIZER, "super.users": "User:alice"}) as bench:
            answer = await bench.ask(enveloped(wire.UnregisterBrokerRequest(broker_id=9), 0), 0)
            assert (answer.error_code, answer.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
            assert bench.controller.asked == []

    uvloop.run(body())


def _frame(request: Any, version: int) -> bytes:
    return encode_request(request.api_key, version, 77, "console", request)[4:]


UNREGISTER = wire.UnregisterBrokerRequest(broker_id=9)
TOO_NEW = (64).to_bytes(2) + (9).to_bytes(2) + bytes(8)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"request_principal": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\1\5User\6alice\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\5Us"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"", "request_data": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"\1\2\3"}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": b""}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": b"", "request_data": b""}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\0\x40\0"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x7f\xff\0\0\0\0\0\0\xff\xff"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": _frame(UNREGISTER, 0)[:-2]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": TOO_NEW}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": _frame(enveloped(UNREGISTER, 0), 0)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": _frame(wire.VoteRequest(topics=[]), 2)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": _frame(wire.MetadataRequest(topics=[]), 9)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": _frame(wire.CreateAclsRequest(creations=[wire.CreateAclsRequest.AclCreation()]), 3)},
         ErrorCode.UNSUPPORTED_VERSION),
    ],
)  # fmt: skip
def test_what_is_no_envelope_is_refused_as_by_kafka(changes: dict[str, bytes], code: ErrorCode, tmp_path: Path) -> None:
    """A broker would hang up on the wrong client, or a stranger's bytes would end the connection of all clients."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            answer = await bench.ask(enveloped(UNREGISTER, 0, **changes), 0)
            assert (answer.error_code, answer.response_data) == (code, None)
            assert bench.controller.asked == []

    uvloop.run(body())


def test_no_bytes_of_a_stranger_end_the_connection(tmp_path: Path) -> None:
    """All clients of a broker share it."""

    async def body() -> None:
        rng = random.Random(7)
        asked = {
            ApiKey.CREATE_TOPICS: 7,
            ApiKey.UNREGISTER_BROKER: 0,
            ApiKey.DESCRIBE_QUORUM: 2,
            ApiKey.ELECT_LEADERS: 2,
        }
        frames = [_frame(request_of(key, version), version) for key, version in asked.items()]
        async with running(tmp_path) as bench:
            reader, writer = await asyncio.open_connection("127.0.0.1", bench.node.node.listeners.all[0].port)
            for _ in range(2000):
                data = bytearray(rng.choice(frames))
                for _ in range(rng.randrange(1, 4)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                mutated = bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)
                changes = {"request_data": mutated}
                if rng.random() < 0.2:
                    changes["request_principal"] = rng.randbytes(rng.randrange(20))
                if rng.random() < 0.2:
                    changes["client_host_address"] = rng.randbytes(rng.randrange(20))
                writer.write(encode_request(58, 0, 1, "b", enveloped(UNREGISTER, 0, **changes)))
                size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 10))
                await reader.readexactly(size)
            writer.close()

    uvloop.run(body())


@pytest.mark.parametrize("api_key", [ApiKey.CREATE_TOPICS, ApiKey.UNREGISTER_BROKER, ApiKey.ALTER_CONFIGS])
def test_a_broker_is_sent_to_the_active_controller(api_key: ApiKey, tmp_path: Path) -> None:
    """Its clients would get NOT_CONTROLLER, and go nowhere."""

    async def body() -> None:
        version = {ApiKey.CREATE_TOPICS: 7}.get(api_key, 0)
        request = request_of(api_key, version)
        async with running(tmp_path) as bench:
            bench.replica.leader_id = 3
            answer = await bench.ask(enveloped(request, version), 0)
            assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)
            assert (await within(bench, wire.DescribeQuorumRequest(), 2)).error_code == 0

    uvloop.run(body())


def test_an_unexpected_error_is_answered_within(tmp_path: Path) -> None:
    """One request that a controller cannot serve would end the connection by which a broker asks for all clients."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            bench.controller.failure = RuntimeError("a fault")
            answer = await within(bench, UNREGISTER, 0)
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    uvloop.run(body())


def test_a_client_by_token_may_not_ask_for_tokens(tmp_path: Path) -> None:
    """A stolen token would renew itself for ever."""

    async def body() -> None:
        by_token = Session(ALICE.principal, ALICE.host, state=AuthenticationState.AUTHENTICATED, by_token=True)
        settings = {"delegation.token.secret.key": "s"}
        request = wire.CreateDelegationTokenRequest(max_lifetime_ms=-1)
        async with running(tmp_path, settings) as bench:
            answer = await within(bench, request, 3, by_token)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            made = await within(bench, request, 3)
            assert (made.error_code, made.principal_name, len(made.hmac)) == (0, "alice", 64)

    uvloop.run(body())


def test_a_quota_is_the_clients_and_the_brokers_connection_goes_on(tmp_path: Path) -> None:
    """A broker's connection would be muted for one client's haste, and with it all others."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            cache = bench.node.part.cache
            entity = (("user", "alice"),)
            delta = MetadataDelta(quotas={entity: {"request_percentage": 0.0001}})
            cache.publish(cache.image.apply(delta), delta)
            request = request_of(ApiKey.CREATE_TOPICS, 7)
            answers = [await within(bench, request, 7) for _ in range(3)]
            assert answers[-1].throttle_time_ms > 0
            assert (await within(bench, request, 7, MALLORY)).throttle_time_ms == 0

    uvloop.run(body())


def test_the_quorum_is_throttled_by_no_quota(tmp_path: Path) -> None:
    """A quota for all users would delay votes and heartbeats, and cost the lead and the brokers' sessions."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            cache = bench.node.part.cache
            delta = MetadataDelta(quotas={(("user", None),): {"request_percentage": 0.0001, "consumer_byte_rate": 1.0}})
            cache.publish(cache.image.apply(delta), delta)
            for _ in range(3):
                assert (await bench.ask(wire.FetchRequest(topics=[]), 18)).throttle_time_ms == 0
                assert (await bench.ask(wire.BrokerHeartbeatRequest(), 2)).throttle_time_ms == 0
            answers = [await bench.ask(wire.UnregisterBrokerRequest(), 0) for _ in range(3)]
            assert answers[-1].throttle_time_ms > 0

    uvloop.run(body())


def test_a_large_request_within_an_envelope_is_served(tmp_path: Path) -> None:
    """A tool that makes thousands of topics at once would get no answer."""

    async def body() -> None:
        topic = wire.CreateTopicsRequest.CreatableTopic
        request = wire.CreateTopicsRequest(
            topics=[topic(name=f"topic-{each:06}", num_partitions=1) for each in range(5000)], timeout_ms=1000
        )
        async with running(tmp_path) as bench:
            answer = await within(bench, request, 7)
            assert len(answer.topics) == 5000

    uvloop.run(body())


@pytest.mark.parametrize(
    ("data", "host"),
    [
        (b"\x7f\0\0\1", "127.0.0.1"),
        (bytes(15) + b"\1", "::1"),
        (bytes(10) + b"\xff\xff\x0a\0\0\x09", "10.0.0.9"),
    ],
)
def test_a_clients_address_is_read_as_java_reads_it(data: bytes, host: str) -> None:
    """An ACL for a host would not be found."""
    assert host_of(data) == host


def test_a_recorded_envelope_is_read() -> None:
    """Brokers of Kafka would be refused; the bytes are those that one of 4.3.1 has sent."""
    assert principal_of(b"\0\0\5User\4tok\0\0") == (Principal("User", "tok"), False)
    assert principal_of(b"\0\0\5User\6alice\1\0") == (Principal("User", "alice"), True)
    assert host_of(b"\x7f\0\0\1") == "127.0.0.1"
