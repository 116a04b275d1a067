"""The session's interface, once over real ZooKeeper and once over the model that other tests and simulations use."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.interfaces import IAsyncResult

from kbroker.cluster.zookeeper.kazoo_session import KazooSession
from kbroker.cluster.zookeeper.multi_read import MultiRead
from kbroker.cluster.zookeeper.session import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionState,
    Set,
    ZooKeeper,
    ensure_path,
    set_or_create,
)
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from tests.cluster.zookeeper.fake import FakeEnsemble
from tests.zookeeper_server import ZooKeeperServer, zookeeper_ensemble, zookeeper_server

pytestmark = pytest.mark.compat
SESSION_MS = 6_000
Body = Callable[[ZooKeeper, ZooKeeper], Awaitable[None]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def settings(address: str) -> ZooKeeperSettings:
    return ZooKeeperSettings(address, SESSION_MS, 10_000)


@pytest.fixture(params=["model", "real"])
def run(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    """Run a body with two sessions of an empty tree."""

    def real(body: Body) -> None:
        server: ZooKeeperServer = request.getfixturevalue("server")
        chroot = f"{server.address}/{request.node.name.partition('[')[0]}"

        async def main() -> None:
            loop = asyncio.get_running_loop()
            one, two = (KazooSession(settings(chroot), loop) for _ in range(2))
            await one.open()
            await two.open()
            try:
                await body(one, two)
            finally:
                await one.close()
                await two.close()

        asyncio.run(main())

    def model(body: Body) -> None:
        async def main() -> None:
            ensemble = FakeEnsemble()
            await body(ensemble.session(), ensemble.session())

        asyncio.run(main())

    return real if request.param == "real" else model


def test_znodes_come_change_and_go(run: Callable[[Body], None]) -> None:
    """Every part of a cluster would act on znodes that are not as it thinks."""

    async def body(one: ZooKeeper, two: ZooKeeper) -> None:
        await ensure_path(one, "/a/b")
        await ensure_path(one, "/a/b")
        assert await two.children("/a") == ["b"]
        with pytest.raises(NodeExistsError):
            await two.create("/a/b")
        with pytest.raises(NoNodeError):
            await one.create("/none/b")
        assert (await one.get("/a/b")).stat.version == 0
        assert (await two.set("/a/b", b"x", 0)).version == 1
        with pytest.raises(BadVersionError):
            await one.set("/a/b", b"y", 0)
        found = await one.get("/a/b")
        assert found.data == b"x"
        assert found.stat.version == 1
        with pytest.raises(NotEmptyError):
            await one.delete("/a")
        with pytest.raises(BadVersionError):
            await one.delete("/a/b", 0)
        await one.delete("/a/b")
        assert await two.exists("/a/b") is None
        await set_or_create(two, "/c/d/e", b"1")
        await set_or_create(two, "/c/d/e", b"2")
        assert (await one.get("/c/d/e")).data == b"2"
        names = [await one.create("/c/n_", b"", sequential=True) for _ in range(2)]
        assert names == sorted(names)
        assert all(len(name) == len("/c/n_") + 10 for name in names)

    run(body)


def test_many_znodes_are_read_by_one_request(run: Callable[[Body], None]) -> None:
    """A controller that is elected would read the states of its partitions one by one, for seconds."""

    async def body(one: ZooKeeper, two: ZooKeeper) -> None:
        await one.create("/many", None)
        await one.multi([Create(f"/many/{number}", b"%d" % number * 50) for number in range(100)])
        await one.set("/many/7", b"")
        names = ["/many", "/none/there", *(f"/many/{number}" for number in range(101))]
        found = await two.get_each(names)
        for name, znode in zip(names, found, strict=True):
            if znode is None:
                assert await two.exists(name) is None, name
            else:
                assert znode == await two.get(name)
        assert [name for name, znode in zip(names, found, strict=True) if znode is None] == ["/none/there", "/many/100"]
        assert await two.get_each([]) == []

    run(body)


def test_a_server_too_old_for_reads_of_many_is_asked_for_each(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker could be the controller of a cluster whose ZooKeeper is older than 3.6."""
    monkeypatch.setattr(MultiRead, "type", 122)

    async def main() -> None:
        session = KazooSession(settings(f"{server.address}/old"), asyncio.get_running_loop())
        await session.open()
        try:
            await session.create("/a", b"1")
            for _ in range(2):
                first, second = await session.get_each(["/a", "/b"])
                assert first is not None
                assert first.data == b"1"
                assert second is None
        finally:
            await session.close()

    asyncio.run(main())


