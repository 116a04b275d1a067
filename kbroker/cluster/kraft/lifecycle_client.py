"""Sends what a broker's life asks for (`lifecycle`) to the active controller, over a connection of its own."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.cluster.client import NodeError
from kbroker.cluster.kraft.lifecycle import (
    LAST_HEARTBEAT,
    LAST_REGISTRATION,
    Lifecycle,
    RegistrationRefusedError,
    State,
)
from kbroker.outage import Outage
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.waiting import Changes, set_within

if TYPE_CHECKING:
    from kbroker.cluster.controller_client import ControllerClient

logger = logging.getLogger("kbroker.cluster")


@dataclass(frozen=True, slots=True)
class LifecycleView:
    """What a broker's life looks at: its image by now."""

    applied_offset: Callable[[], int]
    registered_epoch: Callable[[], int]
    """The epoch of this broker in the image; -1 where it is not registered."""
    is_fenced: Callable[[], bool]


class LifecycleClient:
    """One task, from `start` to `close`.  `failed(reason)`: the broker cannot stay in the cluster."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: ControllerClient,
        lifecycle: Lifecycle,
        view: LifecycleView,
        failed: Callable[[str], None],
        *,
        session_seconds: float,
        registration_seconds: float,
        failure_seconds: float = 30.0,
    ) -> None:
        """`session_seconds`: after so long without a heartbeat the controllers fence the broker; `failure_seconds`: the
        longest that no controller may hear of a failed log directory."""
        self._loop = loop
        self._client = client
        self._lifecycle = lifecycle
        self._view = view
        self._failed = failed
        self._session_seconds = session_seconds
        self._heard_at = -math.inf
        self._registration_seconds = registration_seconds
        self._failure_seconds = failure_seconds
        self._untold: dict[bytes, float] = {}
        self._listeners: list[wire.BrokerRegistrationRequest.Listener] = []
        self._wake = asyncio.Event()
        self._changes = Changes()
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(logger, now=loop.time)
        self._was_registered = False

    @property
    def epoch(self) -> int:
        """This broker's epoch; -1 while it is not registered."""
        return self._lifecycle.epoch

    def is_heard(self) -> bool:
        """Whether the last answered heartbeat was sent less than a session ago.

        Controllers count from its arrival, so they cannot have fenced this broker yet.
        """
        return self._loop.time() - self._heard_at < self._session_seconds

    @property
    def state(self) -> State:
        """Where in its life the broker is."""
        return self._lifecycle.state

    def start(self, listeners: list[wire.BrokerRegistrationRequest.Listener]) -> None:
        """Register with these listeners, and stay registered."""
        self._listeners = listeners
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the membership has failed", exc_info=error)
            self._failed(f"the membership has failed: {error}")

    async def caught_up(self) -> None:
        """Return once the image has the own registration and the controllers say that it is the newest."""
        await self._changes.wait_until(lambda: self.state not in (State.UNREGISTERED, State.CATCHING_UP))

    async def unfenced(self) -> None:
        """The broker serves: return once it is unfenced, in its own image, too."""
        self._lifecycle.is_ready = True
        self.hasten()
        await self._changes.wait_until(lambda: self.state is State.RUNNING and not self._view.is_fenced())

    async def leave(self, seconds: float) -> bool:
        """Ask the controllers to move this broker's leadership away; whether they let it go within the time.

        A broker that none of them has answered for a session waits no longer: they have fenced it, or there are none.
        """
        if self._task is None or self._task.done():
            return True
        self._lifecycle.leave()
        self.hasten()
        end = self._loop.time() + seconds
        while (left := end - self._loop.time()) > 0:
            if await self._changes.wait_until(lambda: self.state is State.GONE, min(left, self._session_seconds)):
                return True
            if not self.is_heard():
                break
        return False

    def log_dirs_failed(self, directories: set[bytes]) -> None:
        """Tell the controllers of log directories that have failed, at once and from now on."""
        now = self._loop.time()
        for each in directories - self._lifecycle.offline_dirs:
            self._untold[each] = now
        self._lifecycle.offline_dirs |= directories
        self.hasten()

    def image_changed(self) -> None:
        """The image is another one: a registration may have gone from it, or have come."""
        if self._lifecycle.state is State.CATCHING_UP:
            self.hasten()
        elif self._was_registered and self.epoch >= 0 and self._view.registered_epoch() < 0:
            logger.warning("this broker's registration was removed from the cluster: it registers again")
            self._lifecycle.lost()
            self.hasten()
        if self._view.registered_epoch() == self.epoch >= 0:
            self._was_registered = True
        self._changes.announce()

    def hasten(self) -> None:
        """Send the next request now."""
        self._wake.set()

    async def _run(self) -> None:
        began = self._loop.time()
        while self.state is not State.GONE:
            self._wake.clear()
            before = self.state
            try:
                wait = await (self._register() if before is State.UNREGISTERED else self._heartbeat())
            except RegistrationRefusedError as error:
                self._failed(f"the broker cannot register: {error}")
                return
            except NodeError as error:
                self._outage.failed("the active controller cannot be asked: %s", str(error))
                wait = self._lifecycle.failed()
            if self.state is not before:
                self._tell(before)
            self._changes.announce()
            if self.epoch < 0 and not self._was_registered and self._loop.time() - began > self._registration_seconds:
                self._failed(
                    f"no controller has registered the broker within {self._registration_seconds:g} s "
                    "(initial.broker.registration.timeout.ms)"
                )
                return
            if self._untold and self._loop.time() - min(self._untold.values()) > self._failure_seconds:
                self._failed(
                    f"no controller has heard within {self._failure_seconds:g} s that a log directory has failed "
                    "(log.dir.failure.timeout.ms)"
                )
                return
            await set_within(self._wake, wait)

    async def _register(self) -> float:
        self._was_registered = self._was_registered and self._view.registered_epoch() >= 0
        version = await self._client.version(ApiKey.BROKER_REGISTRATION, LAST_REGISTRATION)
        answer = await self._client.send(self._lifecycle.registration(self._listeners, version), version)
        assert isinstance(answer, wire.BrokerRegistrationResponse)
        if answer.error_code:
            self._outage.failed("the active controller does not register this broker yet: error %d", answer.error_code)
        return self._lifecycle.registered(answer)

    async def _heartbeat(self) -> float:
        view, lifecycle = self._view, self._lifecycle
        version = await self._client.version(ApiKey.BROKER_HEARTBEAT, LAST_HEARTBEAT)
        request, sent_at = lifecycle.heartbeat(view.applied_offset(), version), self._loop.time()
        answer = await self._client.send(request, version)
        assert isinstance(answer, wire.BrokerHeartbeatResponse)
        if request.broker_epoch != lifecycle.epoch:
            return 0.0  # The registration has gone meanwhile.
        if answer.error_code:
            self._outage.failed("the active controller does not take a heartbeat: error %d", answer.error_code)
        else:
            self._heard_at = sent_at
            self._outage.over("the active controller takes this broker's heartbeats again")
            for each in request.offline_log_dirs:
                self._untold.pop(each, None)
        return lifecycle.answered(answer, knows_itself=view.registered_epoch() == lifecycle.epoch)

    def _tell(self, before: State) -> None:
        state = self.state
        if state is State.CATCHING_UP:
            logger.info("registered in the cluster with epoch %d", self.epoch)
        elif state is State.RUNNING:
            logger.info("the controllers have unfenced this broker")
        elif state is State.FENCED and before is State.RUNNING:
            logger.warning("the controllers have fenced this broker")

    async def close(self) -> None:
        """Send nothing any more."""
        task, self._task = self._task, None  # It keeps how it ended, and with that this.
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._client.close()
