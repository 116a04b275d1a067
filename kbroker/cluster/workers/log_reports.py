"""After a start no worker leads with a log that may have lost records, until the others have reported theirs.

    CLOSED     there is no start to wait for
    OPEN       from the controller's start: workers say what they hold, as soon as their logs are open
    SETTLED    all have said it, or the time is over for those that are not there: who leads is decided

A power cut loses the records that were not on disk yet, in some replicas more than in others.  So does a disk whose
fsync fails; and until worker 1 is back it is in its ISRs, so those that live on say what they hold, too.  A
worker that was not stopped in order waits for the decision before it leads or follows anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError

if TYPE_CHECKING:
    from kbroker.cluster.requests import HeldLog
    from kbroker.cluster.workers.host_controller import HostController
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")

LOOK_SECONDS = 1.0


class LogReports:
    """One for each start of the controller."""

    def __init__(self, controller: HostController, loop: asyncio.AbstractEventLoop) -> None:
        self._controller = controller
        self._loop = loop
        self._awaited: set[int] = set()
        self._held: dict[int, Mapping[TopicPartition, HeldLog]] = {}
        self._settled = asyncio.Event()
        self._settled.set()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def open(
        self, node_ids: set[int], seconds: float, is_starting: Callable[[int], bool] = lambda _node_id: False
    ) -> None:
        """Wait for these workers, for so long at most, but for those that have connected until they have read their
        logs: what they have may be all that is left of what was acknowledged."""
        self._awaited = set(node_ids)
        self._settled.clear()
        self._timer = self._loop.call_later(seconds, self._time_is_over, is_starting)

    def _time_is_over(self, is_starting: Callable[[int], bool]) -> None:
        if any(is_starting(node_id) for node_id in self._awaited):
            self._timer = self._loop.call_later(LOOK_SECONDS, self._time_is_over, is_starting)
        else:
            self._settle()

    def arrived(self, node_id: int, held: Mapping[TopicPartition, HeldLog] | None) -> None:
        """A worker is there; one that has lived on says what it holds."""
        if held is not None and self._task is None and not self._settled.is_set():
            self._held[node_id] = held
        self._awaited.discard(node_id)
        if not self._awaited:
            self._settle()

    async def report_logs(self, node_id: int, held: Mapping[TopicPartition, HeldLog]) -> None:
        """What a worker that has just started holds; returns when it may lead and follow."""
        is_late = self._settled.is_set()
        self.arrived(node_id, held)
        if is_late:
            await self._controller.report_logs({node_id: held})
        if any(log.is_unclean or log.is_cut for log in held.values()):
            await self._settled.wait()

    @property
    def absent(self) -> set[int]:
        """Workers that have not come while they were waited for."""
        return set(self._awaited) if self._settled.is_set() else set()

    def _settle(self) -> None:
        if self._task is None and not self._settled.is_set():
            self._task = self._loop.create_task(self._decide())

    async def _decide(self) -> None:
        try:
            for node_id in sorted(self._awaited):
                await self._controller.missing(node_id)
            await self._controller.report_logs(self._held)
        except KafkaError as error:
            logger.error("it cannot be stored who leads after losses: %s", error)
        finally:
            self._settled.set()
            self._task = None  # It keeps how it ended, and with that this.

    def close(self) -> None:
        """The controller stops."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
