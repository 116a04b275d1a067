"""What brokers of a KRaft cluster ask each other, against frames between brokers of Apache Kafka 4.3.1.

Also of `kbroker.cluster.node_clients` and `kbroker.handlers.transactions.remote_verification`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import uvloop

from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.client import ClientSettings
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.node_clients import NodeClients
from kbroker.cluster.protocol_version import MetadataProtocol, metadata_protocol
from kbroker.config import BrokerConfig
from kbroker.coordinator.share import share_states
from kbroker.coordinator.share.share_coordinator import ShareCoordinator
from kbroker.coordinator.share.share_states import ShareStates
from kbroker.coordinator.transactions.transaction_coordinator import ProducerRequest
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.transactions.remote_verification import ask_elsewhere
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.features import KRAFT_FEATURES, Features
from kbroker.metadata.image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    MetadataDelta,
    PartitionImage,
    TopicChange,
    TopicImage,
)
from kbroker.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kbroker.protocol.frames import decode_request_header, decode_response
from kbroker.replication.fetcher_manager import FetcherSettingsByVersion
from kbroker.replication.marker_sender import MarkerSender
from kbroker.replication.share.persister import SharePartitionKey, StateBatch, StateUpdate, StoredState
from kbroker.replication.transaction_markers import Marker
from kbroker.schemas import response_message
from kbroker.types import TopicPartition
from tests.cluster.kraft.frames import captured
from tests.cluster.kraft.stand_in import Controller

HERE, KAFKA = 2, 1
BROKER = "50-ApiVersions-4-broker"
SHARED = bytes.fromhex("931e3b7548774d47a2218e301246376f")


def led_by(node_id: int, name: str, count: int = 1, epoch: int = 0) -> TopicImage:
    rows = tuple(PartitionImage(index, node_id, epoch, (HERE, KAFKA), (HERE, KAFKA)) for index in range(count))
    return TopicImage(name, b"s" * 16, rows)


Scenario = Callable[[Controller, MetadataCache, NodeClients], Awaitable[None]]


def run(
    scenario: Scenario, *topics: TopicImage, serve: Callable[[Any], Any] = lambda _: None, client: str = ""
) -> None:
    async def main() -> None:
        kafka = Controller(serve, BROKER)
        await kafka.start()
        loop = asyncio.get_running_loop()
        there = BrokerImage(KAFKA, {"PLAINTEXT": Endpoint("127.0.0.1", kafka.port)}, None, True)
        cache = MetadataCache(ClusterImage.of("c", brokers=[there], topics=topics))
        settings = ClientSettings(client, negotiates=True)
        clients = NodeClients(loop, TcpTransport(loop), cache, lambda: "PLAINTEXT", settings)
        try:
            async with asyncio.timeout(60):
                await scenario(kafka, cache, clients)
        finally:
            clients.close()
            await kafka.stop()

    uvloop.run(main())


def answer_of(name: str) -> Any:
    """The captured answer as a struct."""
    header = decode_request_header(captured(name))
    _, answer = decode_response(response_message(header.api_key), header.api_version, captured(name, "answer"))
    return answer


def is_kafkas(frame: bytes, name: str) -> bool:
    """Whether a request is the captured one, but for its number."""
    expected = captured(name)
    return frame[:4] + frame[8:] == expected[:4] + expected[8:]


@pytest.mark.parametrize(
    ("name", "marker", "partitions"),
    [
        ("39-WriteTxnMarkers-2-commit", Marker(2, 0, True, 3, 0), (1, 0)),
        ("40-WriteTxnMarkers-2-commit-tv2", Marker(4, 1, True, 0, 2), (2,)),
    ],
)
def test_markers_are_kafkas_and_name_the_version_of_each_transaction(
    name: str, marker: Marker, partitions: tuple[int, ...]
) -> None:
    """A leader of Kafka's would refuse a marker, or take one that comes late for that of the next transaction."""
    settled: list[object] = []

    async def scenario(kafka: Controller, cache: MetadataCache, clients: NodeClients) -> None:
        loop = asyncio.get_running_loop()
        sender = MarkerSender(loop, HERE, cast("Any", None), cache, clients, negotiates=True)
        for index in partitions:
            sender.write("t1", index, marker, settled.append)
        while len(settled) < len(partitions):
            await asyncio.sleep(0.001)
        assert is_kafkas(kafka.frames[0], name)
        sender.close()

    client = decode_request_header(captured(name)).client_id or ""
    run(scenario, led_by(KAFKA, "t1", 3), serve=lambda _: answer_of(name), client=client)
    assert settled == [None] * len(partitions)


