"""Asks the controller for the ISRs that this broker's partitions propose (AlterPartition).

One request is under way at a time; what is proposed meanwhile goes with the next one.  Where the controller cannot be
reached, or another broker has become the controller, a proposal is sent again until it is answered, or the partition
has a newer state.

Each replica is proposed with the broker epoch that its fetches name.  So the controller refuses a replica whose broker
has restarted since, as it may have lost records (KIP-903).  Before version 15 a fetch names none.

    granted                         in force, with the partition epoch of the answer
    nothing was attempted           the proposal is dropped, and may be made anew
    epochs or ISR are behind        the proposal stands for the high watermark until the controller's next word
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker._fast.base.build_facts import CHECKED
from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.requests import BrokerEpoch, IsrChange
from kbroker.errors import ErrorCode, KafkaError
from kbroker.outage import Outage
from kbroker.replication.partition import Role

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.controller.interface import BrokerRequests
    from kbroker.cluster.requests import PartitionOutcome
    from kbroker.metadata.cache import MetadataCache
    from kbroker.replication.partition import Partition
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.replication.isr")

BACKOFF = ExponentialBackoff(0.05, 1.0)
"""In seconds."""
MOST_IN_A_REQUEST = 1000
NOT_ATTEMPTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# The controller is ahead, or has given the partition up: it will say so itself.
AHEAD = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
_Proposal = tuple["Partition", "IsrChange"]


class IsrManager:
    """See the module, and `partition.IsrChanges`.  `broker()` is this broker with its epoch by now.

    Partitions add proposals (`propose`); it alone takes them out, when the controller has answered.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        cache: MetadataCache,
        controller: BrokerRequests,
        broker: Callable[[], BrokerEpoch],
        max_lag: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._cache = cache
        self._controller = controller
        self._broker = broker
        self._max_lag = max_lag
        self._proposals: dict[TopicPartition, _Proposal] = {}
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(logger, logging.INFO, loop.time)
        self._looked_at = self.now()
        self._fetch_epochs: dict[int, int] = {}
        self.shrink_count = 0
        self.expand_count = 0
        self.failed_count = 0

    @property
    def max_lag(self) -> float:
        """See `IsrChanges`."""
        return self._max_lag()

    def now(self) -> float:
        """See `IsrChanges`."""
        return self._clock.monotonic()

    def is_alive(self, node_id: int) -> bool:
        """See `IsrChanges`."""
        broker = self._cache.image.brokers.get(node_id)
        return broker is not None and not broker.is_fenced

    def is_eligible(self, node_id: int) -> bool:
        """See `IsrChanges`."""
        broker = self._cache.image.brokers.get(node_id)
        if broker is None or broker.is_fenced or broker.in_controlled_shutdown:
            return False
        # A fetch of an earlier life of that broker says nothing of what it has now (KIP-903).
        fetched = self._fetch_epochs.get(node_id, -1)
        return fetched == broker.epoch or -1 in (fetched, broker.epoch)

    def fetches(self, node_id: int, broker_epoch: int) -> None:
        """See `IsrChanges`."""
        if broker_epoch >= 0:
            self._fetch_epochs[node_id] = broker_epoch

    def _epoch_of(self, node_id: int) -> int:
        broker = self._cache.image.brokers.get(node_id)
        return self._fetch_epochs.get(node_id, -1 if broker is None else broker.epoch)

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """See `IsrChanges`."""
        assert partition.proposed_isr == isr != partition.isr, (str(partition), partition.proposed_isr, isr)
        epochs = [(each, self._epoch_of(each)) for each in isr]
        name = partition.topic_partition
        if len(isr) < len(partition.isr):
            self.shrink_count += 1
            logger.info("%s: the ISR is to shrink from %s to %s", name, list(partition.isr), list(isr))
        else:
            self.expand_count += 1
            logger.info("%s: the ISR is to expand from %s to %s", name, list(partition.isr), list(isr))
        self._proposals[name] = (
            partition,
            IsrChange(name, partition.leader_epoch, partition.partition_epoch, epochs, partition.topic_id),
        )
        if self._task is None:
            self._task = self._loop.create_task(self._send_all())
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless each proposal is one of its partition and on its way."""
        assert self._task is not None or not self._proposals, "proposals that are not sent"
        for name, (partition, change) in self._proposals.items():
            assert name == change.partition == partition.topic_partition, (name, change)
            assert change.isr and change.leader_epoch <= partition.leader_epoch, (name, change, partition.leader_epoch)

    def drop_lagging(self, partitions: Iterable[Partition]) -> None:
        """Propose smaller ISRs where followers lag; every half of `replica.lag.time.max.ms`.

        Not where this process was held up for all of that time: what followers asked for meanwhile has yet to be read.
        """
        now, before = self.now(), self._looked_at
        self._looked_at = now
        if now - before > self.max_lag:
            return
        for partition in partitions:
            partition.drop_lagging()

    def close(self) -> None:
        """Ask nothing any more."""
        self._proposals.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # -- asking -------------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        attempts = 0
        try:
            while self._proposals:
                names = list(self._proposals)[:MOST_IN_A_REQUEST]
                batch = [self._proposals.pop(name) for name in names]
                again = await self._send([each for each in batch if _is_current(*each)])
                for each in again:
                    self._proposals.setdefault(each[1].partition, each)
                if len(again) < len(batch):
                    attempts = 0
                if again:
                    # Sleep even though the controller answered: this broker's own controller may have been deposed, and
                    # learns of that on the loop, which answers that take no time would never let run.
                    await asyncio.sleep(BACKOFF.backoff(attempts))
                    attempts += 1
        finally:
            self._task = None

    async def _send(self, batch: list[_Proposal]) -> list[_Proposal]:
        """What is to be asked again."""
        if not batch:
            return []
        try:
            outcomes = await self._controller.alter_partitions(self._broker(), [change for _, change in batch])
        except KafkaError as error:
            self.failed_count += len(batch)
            self._outage.failed("the controller does not take ISR changes now: %s", error)
            return batch
        self._outage.over("the controller takes ISR changes again")
        found = {outcome.partition: outcome for outcome in outcomes}
        again = []
        for partition, change in batch:
            outcome = found.get(change.partition)
            if outcome is None or (_is_current(partition, change) and not self._settle(partition, change, outcome)):
                again.append((partition, change))
        return again

    def _settle(self, partition: Partition, change: IsrChange, outcome: PartitionOutcome) -> bool:
        """Whether that was the controller's word."""
        if outcome.error is None and outcome.image is not None:
            if outcome.image.leader_epoch == partition.leader_epoch:
                partition.isr_granted(outcome.image.isr, outcome.image.partition_epoch)
            return True
        self.failed_count += 1
        code = ErrorCode.UNKNOWN_SERVER_ERROR if outcome.error is None else outcome.error.code
        logger.info("%s: the controller refuses ISR %s: %s", partition, [each for each, _ in change.isr], code.name)
        if code in NOT_ATTEMPTED:
            partition.isr_refused()
        return code in NOT_ATTEMPTED or code in AHEAD


def _is_current(partition: Partition, change: IsrChange) -> bool:
    """Whether the partition still waits for this answer: it may have lost its leader, or begun another epoch."""
    return (
        partition.role is Role.LEADER
        and partition.leader_epoch == change.leader_epoch
        and partition.proposed_isr == tuple(each for each, _ in change.isr)
    )
