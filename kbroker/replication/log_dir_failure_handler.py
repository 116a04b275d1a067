"""What happens to partitions when a log directory fails, on the event loop.

    channel wakes the loop -> logs closed -> image in which this broker's replicas are offline -> report to the
    controller -> image without their leaders, in new epochs

As in Kafka a partition on a failed directory has no leader, an empty ISR and this broker as an offline replica in the
metadata, and everything that asks for its records is answered with KAFKA_STORAGE_ERROR, from the turn of the loop in
which the failure is seen.

A broker that keeps the metadata has it in the first directory: it halts when that one fails, and any broker halts when
no directory is left.  A member of a cluster, other than worker 1, has nothing there but partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kbroker.cluster.replica_reports import unserved_delta
from kbroker.cluster.requests import ReplicaReport
from kbroker.errors import KafkaError
from kbroker.outage import Outage

if TYPE_CHECKING:
    from kbroker.cluster.controller.interface import BrokerRequests
    from kbroker.cluster.requests import BrokerEpoch
    from kbroker.metadata.cache import MetadataCache
    from kbroker.storage.manager.log_manager import LogManager
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.replication")

RETRY_SECONDS = 1.0


class LogDirFailureHandler:
    """`halt` is called, once, with the reason why the broker cannot go on; `broker()` is this one by now.

    `lost(names)` is called at once with the partitions that have no log any more.  `shows_losses`: whether the image
    shows these as offline before the controller has said so.
    """

    __slots__ = (
        "_broker",
        "_cache",
        "_controller",
        "_first_has_metadata",
        "_halt",
        "_halted",
        "_log_manager",
        "_loop",
        "_lost",
        "_reports",
        "_shows_losses",
    )

    def __init__(
        self,
        log_manager: LogManager,
        cache: MetadataCache,
        controller: BrokerRequests,
        broker: Callable[[], BrokerEpoch],
        loop: asyncio.AbstractEventLoop,
        halt: Callable[[str], None],
        lost: Callable[[Collection[TopicPartition]], None] = lambda names: None,
        *,
        first_has_metadata: bool = True,
        shows_losses: bool = True,
    ) -> None:
        self._log_manager = log_manager
        self._cache = cache
        self._controller = controller
        self._broker = broker
        self._loop = loop
        self._halt = halt
        self._lost = lost
        self._first_has_metadata = first_has_metadata
        self._shows_losses = shows_losses
        self._halted = False
        self._reports: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """From now on act on failures, those that wait already included."""
        self._log_manager.failures.listen(lambda: self._loop.call_soon_threadsafe(self.handle_log_dir_failures))

    def stop(self) -> None:
        """The broker stops: what fails now is for the next start to find."""
        self._log_manager.failures.listen(None)
        for report in self._reports:
            report.cancel()

    def handle_log_dir_failures(self) -> None:
        """Take every directory that has failed since the last time offline."""
        gone = self._log_manager.drop_failed()
        if gone:
            self._lost(gone)
            if self._shows_losses:
                self._cache.apply(unserved_delta(self._cache.image, self._broker().node_id, gone))
            report = self._loop.create_task(self._report(ReplicaReport(offline=frozenset(gone))))
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)
        reason = reason_to_halt(self._log_manager, first_has_metadata=self._first_has_metadata)
        if reason is not None and not self._halted:
            self._halted = True
            self._halt(reason)

    async def _report(self, report: ReplicaReport) -> None:
        outage, count = Outage(logger, logging.ERROR, self._loop.time), len(report.offline)
        while True:
            try:
                await self._controller.report_replicas(self._broker(), report)
                outage.over("the controller knows of %d offline replicas", count)
                return
            except KafkaError as error:
                outage.failed("the controller does not know of %d offline replicas yet: %s", count, error)
            await asyncio.sleep(RETRY_SECONDS)


def reason_to_halt(log_manager: LogManager, *, first_has_metadata: bool = True) -> str | None:
    """Why the broker cannot go on with the directories that are left; None when it can."""
    offline = log_manager.failures.offline
    if not log_manager.online_directories():
        reasons = "; ".join(f"{path}: {reason}" for path, reason in offline.items())
        return f"all log directories have failed ({reasons})"
    first = log_manager.directories[0].path
    if first_has_metadata and first in offline:
        return f"log directory {first}, which has the metadata, has failed ({offline[first]})"
    return None
