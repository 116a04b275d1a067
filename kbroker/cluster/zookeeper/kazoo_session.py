"""ZooKeeper through kazoo, whose threads hand over to the loop.

kazoo makes a new session by itself when one has expired; it does not make ephemeral nodes again, and forgets watches at
every disconnection.  A call while there is no connection fails at once, where kazoo would let it wait.  kazoo gives up
when SASL fails, and it takes a server that dies during SASL for such a failure: a session that had been established is
then begun anew.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    UnimplementedError,
)
from kazoo.exceptions import (
    BadVersionError as KazooBadVersion,
)
from kazoo.exceptions import (
    NodeExistsError as KazooNodeExists,
)
from kazoo.exceptions import (
    NoNodeError as KazooNoNode,
)
from kazoo.exceptions import (
    NotEmptyError as KazooNotEmpty,
)
from kazoo.exceptions import (
    SessionExpiredError as KazooSessionExpired,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL as KazooAcl  # noqa: N811
from kazoo.security import ANYONE_ID_UNSAFE, OPEN_ACL_UNSAFE, Permissions, make_acl

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.multi_read import MultiRead
from kbroker.cluster.zookeeper.session import (
    ANY_VERSION,
    AuthenticationError,
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
    ensure_path,
)
from kbroker.cluster.zookeeper.starting import through_losses
from kbroker.errors import bare
from kbroker.outage import Outage

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.settings import ZooKeeperSettings

logger = logging.getLogger("kbroker.cluster")

REFUSED_SECONDS = 1.0
LOST_SECONDS = 0.05
ANSWER_SECONDS = 1.0
CLOSE_SECONDS = 2.0

_Value = TypeVar("_Value")

_ERRORS: tuple[tuple[type[Exception], type[ZooKeeperError]], ...] = (
    (KazooNoNode, NoNodeError),
    (KazooNodeExists, NodeExistsError),
    (KazooBadVersion, BadVersionError),
    (KazooNotEmpty, NotEmptyError),
    (KazooSessionExpired, SessionExpiredError),
    (ConnectionLoss, ConnectionLossError),
    (ConnectionClosedError, ConnectionLossError),
    (OperationTimeoutError, ConnectionLossError),
    (NoAuthError, AuthenticationError),
    # The session is over; another one follows.
    (AuthFailedError, SessionExpiredError),
    (InvalidACLError, AuthenticationError),
    # A server's answer to a request that it does not know; it then ends the connection.
    (UnimplementedError, ConnectionLossError),
)
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}


MOST_LOSSES = 2
"""Connections that end one after the other while many znodes are read by one request, before they are read singly."""


class KazooSession:
    """One session after the other, of one process.  `open` and `close` once each."""

    def __init__(self, settings: ZooKeeperSettings, loop: asyncio.AbstractEventLoop, named: str = "") -> None:
        """`named`: what errors call it, if not `settings.connect`."""
        self._settings = settings
        self._named = named or settings.connect
        self._loop = loop
        self._secured = settings.set_acl
        self._losses, self._state = 0, SessionState.CLOSED
        self._refusals = Outage(logger, logging.ERROR, loop.time)
        self._listeners: list[Callable[[SessionState], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._again: asyncio.Task[None] | None = None
        self._client = self._make(settings.connect)

    def _make(self, hosts: str) -> KazooClient:
        settings = self._settings
        if settings.principal:
            # kazoo imports it in its own thread, where its absence would go unnoticed.
            import puresasl  # noqa: F401
        forever = KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=2.0)
        client = KazooClient(
            hosts=hosts,
            timeout=settings.session_timeout_ms / 1000,
            connection_retry=forever,
            **settings.kazoo_arguments(),
        )
        client.logger.setLevel(logging.ERROR)
        return client

    async def open(self, *, makes_chroot: bool = True) -> None:
        """Connect, and make the chroot where it is missing.  ConnectionLossError when the time for that is over."""
        hosts, slash, chroot = self._settings.connect.partition("/")
        if makes_chroot and slash and chroot:
            above = KazooSession(replace(self._settings, connect=hosts), self._loop, self._named)
            await above.open()
            try:
                # Who may write to it may delete what is in it.
                await through_losses(above, self._settings, partial(ensure_path, above, f"/{chroot}"))
            finally:
                await above.close()
        client = self._client
        client.add_listener(partial(self._on_state, client))
        if not await self._start(client, _begin_and_ask):
            # Such a server also ends the connection that asked.
            self._losses = MOST_LOSSES
            fresh = self._client = self._make(self._settings.connect)
            await _end(client)
            fresh.add_listener(partial(self._on_state, fresh))
            await self._start(fresh)
        self._change(SessionState.CONNECTED)

    async def _start(self, client: KazooClient, begin: Callable[[KazooClient, float], bool] | None = None) -> bool:
        settings = self._settings
        seconds = settings.connection_timeout_ms / 1000
        refusals: list[str] = []

        def note(state: str) -> None:
            if client.client_state == KeeperState.AUTH_FAILED:
                refusals.append(state)

        client.add_listener(note)
        try:
            return await _in_thread(begin or _begin, client, seconds)
        except Exception as error:
            await _end(client)
            if refusals or isinstance(error, AuthFailedError):
                raise AuthenticationError(
                    f"ZooKeeper at {self._named} refuses kbroker.zookeeper.sasl.username and .password"
                ) from error
            hint = ", and are the zookeeper.ssl settings right" if settings.tls is not None else ""
            reason = "" if isinstance(error, KazooTimeoutError) else f" ({str(error) or type(error).__name__})"
            if unknown := await _in_thread(_unknown_hosts, client.hosts):
                reason = f" ({', '.join(unknown)}: there is no such host)"
            raise ConnectionLossError(
                f"ZooKeeper at {self._named} (zookeeper.connect) does not answer within {seconds:g} s "
                f"(zookeeper.connection.timeout.ms){reason}; is it running, and is that where it is{hint}?"
            ) from error
        finally:
            client.remove_listener(note)

    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""
        self._change(SessionState.CLOSED)
        if self._again is not None:
            self._again.cancel()
            self._again = None  # It keeps how it ended, and with that this.
        await _end(self._client)

    # States

    @property
    def state(self) -> SessionState:
        """The newest state that the loop knows."""
        return self._state

    @property
    def session_id(self) -> int:
        """The id of the session, 0 where there is none."""
        return int((self._client.client_id or (0,))[0])

    def subscribe(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` with every new state, on the loop."""
        self._listeners.append(listener)

    async def connected(self) -> None:
        """Return when there is a connection."""
        while self._state is not SessionState.CONNECTED:
            self._waiting.append(future := self._loop.create_future())
            await future

    def _on_state(self, client: KazooClient, state: str) -> None:
        """In kazoo's thread."""
        is_refused = client.client_state == KeeperState.AUTH_FAILED
        self._on_loop(self._noted, client, _STATES[state], is_refused)

    def _noted(self, client: KazooClient, state: SessionState, is_refused: bool) -> None:
        if client is not self._client:
            return
        self._change(state)
        if state is SessionState.CONNECTED:
            self._refusals.over("ZooKeeper takes the broker again")
        if is_refused and self._again is None and self._state is not SessionState.CLOSED:
            self._refusals.failed("ZooKeeper has refused the broker; the next attempt is in %g s", REFUSED_SECONDS)
            self._again = self._loop.create_task(self._start_again(client))

    async def _start_again(self, refused: KazooClient) -> None:
        """A client that was refused does not connect any more."""
        await asyncio.sleep(REFUSED_SECONDS)
        client = self._client = self._make(self._settings.connect)
        self._again = None
        client.add_listener(partial(self._on_state, client))
        client.start_async()
        await _end(refused)

    def _on_loop(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            # The loop is closed: the process ends.
            return

    def _change(self, state: SessionState) -> None:
        if state is self._state or (self._state is SessionState.CLOSED and state is not SessionState.CONNECTED):
            return
        self._state = state
        if state is SessionState.CONNECTED:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        for listener in self._listeners:
            try:
                listener(state)
            except Exception:
                logger.exception("a part of the broker failed when the ZooKeeper session became %s", state.name)

    # Calls

    async def _call(self, call: Callable[..., IAsyncResult], *args: object, **kwargs: object) -> Any:
        if self._state is not SessionState.CONNECTED:
            raise ConnectionLossError("there is no connection to ZooKeeper")
        return await self._outcome(partial(call, *args, **kwargs))

    def _outcome(self, call: Callable[[], IAsyncResult]) -> asyncio.Future[object]:
        future: asyncio.Future[object] = self._loop.create_future()

        def finish(result: Any) -> None:
            if not future.done() and result.exception is not None:
                future.set_exception(_translated(result.exception))
            elif not future.done():
                future.set_result(result.value)

        try:
            pending = call()
        except KazooException as error:
            raise _translated(error) from error
        pending.rawlink(lambda result: self._on_loop(finish, result))
        return future

    def _watch(self, watch: Watch | None) -> Callable[[object], None] | None:
        return None if watch is None else lambda _event: self._on_loop(watch)

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        """A znode.  `watch`: when it changes or goes."""
        data, stat = await self._call(self._client.get_async, path, watch=self._watch(watch))
        return Znode(data, _stat(stat))

    async def get_each(self, paths: Sequence[str]) -> list[Znode | None]:
        """Znodes by one request, in order; None for one that does not exist.  Some hundred at a time."""
        if not paths:
            return []
        if self._losses < MOST_LOSSES and self._state is SessionState.CONNECTED:
            try:
                read = await self._call(self._read_many, paths)
            except ConnectionLossError:
                # This server may be older than the one that was asked for MultiRead at first, and have closed the
                # connection for it.
                self._losses += 1
                raise
            self._losses = 0
            return [_found(result) for result in read]
        return await asyncio.gather(*map(self._get_or_none, paths))

    def _read_many(self, paths: Sequence[str]) -> IAsyncResult:
        return _send(self._client, MultiRead([f"{self._client.chroot}{path}" for path in paths]))

    async def _get_or_none(self, path: str) -> Znode | None:
        try:
            return await self.get(path)
        except NoNodeError:
            return None

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """A znode's state.  `watch`: when it comes, changes or goes."""
        stat = await self._call(self._client.exists_async, path, watch=self._watch(watch))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a znode's children, sorted.  `watch`: when one comes or goes."""
        return sorted(await self._call(self._client.get_children_async, path, watch=self._watch(watch)))

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """A new znode; its path, with its number if it is sequential."""
        found = await self._call(
            self._client.create_async,
            path,
            data,
            acl=self._acl(path),
            ephemeral=ephemeral,
            sequence=sequential,
        )
        return str(found)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """New content of a znode."""
        return _stat(await self._call(self._client.set_async, path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode without children."""
        await self._call(self._client.delete_async, path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """All operations or, with MultiError, none.  Of a Set, the new state."""
        transaction = self._client.transaction()
        for each in operations:
            match each:
                case Check():
                    transaction.check(each.path, each.version)
                case Create():
                    transaction.create(each.path, each.data, acl=self._acl(each.path), ephemeral=each.ephemeral)
                case Set():
                    transaction.set_data(each.path, each.data, each.version)
                case Delete():
                    transaction.delete(each.path, each.version)
        results = await self._call(transaction.commit_async)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                raise MultiError(index, _translated(result))
        if any(isinstance(result, Exception) for result in results):
            raise MultiError(0, ZooKeeperError(f"the transaction was rolled back: {results}"))
        return [
            _stat(result) if isinstance(each, Set) else None for each, result in zip(operations, results, strict=True)
        ]

    def _acl(self, path: str) -> list[KazooAcl] | None:
        """With `zookeeper.set.acl`: brokers alone write, and read what is secret."""
        if not self._secured or paths.is_open(path):
            return list(OPEN_ACL_UNSAFE) if self._secured else None
        own = make_acl("sasl", self._settings.principal, all=True)
        return [own] if paths.is_secret(path) else [own, KazooAcl(Permissions.READ, ANYONE_ID_UNSAFE)]


def _begin(client: KazooClient, seconds: float) -> bool:
    """Connect, and wait for the end of SASL, which comes after that."""
    deadline = time.monotonic() + seconds
    if not client.start_async().wait(seconds):
        raise KazooTimeoutError
    while True:
        try:
            # A request behind the deadline still gets ANSWER_SECONDS: this process may have been held up.
            client.exists_async("/").get(timeout=max(ANSWER_SECONDS, deadline - time.monotonic()))
            return True
        except (ConnectionLoss, KazooSessionExpired):
            # kazoo goes on with the next server, or with a new session.
            client.handler.sleep_func(LOST_SECONDS)


def _unknown_hosts(servers: Iterable[tuple[str, int]]) -> list[str]:
    """Names that nothing knows."""
    unknown = []
    for host, port in servers:
        try:
            socket.getaddrinfo(host, port)
        except OSError:
            unknown.append(host)
    return unknown


def _begin_and_ask(client: KazooClient, seconds: float) -> bool:
    """Whether the server knows MultiRead.  Called while nothing else is under way, as a server that does not know it
    closes the connection."""
    _begin(client, seconds)
    try:
        _send(client, MultiRead([client.chroot or "/"])).get(timeout=seconds)
    except (UnimplementedError, ConnectionLoss):
        return False
    return True


def _send(client: KazooClient, request: MultiRead) -> IAsyncResult:
    """A request that kazoo does not have."""
    found = client.handler.async_result()
    client._call(request, found)
    return found


async def _end(client: KazooClient) -> None:
    """Close it.  One that still waits for a server's first answer does so for a session's time: it is left to that."""
    closing = _in_thread(_close, client)
    done, _ = await asyncio.wait((closing,), timeout=CLOSE_SECONDS)
    if not done:
        closing.cancel()
    elif (error := closing.exception()) is not None:
        logger.debug("a ZooKeeper session could not be closed", exc_info=error)


def _close(client: KazooClient) -> None:
    client.stop()
    client.close()


def _in_thread(call: Callable[..., _Value], *args: object) -> asyncio.Future[_Value]:
    """A call in a thread that does not hold up the end of the process, as one of the loop's executor would."""
    result: Future[_Value] = Future()
    result.set_running_or_notify_cancel()

    def work() -> None:
        try:
            result.set_result(call(*args))
        except Exception as error:
            result.set_exception(bare(error))

    threading.Thread(target=work, name="zookeeper", daemon=True).start()
    return asyncio.wrap_future(result)


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.czxid, stat.ephemeralOwner, stat.ctime)


def _found(result: Znode | Exception) -> Znode | None:
    """One of many that were read."""
    if isinstance(result, KazooNoNode):
        return None
    if isinstance(result, Exception):
        raise _translated(result)
    return result


def _translated(error: Exception) -> ZooKeeperError:
    for kazoo, own in _ERRORS:
        if isinstance(error, kazoo):
            return own(str(error) or type(error).__name__)
    return ZooKeeperError(f"{type(error).__name__}: {error}")