def test_one_lost_connection_does_not_end_reads_of_many(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next fail-over of a large cluster would take seconds more, until the broker is started again."""
    asked: list[Sequence[str]] = []
    read_many = KazooSession._read_many

    def read_or_lose(session: KazooSession, names: Sequence[str]) -> IAsyncResult:
        asked.append(names)
        if len(asked) == 1:
            raise ConnectionLoss
        return read_many(session, names)

    monkeypatch.setattr(KazooSession, "_read_many", read_or_lose)

    async def main() -> None:
        session = KazooSession(settings(f"{server.address}/once"), asyncio.get_running_loop())
        await session.open()
        try:
            with pytest.raises(ConnectionLossError):
                await session.get_each(["/a"])
            assert await session.get_each(["/a"]) == [None]
        finally:
            await session.close()

    asyncio.run(main())
    assert asked == [["/a"], ["/a"]]


def test_a_transaction_is_whole_or_nothing_and_names_the_culprit(run: Callable[[Body], None]) -> None:
    """A controller that is deposed would write one half of what it wanted."""

    async def body(one: ZooKeeper, two: ZooKeeper) -> None:
        await one.create("/epoch", b"1")
        await one.create("/t", b"")
        with pytest.raises(MultiError) as caught:
            await one.multi([Check("/epoch", 0), Create("/t/x"), Set("/t", b"new", 7), Delete("/t/x")])
        assert caught.value.index == 2
        assert isinstance(caught.value.cause, BadVersionError)
        assert await two.children("/t") == []
        results = await one.multi([Check("/epoch", 0), Create("/t/x", b"", True), Set("/t/x", b"new", 0)])
        assert results[:2] == [None, None]
        found = await two.get("/t/x")
        assert results[2] is not None
        assert (results[2].czxid, results[2].version) == (found.stat.czxid, 1)
        assert found.stat.owner == one.session_id

    run(body)


def test_watches_fire_once_for_what_others_do(run: Callable[[Body], None]) -> None:
    """A broker would not learn of others that come and go."""

    async def body(one: ZooKeeper, two: ZooKeeper) -> None:
        await one.create("/w", b"")
        fired: list[str] = []
        seen = asyncio.Event()

        def watch(name: str) -> Callable[[], None]:
            def call() -> None:
                fired.append(name)
                seen.set()

            return call

        await one.children("/w", watch("children"))
        await one.get("/w", watch("data"))
        assert await one.exists("/later", watch("later")) is None
        await two.create("/w/c", b"")
        await asyncio.wait_for(seen.wait(), 60)
        seen.clear()
        await two.create("/w/d", b"")
        await two.set("/w", b"1")
        await two.create("/later", b"")
        while len(fired) < 3:
            await asyncio.wait_for(seen.wait(), 60)
            seen.clear()
        assert sorted(fired) == ["children", "data", "later"]

    run(body)


def test_a_session_that_expires_is_followed_by_a_new_one(server: ZooKeeperServer) -> None:
    """A broker would go on as a member of a cluster that has forgotten it."""

    async def main() -> None:
        session = KazooSession(settings(server.address), asyncio.get_running_loop())
        await session.open()
        await session.multi([Create("/expiring", b"", True)])
        states: list[SessionState] = []
        session.subscribe(states.append)
        first = session.session_id
        stolen = session._client.client_id
        async with asyncio.timeout(60):
            # The client may take its session back before the thief has ended it.
            while SessionState.EXPIRED not in states:
                before = len(states)
                thief = KazooClient(server.address, client_id=stolen)
                for step in (thief.start, thief.stop, thief.close):
                    await asyncio.to_thread(step)
                while SessionState.CONNECTED not in states[before:]:
                    await asyncio.sleep(0.01)
            while states[-1] is not SessionState.CONNECTED:
                await asyncio.sleep(0.01)
        assert states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
        assert session.session_id != first
        assert await session.exists("/expiring") is None
        await session.close()

    asyncio.run(main())


def test_a_session_ends_with_its_process_and_its_nodes(run: Callable[[Body], None]) -> None:
    """A broker that stops would stay a member until the session times out."""

    async def body(one: ZooKeeper, two: ZooKeeper) -> None:
        gone = asyncio.Event()
        await one.multi([Create("/mine", b"", True)])
        assert await two.exists("/mine", gone.set) is not None
        if isinstance(one, KazooSession):
            await one.close()
        else:
            one.drop()  # type: ignore[attr-defined]
        await asyncio.wait_for(gone.wait(), 60)
        assert await two.exists("/mine") is None

    run(body)


@pytest.mark.slow
def test_a_frozen_ensemble_is_a_lost_connection_that_comes_back(tmp_path: Path) -> None:
    """A broker would wait for ever for a ZooKeeper that does not answer, or not come back to it."""

    async def main(servers: list[ZooKeeperServer]) -> None:
        session = KazooSession(settings(",".join(each.address for each in servers)), asyncio.get_running_loop())
        await session.open()
        states: list[SessionState] = []
        changed = asyncio.Event()
        session.subscribe(lambda state: (states.append(state), changed.set())[1])
        await session.multi([Create("/mine", b"", True)])
        first = session.session_id
        for each in servers:
            each.send(signal.SIGSTOP)
        while SessionState.SUSPENDED not in states:
            await asyncio.wait_for(changed.wait(), 30)
            changed.clear()
        with pytest.raises(ConnectionLossError):
            await session.get("/mine")
        for each in servers:
            each.send(signal.SIGCONT)
        await asyncio.wait_for(session.connected(), 60)
        # Servers that were frozen count the time that they did not see: the session may live, and its node with it.
        assert (await session.exists("/mine") is None) == (session.session_id != first)
        await session.close()

    with zookeeper_ensemble(tmp_path) as servers:
        asyncio.run(main(servers))
