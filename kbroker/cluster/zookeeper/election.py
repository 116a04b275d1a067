"""Which broker is the controller: /controller, an ephemeral znode, and /controller_epoch, which only grows.

The winner creates /controller and raises /controller_epoch in one transaction.  Every later write of a controller
checks the version of /controller_epoch (`Fence`), so that the writes of a deposed controller fail.

    states      FOLLOWING → ELECTED → FOLLOWING …

While the connection is away this broker is not the controller.  If the session survives and /controller is still this
broker's, it is the controller again in the same epoch, and reads the cluster anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from kbroker.clock import Clock
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.session import (
    BadVersionError,
    ConnectionLossError,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SessionState,
    Set,
    ZooKeeper,
    ZooKeeperError,
)
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.cluster.zookeeper.znodes import (
    ControllerZnode,
    decode_controller,
    decode_epoch,
    encode_controller,
    encode_epoch,
)
from kbroker.errors import again
from kbroker.metadata.image import NO_CONTROLLER
from kbroker.outage import Outage

logger = logging.getLogger("kbroker.cluster")

RETRY_SECONDS = 0.5


class Fence(NamedTuple):
    """A controller's term: its epoch, and the version of /controller_epoch that its writes check."""

    epoch: int
    version: int


class Role(Enum):
    """What this broker is to the cluster."""

    FOLLOWING = auto()
    ELECTED = auto()


class Election:
    """Takes part in elections.  `elected(fence)` and `resigned()` are called on the loop, in turns."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        node_id: int,
        clock: Clock,
        elected: Callable[[Fence], None],
        resigned: Callable[[], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._clock = clock
        self._elected = elected
        self._resigned = resigned
        self._changed = asyncio.Event()
        self._fence: Fence | None = None
        self._attempted = 0
        self._outage = Outage(logger, logging.ERROR, clock.monotonic)
        self.role = Role.FOLLOWING
        self.controller_id = NO_CONTROLLER
        zookeeper.subscribe(self._on_session)

    def _on_session(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            if state is not SessionState.SUSPENDED:
                self._fence = None
            self._step_down()
        self._changed.set()

    def _step_down(self) -> None:
        if self.role is Role.ELECTED:
            self.role = Role.FOLLOWING
            logger.info("broker %d is not the controller any more", self._node_id)
            self._resigned()

    def resign(self) -> None:
        """Stop being the controller, as a write found another one; look who it is."""
        self._fence = None
        self._attempted = 0
        self._step_down()
        self._changed.set()

    async def run(self) -> None:
        """Follow /controller, and stand for election where there is none, until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self._look()
            except ConnectionLossError:
                await self._zookeeper.connected()
                continue
            except (ZooKeeperError, ZnodeError) as error:
                self._outage.failed("the controller can't be found: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._outage.over("it is known again who the controller is")
            await self._changed.wait()

    async def _look(self) -> None:
        while await self._zookeeper.exists(paths.CONTROLLER, self._changed.set) is None:
            self._step_down()
            self.controller_id = NO_CONTROLLER
            await self._stand()
        try:
            data, stat = await self._zookeeper.get(paths.CONTROLLER, self._changed.set)
        except NoNodeError:
            self._changed.set()
            return
        controller = decode_controller(data)
        self.controller_id = controller.node_id
        if controller.node_id != self._node_id or stat.owner != self._zookeeper.session_id:
            self._fence = None
            self._step_down()
        elif self.role is Role.FOLLOWING:
            await self._go_on()

    async def _go_on(self) -> None:
        """/controller is this session's: lead in the epoch of that election, or give it up."""
        stored = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
        if self._fence is None and decode_epoch(stored.data) == self._attempted:
            # The answer to the transaction was lost, and with it the version that it gave /controller_epoch.
            self._fence = Fence(decode_epoch(stored.data), stored.stat.version)
        if self._fence is None or self._fence.version != stored.stat.version:
            self._fence = None
            await self._zookeeper.delete(paths.CONTROLLER)
            self._changed.set()
            return
        self.role = Role.ELECTED
        logger.info("broker %d is the controller, epoch %d", self._node_id, self._fence.epoch)
        self._elected(self._fence)

    async def _stand(self) -> None:
        """One attempt; what became of it stands in /controller."""
        try:
            stored = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
        except NoNodeError:
            try:
                await self._zookeeper.create(paths.CONTROLLER_EPOCH, encode_epoch(0))
            except NodeExistsError:
                pass
            stored = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
        epoch = decode_epoch(stored.data) + 1
        self._attempted = epoch
        content = encode_controller(ControllerZnode(self._node_id, self._clock.now_ms()))
        try:
            _, stat = await self._zookeeper.multi(
                [
                    Create(paths.CONTROLLER, content, ephemeral=True),
                    Set(paths.CONTROLLER_EPOCH, encode_epoch(epoch), stored.stat.version),
                ]
            )
        except MultiError as error:
            if not isinstance(error.cause, NodeExistsError | BadVersionError):
                raise again(error.cause) from error
            return
        assert stat is not None
        self._fence = Fence(epoch, stat.version)
