"""ZooKeeper in memory: one tree, any number of sessions, sessions that are cut off or expire when a test says so."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kbroker.cluster.zookeeper.session import (
    ANY_VERSION,
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SessionState,
    Set,
    Stat,
    Watch,
    Znode,
    ZooKeeperError,
)


@dataclass
class _Node:
    data: bytes | None
    czxid: int
    owner: int = 0
    version: int = 0
    created: int = 0
    children: set[str] = field(default_factory=set)


class FakeEnsemble:
    """The tree and who watches it."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {"/": _Node(None, 0)}
        self.zxid = 0
        self.sessions = 0
        self.data_watches: dict[str, list[tuple[FakeSession, Watch]]] = {}
        self.child_watches: dict[str, list[tuple[FakeSession, Watch]]] = {}
        self.writes: list[str] = []
        self.ctimes_ms: dict[str, int] = {}
        """When znodes were made, where a test says so."""
        self.contents: list[tuple[str, bytes | None]] = []
        """Every content that a znode had, in order."""

    def session(self) -> FakeSession:
        """A new session, connected."""
        return FakeSession(self)

    def content(self, path: str) -> bytes | None:
        """What a znode holds, for tests."""
        return self.nodes[path].data

    def children_of(self, path: str) -> list[str]:
        """The names of a znode's children, for tests."""
        return sorted(self.nodes[path].children)

    def apply(self, operation: Operation, session: int) -> Stat | None:
        path = operation.path
        node = self.nodes.get(path)
        if isinstance(operation, Create):
            return self._create(path, operation.data, session if operation.ephemeral else 0)
        if node is None:
            raise NoNodeError(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        if isinstance(operation, Check):
            return None
        self.zxid += 1
        if isinstance(operation, Set):
            node.data, node.version = operation.data, node.version + 1
            self.writes.append(f"set {path}")
            self.contents.append((path, operation.data))
            self._fire(self.data_watches, path)
            return Stat(node.version, node.czxid, node.owner)
        assert isinstance(operation, Delete)
        if node.children:
            raise NotEmptyError(path)
        self.remove(path)
        return None

    def _create(self, path: str, data: bytes | None, owner: int) -> Stat:
        parent = path.rpartition("/")[0] or "/"
        if path in self.nodes:
            raise NodeExistsError(path)
        if parent not in self.nodes:
            raise NoNodeError(parent)
        self.zxid += 1
        self.nodes[path] = _Node(data, self.zxid, owner)
        self.nodes[parent].children.add(path.rpartition("/")[2])
        self.nodes[parent].created += 1
        self.writes.append(f"create {path}")
        self.contents.append((path, data))
        self._fire(self.data_watches, path)
        self._fire(self.child_watches, parent)
        return Stat(0, self.zxid, owner)

    def remove(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        del self.nodes[path]
        self.nodes[parent or "/"].children.discard(name)
        self.writes.append(f"delete {path}")
        self._fire(self.data_watches, path)
        self._fire(self.child_watches, path)
        self._fire(self.child_watches, parent or "/")

    def end_session(self, session: int) -> None:
        """What is there for as long as a session goes."""
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self.zxid += 1
            self.remove(path)

    def _fire(self, watches: dict[str, list[tuple[FakeSession, Watch]]], path: str) -> None:
        for session, watch in watches.pop(path, ()):
            if session.state is SessionState.CONNECTED:
                watch()

    def multi(self, operations: Sequence[Operation], session: int) -> list[Stat | None]:
        before = (copy.deepcopy(self.nodes), self.zxid, len(self.writes), len(self.contents))
        data, children = self.data_watches, self.child_watches
        fired: list[str] = []
        self.data_watches, self.child_watches = {}, {}
        results: list[Stat | None] = []
        try:
            for index, each in enumerate(operations):
                try:
                    results.append(self.apply(each, session))
                except ZooKeeperError as error:
                    self.nodes, self.zxid = before[0], before[1]
                    del self.writes[before[2] :], self.contents[before[3] :]
                    raise MultiError(index, error) from error
            fired = [each.path for each in operations if not isinstance(each, Check)]
        finally:
            self.data_watches, self.child_watches = data, children
        for path in fired:
            self._fire(self.data_watches, path)
            self._fire(self.child_watches, path.rpartition("/")[0] or "/")
        return [result if isinstance(each, Set) else None for each, result in zip(operations, results, strict=True)]


class FakeSession:
    """One session after the other, as `KazooSession`; every call gives the loop a turn."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        self.ensemble = ensemble
        self.state = SessionState.CONNECTED
        self._listeners: list[Callable[[SessionState], None]] = []
        ensemble.sessions += 1
        self.session_id = ensemble.sessions
        self._back = asyncio.Event()
        self._back.set()
        self.calls = 0
        self._dropped = False
        self._loses_answer = False

    # What a test does to it

    def suspend(self) -> None:
        """Cut the connection: watches are lost, ephemeral nodes stay."""
        self._forget()
        self._back.clear()
        self._move(SessionState.SUSPENDED)

    def resume(self) -> None:
        """The connection is back, with the same session, or a new one where that has ended."""
        if self._dropped:
            self._dropped = False
            self._move(SessionState.EXPIRED)
            self.ensemble.sessions += 1
            self.session_id = self.ensemble.sessions
        self._back.set()
        self._move(SessionState.CONNECTED)

    def drop(self) -> None:
        """ZooKeeper ends the session, which the client learns when it is back."""
        if self.state is SessionState.CONNECTED:
            self.suspend()
        self._dropped = True
        self.ensemble.end_session(self.session_id)

    def expire(self) -> None:
        """The session ends, and a new one begins."""
        self.drop()
        self.resume()

    def lose_next_answer(self) -> None:
        """The next transaction is carried out, and the connection cut before its answer comes."""
        self._loses_answer = True

    def _forget(self) -> None:
        for watches in (self.ensemble.data_watches, self.ensemble.child_watches):
            for path, found in watches.items():
                watches[path] = [(session, watch) for session, watch in found if session is not self]

    def _move(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            listener(state)

    # The interface

    async def open(self) -> None:
        """Connected from the start."""

    async def close(self) -> None:
        """The session ends, and none follows."""
        self.drop()
        self._move(SessionState.CLOSED)

    def subscribe(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def connected(self) -> None:
        await self._back.wait()

    async def _turn(self) -> None:
        self.calls += 1
        session = self.session_id
        if self.state is not SessionState.CONNECTED:
            raise ConnectionLossError("suspended")
        await asyncio.sleep(0)
        if self.session_id != session:
            raise SessionExpiredError("expired")
        if self.state is not SessionState.CONNECTED:
            raise ConnectionLossError("suspended")

    def _watch(self, watches: dict[str, list[tuple[FakeSession, Watch]]], path: str, watch: Watch | None) -> None:
        if watch is not None:
            watches.setdefault(path, []).append((self, watch))

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        await self._turn()
        znode = self._znode(path)
        if znode is None:
            raise NoNodeError(path)
        self._watch(self.ensemble.data_watches, path, watch)
        return znode

    async def get_each(self, paths: Sequence[str]) -> list[Znode | None]:
        await self._turn()
        return [self._znode(path) for path in paths]

    def _znode(self, path: str) -> Znode | None:
        node = self.ensemble.nodes.get(path)
        if node is None:
            return None
        return Znode(node.data, Stat(node.version, node.czxid, node.owner, self.ensemble.ctimes_ms.get(path, 0)))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._turn()
        self._watch(self.ensemble.data_watches, path, watch)
        znode = self._znode(path)
        return None if znode is None else znode.stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._turn()
        node = self.ensemble.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        self._watch(self.ensemble.child_watches, path, watch)
        return sorted(node.children)

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        await self._turn()
        if sequential:
            parent = self.ensemble.nodes.get(path.rpartition("/")[0] or "/")
            if parent is None:
                raise NoNodeError(path)
            path = f"{path}{parent.created:010d}"
        self.ensemble._create(path, data, self.session_id if ephemeral else 0)
        return path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        await self._turn()
        stat = self.ensemble.apply(Set(path, data, version), self.session_id)
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._turn()
        self.ensemble.apply(Delete(path, version), self.session_id)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        await self._turn()
        results = self.ensemble.multi(operations, self.session_id)
        if self._loses_answer:
            self._loses_answer = False
            self.suspend()
            raise ConnectionLossError("the answer was lost")
        return results


def run(body: Callable[[FakeEnsemble], Awaitable[None]]) -> None:
    """Run a test with an ensemble of its own, and a limit of time."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await body(FakeEnsemble())

    asyncio.run(bounded())
