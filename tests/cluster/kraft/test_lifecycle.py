"""What a broker sends to the controllers of a KRaft cluster in each part of its life.

Of `kbroker.cluster.kraft.lifecycle` and `kbroker.cluster.kraft.lifecycle_client`; also of `kbroker.security.protocols`
and `kbroker.cluster.kraft`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kbroker.cluster.client import ClientSettings
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.controller_client import ControllerClient
from kbroker.cluster.kraft.lifecycle import (
    DUPLICATE_SECONDS,
    UNFENCE_SECONDS,
    Lifecycle,
    OwnIdentity,
    RegistrationRefusedError,
    State,
)
from kbroker.cluster.kraft.lifecycle_client import LifecycleClient, LifecycleView
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.protocols import protocol_number
from tests.cluster.kraft.stand_in import FoundController
from tests.cluster.nodes import Peer

NODE, DIRECTORY, OTHER_DIRECTORY = 9, b"d" * 16, b"e" * 16
HEARTBEAT_SECONDS = 2.0
SHORT_SECONDS, LONG_SECONDS = 0.3, 600.0


def lifecycle(previous_epoch: int = 5, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Lifecycle:
    identity = OwnIdentity(NODE, "cluster", b"i" * 16, "r", (), lambda: [DIRECTORY])
    return Lifecycle(identity, previous_epoch, heartbeat_seconds)


def registered(life: Lifecycle, epoch: int = 21) -> None:
    life.registered(wire.BrokerRegistrationResponse(broker_epoch=epoch))


def beat(life: Lifecycle, *, knows_itself: bool = True, **answer: Any) -> float:
    return life.answered(wire.BrokerHeartbeatResponse(**answer), knows_itself=knows_itself)


def running(life: Lifecycle) -> None:
    registered(life)
    beat(life, is_caught_up=True, is_fenced=True)
    life.is_ready = True
    beat(life, is_caught_up=True, is_fenced=False)


def test_a_life_from_registration_to_the_end() -> None:
    """A broker would never be unfenced, or be let go with leaders that nobody else has yet."""
    life = lifecycle()
    assert life.registration([]).previous_broker_epoch == 5
    registered(life)
    assert (life.state, life.epoch) == (State.CATCHING_UP, 21)
    request = life.heartbeat(20)
    assert (request.broker_epoch, request.current_metadata_offset, request.want_fence) == (21, 20, True)
    beat(life, is_caught_up=False, is_fenced=True)
    assert life.state is State.CATCHING_UP
    beat(life, is_caught_up=True, is_fenced=True)
    assert life.state is State.FENCED
    assert beat(life, is_caught_up=True, is_fenced=True) == HEARTBEAT_SECONDS
    life.is_ready = True
    assert not life.heartbeat(21).want_fence
    assert beat(life, is_caught_up=True, is_fenced=True) == UNFENCE_SECONDS
    assert beat(life, is_caught_up=True, is_fenced=False) == HEARTBEAT_SECONDS
    assert life.state is State.RUNNING
    life.leave()
    request = life.heartbeat(30)
    assert request.want_shut_down and not request.want_fence
    beat(life, should_shut_down=False)
    assert life.state is State.LEAVING
    beat(life, should_shut_down=True)
    assert (life.state, life.epoch) == (State.GONE, 21)


def test_an_image_without_the_own_registration_is_not_caught_up() -> None:
    """The broker would take the roles of its earlier life."""
    life = lifecycle()
    registered(life)
    beat(life, knows_itself=False, is_caught_up=True, is_fenced=True)
    assert life.state is State.CATCHING_UP


def test_a_stale_epoch_registers_anew_as_the_same_incarnation() -> None:
    """A broker that somebody has unregistered would be out of the cluster until it is started again."""
    life = lifecycle()
    running(life)
    before = life.registration([])
    assert beat(life, error_code=ErrorCode.STALE_BROKER_EPOCH) == 0.0
    assert (life.state, life.epoch) == (State.UNREGISTERED, -1)
    again = life.registration([])
    assert again.incarnation_id == before.incarnation_id
    assert again.previous_broker_epoch == 21
    registered(life, 40)
    assert life.heartbeat(39).broker_epoch == 40


def test_an_earlier_life_whose_session_is_not_over_is_waited_for() -> None:
    """A broker would give up that was started again within nine seconds."""
    life = lifecycle()
    answer = wire.BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert life.registered(answer) == DUPLICATE_SECONDS
    assert life.state is State.UNREGISTERED


@pytest.mark.parametrize(
    "code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION]
)
def test_what_cannot_change_ends_the_broker(code: ErrorCode) -> None:
    """A broker of another cluster, or too old for this one, would ask for ever."""
    with pytest.raises(RegistrationRefusedError, match=code.name):
        lifecycle().registered(wire.BrokerRegistrationResponse(error_code=code))


def test_failed_directories_are_in_every_heartbeat() -> None:
    """The controllers would have a replica lead whose disk is gone."""
    life = lifecycle()
    running(life)
    life.offline_dirs.add(OTHER_DIRECTORY)
    assert life.heartbeat(1).offline_log_dirs == [OTHER_DIRECTORY]
    assert life.heartbeat(2).offline_log_dirs == [OTHER_DIRECTORY]


def test_failures_are_repeated_more_and_more_slowly_and_no_slower_than_heartbeats() -> None:
    """A controller that comes back would be met by a storm, or by brokers whose sessions are over."""
    life = lifecycle()
    waits = [life.failed() for _ in range(12)]
    assert waits == sorted(waits) and waits[0] < waits[-1] <= HEARTBEAT_SECONDS


def test_one_that_is_not_registered_leaves_at_once() -> None:
    """A stop would wait for controllers that do not know the broker."""
    life = lifecycle()
    life.leave()
    assert life.state is State.GONE


def test_security_protocols_have_kafkas_numbers() -> None:
    """Other brokers would connect in the clear to a listener with TLS."""
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    assert [protocol_number(each) for each in names] == [0, 1, 2, 3]


class Cluster:
    """What the broker's image says, and a controller that answers when told to."""

    def __init__(self, peer: Peer, loop: asyncio.AbstractEventLoop, **patience: float) -> None:
        self.peer = peer
        self.epoch, self.is_fenced = -1, True
        self.failures: list[str] = []
        self.heartbeats = 2
        found = FoundController(lambda: Endpoint("127.0.0.1", peer.port))
        client = ControllerClient(loop, TcpTransport(loop), found, ClientSettings(str(NODE), negotiates=True))
        view = LifecycleView(lambda: 20, lambda: self.epoch, lambda: self.is_fenced)
        self.lifecycle = lifecycle(heartbeat_seconds=0.05)
        seconds = {
            "session_seconds": LONG_SECONDS,
            "registration_seconds": LONG_SECONDS,
            "failure_seconds": LONG_SECONDS,
            **patience,
        }
        self.life = LifecycleClient(loop, client, self.lifecycle, view, self.failures.append, **seconds)

    async def answer(self, key: ApiKey, make: Callable[[Any], Any]) -> Any:
        header, body = await self.request()
        assert header.api_key == key
        self.peer.answer(header.correlation_id, make(body), header.api_version)
        return body

    async def request(self) -> tuple[Any, Any]:
        """The next one but for the question for versions, which is answered."""
        while True:
            header, body = await self.peer.request()
            if header.api_key != ApiKey.API_VERSIONS:
                return header, body
            row = wire.ApiVersionsResponse.ApiVersion
            rows = [
                row(api_key=key, max_version=most)
                for key, most in ((ApiKey.BROKER_REGISTRATION, 4), (ApiKey.BROKER_HEARTBEAT, self.heartbeats))
            ]
            answer = wire.ApiVersionsResponse(api_keys=rows)
            self.peer.answer(header.correlation_id, answer, header.api_version, flexible=False)

    async def become_running(self) -> None:
        self.life.start([])
        await self.answer(ApiKey.BROKER_REGISTRATION, lambda _: wire.BrokerRegistrationResponse(broker_epoch=21))
        await self.answer(ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse(is_caught_up=True))
        assert self.life.state is State.CATCHING_UP
        self.epoch = 21
        self.life.image_changed()
        await self.answer(
            ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)
        )
        await self.life.caught_up()
        unfenced = asyncio.ensure_future(self.life.unfenced())
        wants_fence = True
        while wants_fence:
            body = await self.answer(
                ApiKey.BROKER_HEARTBEAT,
                lambda body: wire.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=body.want_fence),
            )
            wants_fence = body.want_fence
        assert not unfenced.done()
        self.is_fenced = False
        self.life.image_changed()
        await unfenced


