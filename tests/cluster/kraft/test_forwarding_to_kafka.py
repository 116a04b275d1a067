"""Requests forwarded to a controller of Apache Kafka: the envelope is taken, and the answers are its own."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from kbroker.errors import ErrorCode
from kbroker.handlers.cluster.forwarded import FORWARDED
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import request_message, response_message, wire
from tests.cluster.kraft.frames import whole
from tests.cluster.kraft.processes import Kbroker, running
from tests.cluster.kraft.stand_in import ForwardingBroker
from tests.compat.real_kafka import KafkaProcess

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Changes that the cluster would not survive, or that need more than one request of this kind.
LEFT_OUT = {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UNREGISTER_BROKER}

# On a busy machine the next active controller may come to a request before it comes to a heartbeat, and to a look for
# silent brokers before both: it would have fenced the only broker, and there would be none for the topic (error 38).
LONG_SESSION = {"broker.session.timeout.ms": "120000"}

TOKENS = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}


@pytest.fixture(scope="module", name="kafka")
def _kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    kafka = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    kafka.start()
    yield kafka
    kafka.stop()


def asked_of(port: int, frame: bytes, seconds: float = 30) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        client.sendall(whole(frame))
        data = client.makefile("rb")
        (size,) = struct.unpack(">i", data.read(4))
        return data.read(size)


def test_kafkas_controller_takes_what_is_forwarded(kafka: KafkaProcess, tmp_path: Path) -> None:
    """Administration through a kbroker of a KRaft cluster would not work at all."""

    async def main() -> None:
        served = ForwardingBroker(tmp_path, lambda: Endpoint("127.0.0.1", kafka.controller_port))
        await served.broker.start()
        try:
            async with asyncio.timeout(60):
                row = wire.CreateTopicsRequest.CreatableTopic(name="made", num_partitions=3, replication_factor=1)
                frame = encode_request(ApiKey.CREATE_TOPICS, 7, 41, "c", wire.CreateTopicsRequest(topics=[row]))[4:]
                got = await served.ask(frame)
                assert got is not None
                correlation_id, made = decode_response(wire.CreateTopicsResponse, 7, got)
                assert isinstance(made, wire.CreateTopicsResponse)
                assert correlation_id == 41
                assert [(each.name, each.error_code, each.num_partitions) for each in made.topics] == [("made", 0, 3)]
                again = await served.ask(frame)
                assert again is not None
                _, body = decode_response(wire.CreateTopicsResponse, 7, again)
                assert isinstance(body, wire.CreateTopicsResponse)
                assert body.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        finally:
            await served.broker.stop()
            served.client.close()

    uvloop.run(main())


def test_every_forwarded_api_has_the_answer_of_kafkas_own_broker(kafka: KafkaProcess, tmp_path: Path) -> None:
    """A client would hear something else from this broker than from the others of the cluster."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        served = ForwardingBroker(tmp_path, lambda: Endpoint("127.0.0.1", kafka.controller_port))
        await served.broker.start()
        try:
            for api_key in sorted(FORWARDED - LEFT_OUT):
                message = request_message(api_key)
                for version in range(message.min_version, message.max_version + 1):
                    frame = encode_request(api_key, version, 7, "c", message())[4:]
                    async with asyncio.timeout(60):
                        ours = await served.ask(frame)
                        theirs = await loop.run_in_executor(None, answer_or_end, kafka.port, frame)
                    if theirs is None and api_key in TOKENS:
                        continue  # Not of Kafka 4, and refused here before it is forwarded.
                    if api_key == ApiKey.DESCRIBE_QUORUM:
                        # It tells of offsets and times.
                        assert (ours is None) == (theirs is None), (api_key, version)
                        continue
                    if ours != theirs:
                        assert ours is not None and theirs is not None, (api_key, version)
                        kind = response_message(api_key)
                        assert str(decode_response(kind, version, ours)) == str(decode_response(kind, version, theirs))
        finally:
            await served.broker.stop()
            served.client.close()

    uvloop.run(main())


def answer_or_end(port: int, frame: bytes) -> bytes | None:
    try:
        return asked_of(port, frame)
    except (struct.error, ConnectionResetError):
        return None


def leader_of(port: int) -> int:
    """The active controller, as a broker describes the quorum."""
    request = wire.DescribeQuorumRequest
    topic = request.TopicData(topic_name="__cluster_metadata", partitions=[request.PartitionData(partition_index=0)])
    frame = encode_request(ApiKey.DESCRIBE_QUORUM, 1, 6, "c", request(topics=[topic]))[4:]
    _, answer = decode_response(wire.DescribeQuorumResponse, 1, asked_of(port, frame))
    assert isinstance(answer, wire.DescribeQuorumResponse)
    return answer.topics[0].partitions[0].leader_id


@pytest.mark.compat
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["kill", "pause"])
def test_requests_outlive_the_active_controller(tmp_path: Path, how: str) -> None:
    """An administrator's request would fail with the controller that dies, or hang with the one that does."""
    with running(tmp_path, (Kbroker,), controllers=3, settings=LONG_SESSION) as cluster:
        port = cluster.nodes[1].port
        active = leader_of(port)
        getattr(cluster.controllers[active], how)()
        row = wire.CreateTopicsRequest.CreatableTopic(name="made", num_partitions=1, replication_factor=1)
        request = wire.CreateTopicsRequest(topics=[row], timeout_ms=30000)
        got = asked_of(port, encode_request(ApiKey.CREATE_TOPICS, 7, 41, "c", request)[4:], 70)
        _, made = decode_response(wire.CreateTopicsResponse, 7, got)
        assert isinstance(made, wire.CreateTopicsResponse)
        # A controller that hung may have done it before.
        assert made.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert leader_of(port) != active
        if how == "pause":
            cluster.controllers[active].resume()
