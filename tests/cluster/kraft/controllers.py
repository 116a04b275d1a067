"""A model of three controllers: logs, elections, high watermarks, snapshots, and what each answers an observer.

The rules are Raft's as Kafka has them (KIP-595): a candidate needs the votes of a majority whose logs are not ahead of
its own; the high watermark is what a majority has, once that includes a record of the leader's epoch.  A leader that
does not know of a newer one goes on answering.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kbroker.cluster.kraft.batches import ControlRecord, MetadataBatch, checked_batch, records_of
from kbroker.cluster.kraft.quorum_steps import LogPlace, SnapshotId
from kbroker.cluster.kraft.snapshots import encoded_snapshot
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import Endpoint
from kbroker.metadata.metadata_record import MetadataRecord, MetadataTransactions, encode_record, metadata_record
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.control import ControlType, encode_control_key
from kbroker.schemas import wire

VOTERS = (3001, 3002, 3003)
START_MS = 1_700_000_000_000


def endpoint_of(node_id: int) -> Endpoint:
    """Where a controller of the model is."""
    return Endpoint("controller", node_id)


def config_record(number: int) -> MetadataRecord:
    """A record that is told from all others by what it sets."""
    return metadata_record(
        wire.ConfigRecord(resource_type=4, resource_name="", name=f"k{number:06}", value=str(number))
    )


def data_batch(base: int, epoch: int, records: list[MetadataRecord]) -> MetadataBatch:
    """A batch as a controller writes it."""
    builder = RecordBatchBuilder(base, partition_leader_epoch=epoch)
    for record in records:
        builder.append(None, encode_record(record), START_MS + base)
    return checked_batch(bytes(builder.build()), "model")


def leader_batch(base: int, epoch: int, leader_id: int) -> MetadataBatch:
    """The first batch of an epoch."""
    builder = RecordBatchBuilder(base, is_control=True, partition_leader_epoch=epoch)
    voters = [wire.LeaderChangeMessage.Voter(voter_id=each) for each in VOTERS]
    value = wire.LeaderChangeMessage(version=0, leader_id=leader_id, voters=voters, granting_voters=voters)
    builder.append(
        encode_control_key(ControlType.LEADER_CHANGE), bytes(value.program(0).encode(value)), START_MS + base
    )
    return checked_batch(bytes(builder.build()), "model")


def _records_in(batches: list[MetadataBatch]) -> Iterator[MetadataRecord]:
    for batch in batches:
        for _, record in records_of(batch, "model"):
            if not isinstance(record, ControlRecord):
                yield record


def ends_in_a_transaction(batches: list[MetadataBatch]) -> bool:
    """Whether a transaction has begun in these batches and not ended."""
    transactions = MetadataTransactions()
    for _ in transactions.completed(_records_in(batches)):
        pass
    return transactions.is_open


@dataclass
class Controller:
    """One of them.  `batches` begin at `start`, which is where `snapshot` ends."""

    node_id: int
    batches: list[MetadataBatch] = field(default_factory=list)
    snapshot: SnapshotId | None = None
    content: bytes = b""
    epoch: int = 0
    leader_id: int = -1
    high_watermark: int = 0
    start: int = 0
    is_up: bool = True

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start

    @property
    def last_epoch(self) -> int:
        if self.batches:
            return self.batches[-1].epoch
        return 0 if self.snapshot is None else self.snapshot.epoch

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ends."""
        known = [each for each in self.batches if each.epoch <= epoch]
        if known:
            return known[-1].epoch, known[-1].end_offset
        if self.snapshot is not None and self.snapshot.epoch <= epoch:
            return self.snapshot.epoch, self.snapshot.end_offset
        return epoch, self.start

    def is_gone(self, offset: int, epoch: int) -> bool:
        """Whether a log that ends there in that epoch may differ below this one's start."""
        snapshot = self.snapshot
        if snapshot is None or not self.start:
            return False
        return offset < self.start or epoch < snapshot.epoch or (offset == self.start and epoch != snapshot.epoch)

    def truncate(self, offset: int) -> None:
        assert offset >= self.high_watermark, "the model itself takes back what is committed"
        self.batches = [each for each in self.batches if each.end_offset <= offset]