def in_a_cluster(scenario: Callable[[Cluster], Awaitable[None]], **patience: float) -> None:
    async def main() -> None:
        peer = Peer()
        await peer.start()
        cluster = Cluster(peer, asyncio.get_running_loop(), **patience)
        await asyncio.wait_for(scenario(cluster), 60)
        await cluster.life.close()
        await peer.stop()

    asyncio.run(main())


def test_a_broker_is_unfenced_when_its_own_image_says_so() -> None:
    """A start would be over while clients still find the broker fenced."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.become_running()

    in_a_cluster(scenario)


def test_a_registration_that_is_removed_from_the_log_is_made_again() -> None:
    """An administrator's UnregisterBroker of a living broker would leave it out for good."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.become_running()
        cluster.epoch = -1
        cluster.life.image_changed()
        while True:
            header, _ = await cluster.request()
            if header.api_key == ApiKey.BROKER_REGISTRATION:
                break
            answer = wire.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            cluster.peer.answer(header.correlation_id, answer, header.api_version)
        cluster.peer.answer(header.correlation_id, wire.BrokerRegistrationResponse(broker_epoch=33), header.api_version)
        await cluster.answer(ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse(is_caught_up=True))
        assert cluster.life.epoch == 33

    in_a_cluster(scenario)


def test_a_first_registration_that_nobody_takes_ends_the_broker() -> None:
    """An operator would see a broker that starts for ever (initial.broker.registration.timeout.ms)."""

    async def scenario(cluster: Cluster) -> None:
        cluster.life.start([])
        while not cluster.failures:
            asking = asyncio.ensure_future(cluster.request())
            done, _ = await asyncio.wait((asking,), timeout=0.05)
            if done:
                header, _body = asking.result()
                answer = wire.BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
                cluster.peer.answer(header.correlation_id, answer, header.api_version)
            else:
                asking.cancel()
        assert "initial.broker.registration.timeout.ms" in cluster.failures[0]

    in_a_cluster(scenario, registration_seconds=SHORT_SECONDS)


