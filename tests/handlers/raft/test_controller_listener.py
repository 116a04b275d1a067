"""What the listener of a controller serves, to whom, and what a node answers that does not lead.

Of `kbroker.handlers.raft.quorum`, `kbroker.handlers.raft.lives`, `kbroker.handlers.raft.controllers` and
`kbroker.cluster.controller.broker_lives`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.errors import ErrorCode
from kbroker.handlers.dispatch import broker_rows, controller_rows
from kbroker.handlers.table import advertised_ranges
from kbroker.protocol.api import ApiKey
from kbroker.schemas import response_message, wire
from tests.assembly.quorum_stand_ins import ControllerBench, running
from tests.handlers.raft.requests import plain, request_of

KAFKAS = """
1:4-18 17:0-1 18:0-4 19:2-7 20:1-6 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 43:0-2
44:0-1 45:0-1 46:0-0 49:0-1 50:0-0 51:0-0 52:0-2 53:0-1 54:0-1 55:0-2 56:2-3 57:0-2 58:0-0 59:0-1 60:0-2 62:0-4 63:0-2
64:0-0 67:0-0 70:0-0 73:0-0 80:0-1 81:0-0 82:0-0
"""
"""What a controller of Apache Kafka 4.3.1 answers to ApiVersions: API keys with their first and last versions."""
RANGES = {
    ApiKey(int(key)): tuple(map(int, versions.split("-")))
    for key, versions in (each.split(":") for each in KAFKAS.split())
}
NOT_ACTIVE: dict[str, Any] = json.loads((Path(__file__).parent / "vectors/kafka-4.3.1-not-active.json").read_text())
"""What one of three static voters of Kafka 4.3.1, whose others were away, answered to `request_of`.  Left out: raft's
requests; DeleteTopics, which it judges by an image that may be behind; requests that name nothing."""
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
OPEN_TO_ALL = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
AT_BROKERS = {ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS}
TOKENS = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
DENIALS = {
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
}
BY_ALL = {
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ENVELOPE,
}
"""Those that a standby answers as the active controller does, and what is within an envelope."""


def codes(answer: Any) -> Iterator[int]:
    """The error codes of an answer and of all its rows."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes(each)
        return
    for name in dir(answer):
        value = None if name.startswith("_") else getattr(answer, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            yield from codes(value)


def messages(answer: Any) -> Iterator[str]:
    """The error messages of an answer and of all its rows."""
    if getattr(answer, "error_message", None):
        yield answer.error_message
    for name in dir(answer):
        value = None if name.startswith("_") else getattr(answer, name)
        for each in value if isinstance(value, list) else ():
            if hasattr(each, "error_code"):
                yield from messages(each)


def test_a_controllers_listener_shows_what_kafkas_does() -> None:
    """Brokers and tools of Kafka would ask in versions that are not served, or not ask at all."""
    assert {each.api_key: (each.min_version, each.max_version) for each in advertised_ranges(controller_rows())} == (
        RANGES
    )


def test_a_brokers_listener_has_none_of_it() -> None:
    """A client of a broker could vote, or register brokers."""
    shown = {row.api_key for row in broker_rows()}
    assert not shown & {ApiKey.VOTE, ApiKey.ENVELOPE, ApiKey.BROKER_REGISTRATION, ApiKey.FETCH_SNAPSHOT}


@pytest.mark.parametrize("api_key", sorted(RANGES))
def test_every_api_is_answered_in_its_versions(api_key: ApiKey, tmp_path: Path) -> None:
    """A node of the cluster would wait for an answer, or lose its connection."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            low, high = RANGES[api_key]
            for version in range(low, high + 1):
                answer = await bench.ask(request_of(api_key, version), version)
                if api_key in AT_BROKERS:
                    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                else:
                    assert ErrorCode.UNKNOWN_SERVER_ERROR not in {*codes(answer)}
            for version in {low - 1, high + 1} - {-1} if api_key != ApiKey.API_VERSIONS else ():
                if version < low or api_key not in {ApiKey.CREATE_TOPICS}:
                    await _is_hung_up_on(bench, api_key, version)

    uvloop.run(body())


async def _is_hung_up_on(bench: ControllerBench, api_key: ApiKey, version: int) -> None:
    frame = api_key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff"
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.node.node.listeners.all[0].port)
    writer.write(len(frame).to_bytes(4) + frame)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


def test_who_may_do_nothing_is_refused_everything(tmp_path: Path) -> None:
    """A stranger that reaches the port could raise the epoch, register brokers or change the cluster."""

    async def body() -> None:
        async with running(tmp_path, GUARDED) as bench:
            for api_key, (low, high) in RANGES.items():
                for version in {low, high}:
                    answer = await bench.ask(request_of(api_key, version), version)
                    if api_key in OPEN_TO_ALL | AT_BROKERS:
                        continue
                    if api_key in TOKENS:
                        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                    elif api_key == ApiKey.DESCRIBE_CLUSTER:
                        # The metadata.version comes first, as in Kafka.
                        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
                    elif api_key == ApiKey.FETCH and version < 7:
                        assert answer.responses == []
                    else:
                        assert {*codes(answer)} - {0} <= DENIALS, (api_key, version)
                        assert {*codes(answer)} & DENIALS, (api_key, version)
            assert bench.replica.asked == []
            assert not any(request for _, request in bench.controller.asked)

    uvloop.run(body())


def test_a_refused_fetch_of_old_says_so_in_its_partitions(tmp_path: Path) -> None:
    """A controller of Kafka 3.9 would take an empty answer for the leader's."""

    async def body() -> None:
        message = wire.FetchRequest
        topic = message.FetchTopic(topic="__cluster_metadata", partitions=[message.FetchPartition(partition=0)])
        async with running(tmp_path, GUARDED) as bench:
            for version in (4, 12):
                answer = await bench.ask(message(topics=[topic]), version)
                assert [each.error_code for each in answer.responses[0].partitions] == [31]

    uvloop.run(body())


@pytest.mark.parametrize(
    ("leader", "words"),
    [(3, "The active controller appears to be node 3."), (-1, "No controller appears to be active.")],
)
def test_a_node_that_does_not_lead_says_who_does(leader: int, words: str, tmp_path: Path) -> None:
    """Brokers would take its refusal for the cluster's, and people would not find the active controller."""

    async def body() -> None:
        async with running(tmp_path, {**GUARDED, "super.users": "User:ANONYMOUS"}) as bench:
            bench.replica.leader_id = leader
            told = set()
            for api_key, (_, high) in RANGES.items():
                answer = await bench.ask(request_of(api_key, high), high)
                if api_key in OPEN_TO_ALL | AT_BROKERS | TOKENS | BY_ALL:
                    continue
                assert {*codes(answer)} - {0} == {int(ErrorCode.NOT_CONTROLLER)}, (api_key, {*codes(answer)})
                told.update(messages(answer))
            assert told == {words, "This is not the correct controller for this cluster."}

    uvloop.run(body())


@pytest.mark.parametrize("name", NOT_ACTIVE)
def test_without_an_active_controller_all_is_answered_as_by_kafka(name: str, tmp_path: Path) -> None:
    """Brokers and tools would find an error where they do not look for it."""

    async def body() -> None:
        api, number = name.split()
        version = int(number)
        request = request_of(ApiKey[api], version)
        async with running(tmp_path) as bench:
            bench.replica.leader_id = -1
            answer = await bench.ask(request, version)
            assert plain(answer, response_message(ApiKey[api]).schema.fields, version) == NOT_ACTIVE[name]

    uvloop.run(body())


def test_registrations_come_to_the_controller_as_they_are(tmp_path: Path) -> None:
    """A broker would be registered with less than it said, or get the answer of another request."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            registration = wire.BrokerRegistrationRequest(broker_id=5, cluster_id="c", rack="r")
            assert (await bench.ask(registration, 4)).broker_epoch == 7
            heartbeat = wire.BrokerHeartbeatRequest(broker_id=5, broker_epoch=7)
            assert (await bench.ask(heartbeat, 2)).is_caught_up
            (_, first), (_, second) = bench.controller.asked
            assert (first.broker_id, first.cluster_id, first.rack) == (5, "c", "r")
            assert (second.broker_id, second.broker_epoch) == (5, 7)

    uvloop.run(body())


def test_settings_of_any_broker_are_changed_by_the_controller(tmp_path: Path) -> None:
    """A tool that asks the controllers could change no broker's settings."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            answer = await bench.ask(request_of(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), 1)
            assert [each.error_code for each in answer.responses] == [0]
            ((_, (alteration,)),) = bench.controller.asked
            assert alteration.resource.name == "7"

    uvloop.run(body())


def test_a_leader_that_recovers_is_known_to_the_controller(tmp_path: Path) -> None:
    """A partition would be in sync before its leader has what an unclean election left."""

    async def body() -> None:
        message = wire.AlterPartitionRequest
        row = message.PartitionData(partition_index=0, leader_recovery_state=1)
        request = message(broker_id=1, topics=[message.TopicData(topic_id=bytes(15) + b"\x01", partitions=[row])])
        async with running(tmp_path) as bench:
            answer = await bench.ask(request, 3)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    uvloop.run(body())
