"""How a broker registers with the cluster: the persistent znodes, the cluster's id, its own id and its registration.

A registration is an ephemeral znode: it goes with the session.  Its creation's transaction id (czxid) is the broker's
epoch, which requests between brokers carry; a new session of the same process has a new epoch.

    states      AWAY → REGISTERING → REGISTERED → AWAY (the session expired) → REGISTERING …
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.session import (
    ConnectionLossError,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SessionState,
    Set,
    ZooKeeper,
    ZooKeeperError,
    ensure_path,
)
from kbroker.cluster.zookeeper.znodes import decode_cluster_id, encode_cluster_id
from kbroker.errors import again, bare
from kbroker.outage import Outage

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.cluster")

NO_EPOCH = -1
RETRY_SECONDS = 0.5


class RegistrationError(ValueError):
    """This broker can't be a member; the text says why and what to do."""


class RegistrationState(Enum):
    """Whether the cluster knows this broker."""

    AWAY = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    ENDED = auto()


_NEXT = {
    RegistrationState.AWAY: {RegistrationState.REGISTERING, RegistrationState.ENDED},
    RegistrationState.REGISTERING: {RegistrationState.REGISTERED, RegistrationState.AWAY, RegistrationState.ENDED},
    RegistrationState.REGISTERED: {RegistrationState.AWAY, RegistrationState.ENDED},
    RegistrationState.ENDED: set(),
}


async def make_roots(zookeeper: ZooKeeper) -> None:
    """The znodes that every broker makes at its start, where they are missing."""
    for path in paths.ROOTS:
        await ensure_path(zookeeper, path)


async def agreed_cluster_id(zookeeper: ZooKeeper, known: str | None, proposed: str) -> str:
    """The cluster's id: the first broker gives it `known` or `proposed`.

    RegistrationError when `known`, that of the log directories, is another.
    """
    try:
        found = decode_cluster_id((await zookeeper.get(paths.CLUSTER_ID)).data)
    except NoNodeError:
        await ensure_path(zookeeper, "/cluster")
        try:
            await zookeeper.create(paths.CLUSTER_ID, encode_cluster_id(known or proposed))
            return known or proposed
        except NodeExistsError:
            found = decode_cluster_id((await zookeeper.get(paths.CLUSTER_ID)).data)
    if known is not None and known != found:
        raise RegistrationError(
            f"the log directories belong to cluster {known}, and ZooKeeper keeps cluster {found}: "
            "zookeeper.connect or log.dirs is wrong"
        )
    return found


async def generated_node_id(zookeeper: ZooKeeper, reserved: int) -> int:
    """An id that no broker had before, above `reserved` (`reserved.broker.max.id`)."""
    await ensure_path(zookeeper, paths.BROKER_SEQUENCE)
    return (await zookeeper.set(paths.BROKER_SEQUENCE, b"")).version + reserved


async def chosen_node_id(zookeeper: ZooKeeper, config: BrokerConfig, known: int | None) -> int:
    """The broker's id: that of its settings, else the one in its log directories (`known`), else a new one.

    RegistrationError where settings and directories differ, or there is none and none may be generated.
    """
    if "node.id" in config.explicit or config.get("broker.id") >= 0:
        if known is not None and known != config.node_id:
            raise RegistrationError(
                f"broker.id is {config.node_id}, and the log directories belong to broker {known}: set it to that, or "
                "give the broker other log.dirs"
            )
        return config.node_id
    if known is not None:
        return known
    if not config.get("broker.id.generation.enable"):
        raise RegistrationError("broker.id is not set, and broker.id.generation.enable is false")
    return await generated_node_id(zookeeper, config.get("reserved.broker.max.id"))


@dataclass(frozen=True, slots=True)
class OwnZnode:
    """What a broker registers with.  `patience_ms`: how long an earlier registration of its id may take to go."""

    node_id: int
    content: Callable[[], bytes]
    patience_ms: int