def test_leaving_asks_until_the_controllers_let_go() -> None:
    """Leadership would not have moved when the broker stops."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.become_running()
        leaving = asyncio.ensure_future(cluster.life.leave(10))
        asked = 0
        while asked < 3:
            body = await cluster.answer(ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse())
            asked += body.want_shut_down
        assert not leaving.done()
        await cluster.answer(ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse(should_shut_down=True))
        assert await leaving

    in_a_cluster(scenario)


def test_a_broker_is_heard_for_a_session_after_a_heartbeat_that_is_answered() -> None:
    """One that was cut off would go on to say what only the leader of today may say."""

    async def scenario(cluster: Cluster) -> None:
        assert not cluster.life.is_heard()
        await cluster.become_running()
        assert cluster.life.is_heard()
        header, _ = await cluster.request()
        while cluster.life.is_heard():
            await asyncio.sleep(0.01)
        # Late: the controllers may have fenced it since.
        cluster.peer.answer(header.correlation_id, wire.BrokerHeartbeatResponse(is_caught_up=True), header.api_version)
        await cluster.answer(ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse(is_caught_up=True))
        while not cluster.life.is_heard():
            await cluster.answer(ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse(is_caught_up=True))

    in_a_cluster(scenario, session_seconds=SHORT_SECONDS)


def test_a_failed_directory_that_no_controller_hears_of_ends_the_broker() -> None:
    """The controllers would go on to take replicas for alive that nobody can read (log.dir.failure.timeout.ms)."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.become_running()
        cluster.life.log_dirs_failed({OTHER_DIRECTORY})
        told = False
        while not told:
            body = await cluster.answer(
                ApiKey.BROKER_HEARTBEAT, lambda _: wire.BrokerHeartbeatResponse(is_caught_up=True)
            )
            told = body.offline_log_dirs == [OTHER_DIRECTORY]
        cluster.life.log_dirs_failed({OTHER_DIRECTORY, DIRECTORY})
        while not cluster.failures:
            await cluster.answer(
                ApiKey.BROKER_HEARTBEAT,
                lambda body: wire.BrokerHeartbeatResponse(
                    error_code=ErrorCode.NOT_CONTROLLER if DIRECTORY in body.offline_log_dirs else 0
                ),
            )
            await asyncio.sleep(0.01)
        assert "log.dir.failure.timeout.ms" in cluster.failures[0]

    in_a_cluster(scenario, failure_seconds=SHORT_SECONDS)


def test_cordoned_directories_are_told_once_the_controllers_know_the_broker() -> None:
    """The controllers would go on to place new replicas in a directory that an operator empties (KIP-1066)."""
    cordoned = [OTHER_DIRECTORY]
    identity = OwnIdentity(NODE, "cluster", b"i" * 16, None, (), lambda: [DIRECTORY, OTHER_DIRECTORY], lambda: cordoned)
    life = Lifecycle(identity, -1, HEARTBEAT_SECONDS)
    registered(life)
    assert life.heartbeat(1).cordoned_log_dirs is None
    beat(life, is_caught_up=True, is_fenced=True)
    assert life.heartbeat(1).cordoned_log_dirs == [OTHER_DIRECTORY]
    cordoned.clear()
    assert life.heartbeat(1).cordoned_log_dirs == []


def test_older_controllers_are_asked_in_what_they_have() -> None:
    """A broker could not be moved to kbroker before its controllers are of Kafka 4.3."""
    life = lifecycle()
    running(life)
    life.offline_dirs.add(OTHER_DIRECTORY)
    assert life.heartbeat(1, 1).cordoned_log_dirs is None
    assert life.heartbeat(1, 1).offline_log_dirs == [OTHER_DIRECTORY]
    assert life.heartbeat(1, 0).offline_log_dirs == []
    feature = wire.BrokerRegistrationRequest.Feature
    ranges = (feature(name="metadata.version", min_supported_version=7), feature(name="group.version"))
    identity = OwnIdentity(NODE, "cluster", b"i" * 16, None, ranges, list)
    life = Lifecycle(identity, -1, HEARTBEAT_SECONDS)
    assert [each.name for each in life.registration([], 4).features] == ["metadata.version", "group.version"]
    assert [each.name for each in life.registration([], 3).features] == ["metadata.version"]

    async def scenario(cluster: Cluster) -> None:
        cluster.heartbeats = 1
        await cluster.become_running()

    in_a_cluster(scenario)