class Controllers:
    """The quorum.  `committed` is every record that was ever committed, by offset."""

    def __init__(self) -> None:
        self.nodes = {node_id: Controller(node_id) for node_id in VOTERS}
        self.committed: dict[int, bytes] = {}
        self.count = 0
        self.elect(VOTERS[0])

    @property
    def committed_end(self) -> int:
        return max(node.high_watermark for node in self.nodes.values())

    # -- what happens -------------------------------------------------------------------------------------------------

    def elect(self, node_id: int) -> bool:
        """Make it leader of a new epoch, if a majority votes for it."""
        candidate = self.nodes[node_id]
        own = (candidate.last_epoch, candidate.end)
        granting = [each for each in self.nodes.values() if each.is_up and (each.last_epoch, each.end) <= own]
        if not candidate.is_up or len(granting) * 2 <= len(VOTERS):
            return False
        epoch = max(each.epoch for each in granting) + 1
        for each in granting:
            each.epoch, each.leader_id = epoch, -1
        candidate.leader_id = node_id
        candidate.batches.append(leader_batch(candidate.end, epoch, node_id))
        if ends_in_a_transaction(candidate.batches):
            aborted = metadata_record(wire.AbortTransactionRecord(reason="another leader"))
            candidate.batches.append(data_batch(candidate.end, epoch, [aborted]))
        return True

    def transact(self, node_id: int) -> None:
        """A node that takes itself for the leader begins a metadata transaction, or ends the one that is open."""
        node = self.nodes[node_id]
        if node.is_up and node.leader_id == node_id:
            is_open = ends_in_a_transaction(node.batches)
            value = wire.EndTransactionRecord() if is_open else wire.BeginTransactionRecord(name="model")
            node.batches.append(data_batch(node.end, node.epoch, [metadata_record(value)]))

    def tell(self, node_id: int) -> None:
        """A voter hears of the newest leader."""
        node, leader = self.nodes[node_id], self.leader()
        if leader is not None and node.is_up and leader.epoch >= node.epoch:
            node.epoch, node.leader_id = leader.epoch, leader.node_id

    def lose_leader(self, node_id: int) -> None:
        """A voter stands for election in vain: a new epoch without a leader."""
        node = self.nodes[node_id]
        if node.is_up:
            node.epoch, node.leader_id = node.epoch + 1, -1

    def leader(self) -> Controller | None:
        """The newest that takes itself for the leader."""
        leading = [each for each in self.nodes.values() if each.is_up and each.leader_id == each.node_id]
        return max(leading, key=lambda each: each.epoch, default=None)

    def append(self, node_id: int, size: int) -> None:
        """A node that takes itself for the leader writes a batch."""
        node = self.nodes[node_id]
        if node.is_up and node.leader_id == node_id:
            records = [config_record(self.count + at) for at in range(size)]
            self.count += size
            node.batches.append(data_batch(node.end, node.epoch, records))

    def replicate(self, node_id: int, most: int = 1 << 30) -> None:
        """A voter fetches from the newest leader."""
        leader, node = self.leader(), self.nodes[node_id]
        if leader is None or node is leader or not node.is_up or node.epoch > leader.epoch:
            return
        self.tell(node_id)
        while node.end:
            # As long as the leader answers with another end.
            if leader.is_gone(node.end, node.last_epoch):
                assert leader.snapshot is not None
                node.snapshot, node.content, node.batches = leader.snapshot, leader.content, []
                node.start = node.high_watermark = leader.snapshot.end_offset
            epoch, end = leader.end_of(node.last_epoch)
            if epoch == node.last_epoch and end >= node.end:
                break
            node.truncate(min(end, node.end_of(epoch)[1]))
        if not node.end and leader.start:
            node.snapshot, node.content, node.batches = leader.snapshot, leader.content, []
            node.start = node.high_watermark = leader.start
        missing = [each for each in leader.batches if each.base_offset >= node.end]
        node.batches += missing[:most]
        self._commit(leader)
        node.high_watermark = max(node.high_watermark, min(leader.high_watermark, node.end))

    def _commit(self, leader: Controller) -> None:
        ends = sorted(self._matching(each, leader) for each in self.nodes.values())
        reached = ends[(len(VOTERS) - 1) // 2]
        known = [each for each in leader.batches if each.end_offset == reached]
        if reached > leader.high_watermark and known and known[0].epoch == leader.epoch:
            leader.high_watermark = reached
            for batch in leader.batches:
                if batch.end_offset <= reached:
                    self._note(batch)

    def _note(self, batch: MetadataBatch) -> None:
        for offset in range(batch.base_offset, batch.end_offset):
            assert self.committed.setdefault(offset, batch.data) == batch.data, (
                "the model commits two things at one offset"
            )

    @staticmethod
    def _matching(node: Controller, leader: Controller) -> int:
        """Up to where a node's log is the leader's, as far as its fetches say."""
        if node is leader:
            return leader.end
        if node.epoch != leader.epoch or node.leader_id != leader.node_id:
            return 0
        same = {(each.base_offset, each.data) for each in leader.batches}
        end = max(node.start, 0)
        for batch in node.batches:
            if (batch.base_offset, batch.data) not in same and batch.base_offset >= leader.start:
                break
            end = batch.end_offset
        return end

    def take_snapshot(self, node_id: int, *, keeps: int = 0) -> None:
        """A node writes a snapshot of what is committed, and deletes its log up to there, but for `keeps` batches."""
        node = self.nodes[node_id]
        end = node.high_watermark
        if end <= node.start:
            return
        below = [each for each in node.batches if each.end_offset <= end]
        epoch, committed = below[-1].epoch, self.committed_batches(end)
        if ends_in_a_transaction(committed):
            return
        records = [config_record(int(name[1:])) for name in self.names_in(committed)]
        node.snapshot = SnapshotId(end, epoch)
        node.content = b"".join(encoded_snapshot(records, epoch, START_MS + end))
        if not keeps:
            node.start = end
            node.batches = [each for each in node.batches if each.end_offset > end]

    def committed_batches(self, end: int) -> list[MetadataBatch]:
        """All that were committed below an offset."""
        found, at = [], 0
        while at < end:
            batch = checked_batch(self.committed[at], "model")
            found.append(batch)
            at = batch.end_offset
        return found

    @staticmethod
    def names_in(batches: list[MetadataBatch]) -> list[str]:
        """What the records of batches set, but for those of a transaction that has not ended."""
        transactions = MetadataTransactions()
        return [
            record.value.name  # type: ignore[attr-defined]
            for record in transactions.completed(_records_in(batches))
        ]

    def heal(self) -> None:
        """All is well: everybody is there, one leads, and the others have all that it has."""
        for each in self.nodes.values():
            each.is_up, each.epoch, each.leader_id = True, max(one.epoch for one in self.nodes.values()), -1
        assert any(self.elect(each) for each in VOTERS)
        leader = self.leader()
        assert leader is not None
        self.append(leader.node_id, 1)
        for each in VOTERS * 2:
            self.replicate(each)

    # -- what they answer ---------------------------------------------------------------------------------------------

    def fetch(self, node_id: int, place: LogPlace, max_bytes: int) -> wire.FetchResponse | None:
        """The answer to a Fetch; None: the node is down."""
        node = self.nodes[node_id]
        if not node.is_up:
            return None
        answer = wire.FetchResponse
        row = answer.PartitionData(partition_index=0, high_watermark=-1, log_start_offset=0, last_stable_offset=-1)
        row.current_leader = answer.LeaderIdAndEpoch(leader_id=node.leader_id, leader_epoch=node.epoch)
        row.records = b""
        made = answer(responses=[answer.FetchableTopicResponse(topic_id=bytes(16), partitions=[row])])
        if node.leader_id >= 0:
            at = endpoint_of(node.leader_id)
            made.node_endpoints = [answer.NodeEndpoint(node_id=node.leader_id, host=at.host, port=at.port)]
        row.error_code = self._refusal(node, place.epoch)
        if not row.error_code:
            self._serve(node, place, max_bytes, row)
        return made

    @staticmethod
    def _refusal(node: Controller, epoch: int) -> int:
        if epoch < node.epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        if epoch > node.epoch:
            return int(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return 0 if node.leader_id == node.node_id else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _serve(self, node: Controller, place: LogPlace, max_bytes: int, row: wire.FetchResponse.PartitionData) -> None:
        answer = wire.FetchResponse
        snapshot = node.snapshot
        if snapshot is not None and (place.end_offset == 0 or node.is_gone(place.end_offset, place.last_epoch)):
            row.snapshot_id = answer.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
            return
        epoch, end = node.end_of(place.last_epoch)
        if place.end_offset and (epoch < place.last_epoch or end < place.end_offset):
            row.diverging_epoch = answer.EpochEndOffset(epoch=epoch, end_offset=end)
            return
        row.high_watermark = node.high_watermark
        data = b"".join(each.data for each in node.batches if each.end_offset > place.end_offset)
        first = next((len(each.data) for each in node.batches if each.end_offset > place.end_offset), 0)
        row.records = data[: max(first, max_bytes)]

    def fetch_snapshot(
        self, node_id: int, epoch: int, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> wire.FetchSnapshotResponse | None:
        """The answer to a FetchSnapshot; None: the node is down."""
        node = self.nodes[node_id]
        if not node.is_up:
            return None
        answer = wire.FetchSnapshotResponse
        if self._refusal(node, epoch) or node.snapshot != snapshot or position > len(node.content):
            return answer(error_code=-1)
        row = answer.PartitionSnapshot(
            index=0,
            snapshot_id=answer.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
            size=len(node.content),
            position=position,
            unaligned_records=node.content[position : position + max_bytes],
        )
        row.current_leader = answer.LeaderIdAndEpoch(leader_id=node.leader_id, leader_epoch=node.epoch)
        return answer(topics=[answer.TopicSnapshot(name="__cluster_metadata", partitions=[row])])