class BrokerRegistration:
    """The registration of this broker, renewed with every new session."""

    def __init__(self, zookeeper: ZooKeeper, own: OwnZnode, loop: asyncio.AbstractEventLoop) -> None:
        self._zookeeper = zookeeper
        self._own = own
        self._loop = loop
        self._own_sessions: set[int] = set()
        self._renewal: asyncio.Task[None] | None = None
        self._look_again = asyncio.Event()
        self._registered: list[Callable[[int], Awaitable[None]]] = []
        self.state = RegistrationState.AWAY
        self.epoch = NO_EPOCH
        self.failure: Callable[[RegistrationError], None] = lambda _error: None
        zookeeper.subscribe(self._on_session)

    def on_registered(self, listener: Callable[[int], Awaitable[None]]) -> None:
        """Await `listener(epoch)` after each registration."""
        self._registered.append(listener)

    async def free(self) -> None:
        """Wait for an earlier registration of the id to go.  RegistrationError when it stays."""
        deadline = self._loop.time() + self._own.patience_ms / 1000
        await self._wait_until_free(paths.broker(self._own.node_id), deadline)

    async def register(self) -> int:
        """Become a member: the broker epoch.  RegistrationError when the id stays taken."""
        self._move(RegistrationState.REGISTERING)
        try:
            self.epoch = await self._create()
        except Exception:
            if self.state is RegistrationState.REGISTERING:
                self._move(RegistrationState.AWAY)
            raise
        self._move(RegistrationState.REGISTERED)
        logger.info("registered as broker %d, epoch %d", self._own.node_id, self.epoch)
        for listener in self._registered:
            await listener(self.epoch)
        return self.epoch

    async def _create(self) -> int:
        path = paths.broker(self._own.node_id)
        deadline = self._loop.time() + self._own.patience_ms / 1000
        while True:
            self._own_sessions.add(self._zookeeper.session_id)
            try:
                # A create within a transaction has no czxid in its answer, a set has.
                _, stat = await self._zookeeper.multi([Create(path, ephemeral=True), Set(path, self._own.content(), 0)])
            except MultiError as error:
                if not isinstance(error.cause, NodeExistsError):
                    raise again(error.cause) from error
                await self._wait_until_free(path, deadline)
                continue
            assert stat is not None
            return stat.czxid

    async def _wait_until_free(self, path: str, deadline: float) -> None:
        """Wait for an earlier session's registration to go; delete it where that session was this process's own.

        Reads once more when the time is over: the process may have been held up for all of it."""
        is_over = False
        while (stat := await self._zookeeper.exists(path, self._look_again.set)) is not None:
            if stat.owner in self._own_sessions:
                try:
                    await self._zookeeper.delete(path)
                except NoNodeError:
                    pass
                return
            node_id = self._own.node_id
            if is_over:
                raise RegistrationError(
                    f"broker id {node_id} is in use by another broker (session 0x{stat.owner:x} of {path}); stop that "
                    "one, or give this one another broker.id"
                )
            seconds = deadline - self._loop.time()
            logger.info("broker id %d is registered by another session; waiting %.1f s for it to end", node_id, seconds)
            try:
                async with asyncio.timeout(max(0.0, seconds)):
                    await self._look_again.wait()
            except TimeoutError:
                is_over = True
            self._look_again.clear()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            # Watches went with the connection before.
            self._look_again.set()
        if self.state is RegistrationState.ENDED:
            return
        if state is SessionState.EXPIRED and self.state is RegistrationState.REGISTERED:
            logger.warning("the ZooKeeper session of broker %d has expired", self._own.node_id)
            self.epoch = NO_EPOCH
            self._move(RegistrationState.AWAY)
            if self._renewal is None:
                self._renewal = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        outage = Outage(logger, logging.ERROR, self._loop.time)
        try:
            while self.state is RegistrationState.AWAY:
                await self._zookeeper.connected()
                try:
                    await self.register()
                    outage.over("broker %d has registered again", self._own.node_id)
                except ConnectionLossError:
                    await asyncio.sleep(RETRY_SECONDS)
                except ZooKeeperError as error:
                    outage.failed("broker %d can't register again: %s", self._own.node_id, error)
                    await asyncio.sleep(RETRY_SECONDS)
        except RegistrationError as error:
            self.failure(bare(error))
        finally:
            self._renewal = None

    def renew(self) -> None:
        """Register anew in the same session: controllers take it for a broker that was gone for a moment."""
        if self.state is not RegistrationState.REGISTERED or self._renewal is not None:
            return
        self.epoch = NO_EPOCH
        self._move(RegistrationState.AWAY)
        # `_create` removes this session's earlier registration.
        self._renewal = self._loop.create_task(self._renew())

    def end(self) -> None:
        """Register no more; the session's end takes the registration away."""
        self._move(RegistrationState.ENDED)
        if self._renewal is not None:
            self._renewal.cancel()

    def _move(self, state: RegistrationState) -> None:
        assert state in _NEXT[self.state], (self.state, state)
        self.state = state
