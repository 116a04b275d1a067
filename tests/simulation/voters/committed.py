"""What the controllers of a history commit, as each of them says it, replayed by the model's own reading.

- One node leads in each epoch; epochs of the log grow.
- All controllers commit the same batch at each offset, and none behind a gap.
- A broker's new life has another epoch than all lives before.
- What a controller answers is committed by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import ControlRecord, records_of
from kbroker.metadata.metadata_record import MetadataTransactions
from kbroker.schemas import wire
from tests.simulation.kraft.state import MetadataState, Seen

if TYPE_CHECKING:
    from kbroker.cluster.kraft.batches import MetadataBatch
    from kbroker.metadata.image import PartitionImage
    from kbroker.metadata.metadata_record import MetadataRecord
    from tests.simulation.judge import Judge


class Committed:
    """See the module.  ViolationError where any of it is wrong."""

    def __init__(self, judge: Judge) -> None:
        self.state = MetadataState()
        """What is committed."""
        self.seen: dict[int, Seen] = {0: self.state.seen()}
        """What is committed below an offset where a batch ends, and no metadata transaction is open."""
        self.committed_end = 0
        self.epoch = 0
        """The newest in which a node has come to lead."""
        self._judge = judge
        self._leaders: dict[int, str] = {}
        self._batches: dict[int, bytes] = {}
        self._last_epoch = 0
        self._last_seen = self.seen[0]
        self._transactions = MetadataTransactions()
        self._lives: dict[int, dict[int, bytes]] = {}
        """The incarnation of each epoch of each broker."""
        self._topics: set[bytes] = set()
        self._producer_ids = 0

    # What nodes say

    def leads(self, who: str, epoch: int) -> None:
        """A node leads in an epoch."""
        self._judge.note("%s leads in epoch %d", who, epoch)
        before = self._leaders.setdefault(epoch, who)
        self.epoch = max(self.epoch, epoch)
        if before != who:
            self._judge.fail(f"{before} and {who} lead in epoch {epoch}")

    def take(self, who: str, batches: Iterable[MetadataBatch]) -> None:
        """A node takes batches for committed, in their order."""
        for batch in batches:
            if batch.base_offset > self.committed_end:
                self._judge.fail(f"{who} commits {batch.base_offset} where only {self.committed_end} are")
            if batch.base_offset < self.committed_end:
                if self._batches.get(batch.base_offset) != bytes(batch.data):
                    self._judge.fail(f"{who} commits something else than others at {batch.base_offset}")
            else:
                self._replay(who, batch)

    def _replay(self, who: str, batch: MetadataBatch) -> None:
        if batch.epoch < self._last_epoch:
            self._judge.fail(f"{who} commits epoch {batch.epoch} behind {self._last_epoch}")
        self._last_epoch = batch.epoch
        self._batches[batch.base_offset] = bytes(batch.data)
        has_changed = False
        for offset, record in records_of(batch, who):
            if isinstance(record, ControlRecord):
                continue
            for counting in self._transactions.completed((record,)):
                if counting.name != "NoOpRecord":
                    self._look_at(counting)
                    self.state.apply(counting, offset)
                    has_changed = True
        self.committed_end = batch.end_offset
        if has_changed:
            self._last_seen = self.state.seen()
        if not self._transactions.is_open:
            self.seen[batch.end_offset] = self._last_seen

    def _look_at(self, record: MetadataRecord) -> None:
        match record.value:
            case wire.RegisterBrokerRecord() as value:
                lives, incarnation = self._lives.setdefault(value.broker_id, {}), bytes(value.incarnation_id)
                newest = max(lives, default=-1)
                if value.broker_epoch <= newest and lives.get(value.broker_epoch) != incarnation:
                    self._judge.fail(f"broker {value.broker_id} has epoch {value.broker_epoch} behind {newest}")
                lives[value.broker_epoch] = incarnation
            case wire.TopicRecord() as value:
                if bytes(value.topic_id) in self._topics:
                    self._judge.fail(f"{value.name} is made with the id of another topic")
                self._topics.add(bytes(value.topic_id))
            case wire.ProducerIdsRecord() as value:
                if value.next_producer_id <= self._producer_ids:
                    self._judge.fail(f"producer ids are given out again from {value.next_producer_id} on")
                self._producer_ids = value.next_producer_id

    # What controllers answer

    def registered(self, who: str, broker: int, epoch: int) -> None:
        """A broker is answered which epoch it has."""
        if epoch not in self._lives.get(broker, {}):
            self._judge.fail(f"{who} answers that broker {broker} has epoch {epoch}, which is not committed")

    def gave_producer_ids(self, who: str, end: int) -> None:
        """A block of producer ids, which ends there, is given out."""
        if end > self._producer_ids:
            self._judge.fail(f"{who} gives producer ids below {end}, which is not committed")

    def made(self, who: str, topic_id: bytes) -> None:
        """A topic is answered to be there."""
        if topic_id not in self._topics:
            self._judge.fail(f"{who} answers that {topic_id.hex()} is there, which is not committed")

    def deleted(self, who: str, topic_id: bytes) -> None:
        """A topic is answered to be gone."""
        if topic_id in self.state.topics:
            self._judge.fail(f"{who} answers that {topic_id.hex()} is gone, which is not committed")

    def changed(self, who: str, topic: str, partition: PartitionImage) -> None:
        """A partition is answered to be so."""
        found = self.state.topic(topic)
        now = None if found is None else found.partitions.get(partition.partition)
        # One of a topic that was made again meanwhile has fewer epochs behind it.
        if now is not None and now.partition_epoch + 1 == partition.partition_epoch:
            self._judge.fail(f"{who} answers {topic}-{partition}, which is not committed: {now} is")


__all__ = ["Committed"]