@pytest.mark.parametrize(
    ("name", "producer", "partition", "verify_only"),
    [
        ("37-AddPartitionsToTxn-5-verify-only", ProducerRequest("old1", 2, 0), 0, True),
        (
            "38-AddPartitionsToTxn-5-implicit",
            ProducerRequest("performance-producer-FhmrCt1rTy2h6ObyrMbevQ", 4, 0, 2),
            2,
            False,
        ),
    ],
)
def test_leaders_ask_kafkas_coordinators_as_kafkas_do(
    name: str, producer: ProducerRequest, partition: int, verify_only: bool
) -> None:
    """Transactional producers of a leader here could not write while their coordinator is a broker of Kafka's."""
    partitions = frozenset({TopicPartition("t1", partition)})

    async def scenario(kafka: Controller, _cache: MetadataCache, clients: NodeClients) -> None:
        assert await ask_elsewhere(clients, KAFKA, producer, partitions, verify_only=verify_only) == partitions
        assert is_kafkas(kafka.frames[0], name)

    client = decode_request_header(captured(name)).client_id or ""
    run(scenario, serve=lambda _: answer_of(name), client=client)


def states_of(cache: MetadataCache, clients: NodeClients, coordinator: object = None) -> ShareStates:
    return ShareStates(cast("ShareCoordinator", coordinator), cache, HERE, clients)


def test_states_of_share_groups_are_asked_of_kafkas_coordinator_as_by_kafkas() -> None:
    """Share groups would not work while the coordinator of their state is a broker of Kafka's."""
    names = {
        83: "41-InitializeShareGroupState-0-persister",
        84: "42-ReadShareGroupState-0-persister",
        85: "43-WriteShareGroupState-1-persister",
    }

    async def scenario(kafka: Controller, cache: MetadataCache, clients: NodeClients) -> None:
        states = states_of(cache, clients)
        await states.initialize(SharePartitionKey("sg1", SHARED, 2), 2, -1)
        said: list[object] = []
        states.read_state(SharePartitionKey("sg1", SHARED, 1), 4, said.append)
        while not said:
            await asyncio.sleep(0.001)
        assert said == [StoredState(2, -1, ())]
        update = StateUpdate(2, 0, 145, 3, (StateBatch(145, 147, 2, 1),))
        states.write_state(SharePartitionKey("sg1", SHARED, 0), update, said.append)
        while len(said) < 2:
            await asyncio.sleep(0.001)
        assert said[1] is None
        for frame, name in zip(kafka.frames, names.values(), strict=True):
            expected = decode_request_header(captured(name))
            sent = decode_request_header(frame)
            assert sent[:2] == expected[:2]
            assert frame[sent.size :] == captured(name)[expected.size :]

    def serve(body: Any) -> Any:
        return answer_of(names[body.api_key])

    run(scenario, led_by(KAFKA, SHARE_GROUP_STATE_TOPIC), serve=serve)


def refused_row(body: Any, code: int) -> Any:
    response = response_message(body.api_key)
    answer = answer_of("43-WriteShareGroupState-1-persister")
    assert isinstance(answer, response)
    answer.results[0].partitions[0].error_code = code
    return answer


