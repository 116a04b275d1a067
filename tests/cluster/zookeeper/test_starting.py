"""A broker's start while ZooKeeper is away, or goes away on the way."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.cli.main import run as run_command
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.outbound import Outbound
from kbroker.cluster.protocol_version import protocol_version
from kbroker.cluster.zookeeper import member as member_module
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.kazoo_session import KazooSession
from kbroker.cluster.zookeeper.member import MemberNetwork, MemberParts, ZooKeeperMember
from kbroker.cluster.zookeeper.registration import make_roots
from kbroker.cluster.zookeeper.session import ConnectionLossError, Create, Operation, SessionState, Stat, set_or_create
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from kbroker.cluster.zookeeper.starting import through_losses
from kbroker.cluster.zookeeper.znodes import ControllerZnode, encode_config, encode_controller
from kbroker.config import BrokerConfig
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, Endpoint
from kbroker.metrics.readiness import ReadyState
from tests.broker_process import BrokerError
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession
from tests.cluster.zookeeper.membered import SETTINGS, broker_over, run
from tests.cluster.zookeeper.processes import Kbroker
from tests.compat.waiting import wait_for
from tests.scenarios.faults.proxy import Proxies, Proxy
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

CALLS = ("get", "get_each", "exists", "children", "create", "set", "delete", "multi")


class LossySession(FakeSession):
    """A session whose connection is lost at one call, before it is done or when it is, and comes back."""

    def __init__(self, ensemble: FakeEnsemble, lost_at: int = 0, *, done: bool = False, expires: bool = False) -> None:
        super().__init__(ensemble)
        self._lost_at = lost_at
        self._done = done
        self._expires = expires

    async def open(self) -> None:
        """It is."""

    async def close(self) -> None:
        """Nothing is left of it."""
        self.drop()

    def _is_lost(self, *, done: bool) -> bool:
        return self.calls == self._lost_at and done == self._done

    def _lose(self) -> None:
        self._lost_at = 0
        (self.drop if self._expires else self.suspend)()
        asyncio.get_running_loop().call_soon(self.resume)

    async def _turn(self) -> None:
        await super()._turn()
        if self._is_lost(done=False):
            self._lose()
            raise ConnectionLossError("lost")

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CALLS:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await found(*args, **kwargs)
            if self._is_lost(done=True):
                self._lose()
                raise ConnectionLossError("lost")
            return result

        return call


class LateSession(FakeSession):
    """Of a process that was held up: it is connected again, and what waits for that has not heard of it."""

    async def connected(self) -> None:
        self.resume()
        await asyncio.get_running_loop().create_future()


async def started(ensemble: FakeEnsemble, session: LossySession) -> None:
    """A broker starts over the session, and is a member then."""
    loop = asyncio.get_running_loop()
    config = BrokerConfig.from_mapping({"zookeeper.connect": SETTINGS.connect})
    failures: list[str] = []
    parts = MemberParts(config, SYSTEM_CLOCK, Slices(loop), protocol_version("3.9"), "PLAINTEXT", failures.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_module, "KazooSession", lambda _settings, _loop: session)
        member = ZooKeeperMember(SETTINGS, parts, loop, MemberNetwork.over_network(SETTINGS, loop, Outbound(loop)))
    cluster_id = await member.open(None, None)
    assert ensemble.nodes[paths.CLUSTER_ID].data is not None
    assert cluster_id in str(ensemble.nodes[paths.CLUSTER_ID].data)
    await member.load(MetadataCache(ClusterImage.of(cluster_id)))
    assert member.topic_configs("t") == {"retention.ms": "7"}
    await member.register(BrokerImage(config.node_id, {"PLAINTEXT": Endpoint("here", 9092)}))
    while True:
        node = ensemble.nodes.get(paths.broker(config.node_id))
        if node is not None and (node.owner, node.czxid) == (session.session_id, member.epoch):
            break
        await asyncio.sleep(0)
    assert not failures
    await member.close()


async def ensemble_with_a_controller() -> FakeEnsemble:
    ensemble = FakeEnsemble()
    other = ensemble.session()
    await make_roots(other)
    await set_or_create(other, paths.topic_config("t"), encode_config({"retention.ms": "7"}))
    content = encode_controller(ControllerZnode(9, 0))
    await other.multi([Create(paths.CONTROLLER, content, ephemeral=True)])
    return ensemble


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("done", [False, True])
def test_a_start_outlives_a_lost_connection_at_every_step(done: bool, expires: bool) -> None:
    """A broker that is started while a ZooKeeper server is replaced would end, and somebody have to start it again."""

    async def body() -> None:
        async with asyncio.timeout(120):
            ensemble = await ensemble_with_a_controller()
            whole = LossySession(ensemble)
            await started(ensemble, whole)
            assert whole.calls > len(paths.ROOTS)
            for lost_at in range(1, whole.calls + 1):
                ensemble = await ensemble_with_a_controller()
                await started(ensemble, LossySession(ensemble, lost_at, done=done, expires=expires))

    asyncio.run(body())


def test_a_connection_that_does_not_come_back_is_named_with_the_time_waited() -> None:
    """Somebody would look for the fault in the broker."""

    async def body() -> None:
        session = FakeEnsemble().session()
        session.suspend()
        settings = ZooKeeperSettings("somewhere:2181/kafka", 2_000, 20)
        words = (
            "the connection to ZooKeeper at somewhere:2181/kafka (zookeeper.connect) was lost during the start "
            "and did not come back within 0.02 s (zookeeper.connection.timeout.ms)"
        )
        with pytest.raises(ConnectionLossError, match=re.escape(words)):
            await through_losses(session, settings, lambda: make_roots(session))

    asyncio.run(body())


def test_a_connection_that_is_back_when_the_time_is_over_is_used() -> None:
    """A start that was held up for as long as it waits would end, though ZooKeeper is there again."""

    async def body() -> None:
        ensemble = FakeEnsemble()
        session = LateSession(ensemble)
        session.suspend()
        await through_losses(session, ZooKeeperSettings("somewhere:2181", 2_000, 20), lambda: make_roots(session))
        assert paths.BROKER_IDS in ensemble.nodes

    asyncio.run(body())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.mark.compat
@pytest.mark.parametrize("chroot", ["", "/a/b"])
def test_a_session_opens_over_a_connection_that_ends_on_the_way(server: ZooKeeperServer, chroot: str) -> None:
    """kazoo's own error would end the start, or its call wait for an answer that does not come."""

    async def open_through(proxy: Proxy, sends: int) -> None:
        address = f"127.0.0.1:{proxy.port}{chroot and f'{chroot}{sends}'}"
        settings = ZooKeeperSettings(address, 2_000, 20_000)
        session = KazooSession(settings, asyncio.get_running_loop())
        await session.open()
        await through_losses(session, settings, lambda: make_roots(session))
        assert await session.exists(paths.BROKER_IDS) is not None
        await session.close()

    with contextlib.closing(Proxies()) as proxies:
        for sends in range(9):
            proxy = proxies.to(server.port, first_sends=sends)
            asyncio.run(open_through(proxy, sends))
            assert proxy.connections > 1


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_broker_without_zookeeper_ends_with_words_that_say_so(tmp_path: Path, is_silent: bool) -> None:
    """An administrator would read kazoo's traceback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}/kafka"
        if not is_silent:
            listener.close()
        broker = Kbroker(1, tmp_path, address, {"zookeeper.connection.timeout.ms": "1000"})
        words = (
            f"ZooKeeper at {address} (zookeeper.connect) does not answer within 1 s (zookeeper.connection.timeout.ms)"
        )
        with pytest.raises(BrokerError) as caught:
            broker.start()
        assert "ended with status 1" in str(caught.value)
        assert f"cannot start: {words}; is it running" in broker.output()
        assert "Traceback" not in broker.output()


WAITED_FOR = "stopped while it waited for its cluster"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_that_waits_for_a_server_that_says_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    """An administrator who sees that the address is wrong would wait for the time-out, or kill the broker."""
    long = {"zookeeper.connection.timeout.ms": "600000", "zookeeper.session.timeout.ms": "600000"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        broker = Kbroker(1, tmp_path, f"127.0.0.1:{listener.getsockname()[1]}/kafka", long)
        broker.spawn()
        try:
            connection, _ = listener.accept()
            with connection:
                assert broker.ended_by(number) == 0
        finally:
            broker.kill()
    assert WAITED_FOR in broker.output()
    assert "Traceback" not in broker.output()


@pytest.mark.compat
def test_a_signal_ends_a_start_that_waits_for_its_id(server: ZooKeeperServer, tmp_path: Path) -> None:
    """As above, where another broker has the id."""
    connect = f"{server.address}/taken"
    first = Kbroker(1, tmp_path / "first", connect, {})
    second = Kbroker(1, tmp_path / "second", connect, {"zookeeper.session.timeout.ms": "600000"})
    first.start()
    try:
        second.spawn()
        wait_for(lambda: "is registered by another session" in second.output(), "the second broker to wait", seconds=60)
        assert second.ended_by(signal.SIGTERM) == 0
        assert WAITED_FOR in second.output()
    finally:
        second.kill()
        first.kill()


class HangingSession(FakeSession):
    """ZooKeeper does not answer the registration of a broker any more."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        super().__init__(ensemble)
        self.hangs = asyncio.Event()

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        if any(each.path == paths.broker(1) for each in operations):
            self.hangs.set()
            await asyncio.Event().wait()
        return await super().multi(operations)


def test_a_signal_ends_a_start_that_waits_for_its_registration(tmp_path: Path) -> None:
    """As above, where all parts run by then: they end in the order of any stop, and the next start is a clean one."""

    async def body() -> None:
        stopping = asyncio.Event()
        ensemble = await ensemble_with_a_controller()
        session = HangingSession(ensemble)
        broker = broker_over(session, tmp_path, stopping, listeners="PLAINTEXT://127.0.0.1:0")
        start = asyncio.create_task(broker.start())
        await session.hangs.wait()
        assert not start.done()
        stopping.set()
        await start
        assert broker.readiness.state is ReadyState.STARTING
        await broker.stop()
        assert paths.broker(1) not in ensemble.nodes
        assert session.state is SessionState.CLOSED

    run(body())
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.compat
def test_groups_of_a_path_that_is_not_there_are_no_empty_list(
    server: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt path would look like a ZooKeeper that no consumer uses any more."""
    connect = f"{server.address}/misspelt/kafka"
    assert run_command(["groups", "list", "--zookeeper", connect]) == 1
    assert f"{connect}: ZooKeeper has no path /misspelt/kafka" in capsys.readouterr().err
    assert run_command(["groups", "list", "--zookeeper", server.address]) == 0