UPDATE = StateUpdate(2, 0, 145, 3, (StateBatch(145, 147, 2, 1),))
KEY = SharePartitionKey("sg1", SHARED, 0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_coordinator_that_moves_is_asked_again(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What consumers have acknowledged would be delivered again with every election of a coordinator."""
    monkeypatch.setattr(share_states, "BACKOFF", ExponentialBackoff(0.001, 0.1))
    codes = [code, code, ErrorCode.NONE]

    async def scenario(kafka: Controller, cache: MetadataCache, clients: NodeClients) -> None:
        said: list[object] = []
        states_of(cache, clients).write_state(KEY, UPDATE, said.append)
        while not said:
            await asyncio.sleep(0.001)
        assert said == [None]
        assert len(kafka.asked) == 3

    run(scenario, led_by(KAFKA, SHARE_GROUP_STATE_TOPIC), serve=lambda body: refused_row(body, codes.pop(0)))


def test_a_coordinator_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share-partition would wait for good."""
    monkeypatch.setattr(share_states, "BACKOFF", ExponentialBackoff(0.001, 0.1))

    async def scenario(kafka: Controller, cache: MetadataCache, clients: NodeClients) -> None:
        said: list[Any] = []
        states_of(cache, clients).write_state(KEY, UPDATE, said.append)
        while not said:
            await asyncio.sleep(0.001)
        assert [each.code for each in said] == [ErrorCode.NOT_COORDINATOR]
        assert len(kafka.asked) == share_states.ATTEMPTS

    serve = lambda body: refused_row(body, ErrorCode.NOT_COORDINATOR)  # noqa: E731
    run(scenario, led_by(KAFKA, SHARE_GROUP_STATE_TOPIC), serve=serve)


def test_what_will_not_pass_is_not_asked_again() -> None:
    """A leader that is fenced would go on for seconds before it knows."""

    async def scenario(kafka: Controller, cache: MetadataCache, clients: NodeClients) -> None:
        said: list[Any] = []
        states_of(cache, clients).write_state(KEY, UPDATE, said.append)
        while not said:
            await asyncio.sleep(0.001)
        assert [each.code for each in said] == [ErrorCode.FENCED_STATE_EPOCH]
        assert len(kafka.asked) == 1

    serve = lambda body: refused_row(body, ErrorCode.FENCED_STATE_EPOCH)  # noqa: E731
    run(scenario, led_by(KAFKA, SHARE_GROUP_STATE_TOPIC), serve=serve)


def test_a_coordinator_that_has_come_here_is_asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state would be asked of a broker that has given it away."""
    monkeypatch.setattr(share_states, "BACKOFF", ExponentialBackoff(0.001, 0.1))

    class Own:
        def write_state(self, key: SharePartitionKey, update: StateUpdate, stored: Callable[[Any], None]) -> None:
            assert (key, update) == (KEY, UPDATE)
            stored(None)

    async def scenario(_kafka: Controller, cache: MetadataCache, clients: NodeClients) -> None:
        def moves(body: Any) -> Any:
            old, new = led_by(KAFKA, SHARE_GROUP_STATE_TOPIC), led_by(HERE, SHARE_GROUP_STATE_TOPIC, epoch=1)
            cache.apply(MetadataDelta(changed=(TopicChange(old, new),)))
            return refused_row(body, ErrorCode.NOT_COORDINATOR)

        _kafka.serve = moves
        said: list[KafkaError | None] = []
        states_of(cache, clients, Own()).write_state(KEY, UPDATE, said.append)
        while not said:
            await asyncio.sleep(0.001)
        assert said == [None]

    run(scenario, led_by(KAFKA, SHARE_GROUP_STATE_TOPIC))


@pytest.mark.parametrize(
    ("level", "fetch", "list_offsets"),
    [
        (0, 13, 7),
        (7, 13, 7),
        (8, 13, 7),
        (9, 14, 8),
        (10, 15, 8),
        (18, 15, 8),
        (19, 16, 8),
        (20, 16, 8),
        (21, 17, 9),
        (25, 17, 10),
        (26, 17, 10),
        (27, 18, 10),
        (29, 18, 11),
        (30, 18, 11),
        (99, 18, 11),
    ],
)
def test_followers_speak_as_the_level_of_the_metadata_says(level: int, fetch: int, list_offsets: int) -> None:
    """A leader of an older release does not know newer versions, and nobody asks it."""
    row = metadata_protocol(level)
    assert (row.fetch, row.list_offsets, row.alter_partition) == (fetch, list_offsets, 3)
    assert row.truncates_on_fetch


@pytest.mark.parametrize(("name", "level"), [("33-Fetch-18-follower-first", 30), ("49-Fetch-17-mv39-follower", 21)])
def test_the_versions_are_those_that_kafkas_followers_sent(name: str, level: int) -> None:
    """A table that was written down wrong would agree with itself."""
    assert decode_request_header(captured(name)).api_version == metadata_protocol(level).fetch


def test_an_upgrade_of_the_cluster_reaches_its_followers() -> None:
    """Followers would go on in the old version until they are restarted, or in a newer one after a downgrade."""
    features = Features(10, {"metadata.version": 21}, KRAFT_FEATURES)
    cache = MetadataCache(ClusterImage.of("c", features=features))
    settings = FetcherSettingsByVersion(BrokerConfig.from_mapping({"log.dirs": "/"}), MetadataProtocol(cache))
    assert settings().protocol.fetch == 17
    assert settings() is settings()
    cache.apply(MetadataDelta(features=replace(features, epoch=20, chosen={"metadata.version": 30})))
    assert settings().protocol.fetch == 18
    cache.apply(MetadataDelta(features=replace(features, epoch=30, chosen={"metadata.version": 19})))
    assert settings().protocol.fetch == 16
