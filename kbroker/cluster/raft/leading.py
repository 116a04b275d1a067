"""What a leader appends to the metadata log: records of the active controller, in batches of its epoch (`LeaderLog`).

Records wait while those before them are being written: then all that has come meanwhile goes into one batch and one
fsync.  An idle leader writes at the end of the turn.  What one call appends never spans batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import MetadataBatch, checked_batch, control_batch
from kbroker.errors import NotControllerError
from kbroker.metadata.metadata_record import encode_record
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.control import ControlType
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.cluster.raft.voter_set import VoterSet
    from kbroker.metadata.metadata_record import MetadataRecord
    from kbroker.protocol.messages import Message
    from kbroker.waiting import Changes

BATCH_BYTES = 1 << 20
"""A batch that is larger takes no further results."""
OWN = "a batch of this leader"


class Leading:
    """One node's lead of one epoch.

    `write(batches)` puts batches into the log, and returns at once; `written` is called when they are on disk.
    `applied_end()`: the offset behind the last record in the image.
    """

    def __init__(
        self,
        epoch: int,
        start_offset: int,
        write: Callable[[Sequence[MetadataBatch]], None],
        later: Callable[[Callable[[], None]], object],
        applied_end: Callable[[], int],
        resigned: Callable[[str], None],
        changes: Changes,
        now_ms: Callable[[], int],
    ) -> None:
        """`start_offset`: of its LeaderChange.  `later(call)` has a call made at the end of the turn."""
        self.epoch = epoch
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.is_over = False
        self.is_active = False
        """Whether its LeaderChange is committed, and the image has all that is before it."""
        self._write = write
        self._later = later
        self._applied_end = applied_end
        self._resigned = resigned
        self._changes = changes
        self._now_ms = now_ms
        self._results: list[list[bytes]] = []
        self._is_writing = False
        self._is_due = False

    # What the active controller does (`LeaderLog`)

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """See `LeaderLog`."""
        self._check()
        if records:
            self._results.append([encode_record(each) for each in records])
            self.end_offset += len(records)
            self._due()
        return self.end_offset

    async def committed(self, end_offset: int) -> None:
        """See `LeaderLog`."""
        self._check()
        await self._changes.wait_until(lambda: self.is_over or self._applied_end() >= end_offset)
        if self._applied_end() < end_offset:
            raise NotControllerError("The active controller has changed.")

    def resign(self, reason: str) -> None:
        """See `LeaderLog`."""
        if not self.is_over:
            self._resigned(reason)

    def _check(self) -> None:
        if self.is_over:
            raise NotControllerError("The active controller has changed.")

    # Batches

    def _due(self) -> None:
        if not self._is_writing and not self._is_due:
            self._is_due = True
            self._later(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        if self.is_over or self._is_writing or not self._results:
            return
        results, self._results = self._results, []
        offset = self.end_offset - sum(map(len, results))
        try:
            self.put(self._batches(results, offset))
        except Exception as error:
            # The log ends before what was promised: nothing more may follow it in this lead.
            self._resigned(f"records cannot be appended: {error!r}")

    def _batches(self, results: Sequence[Sequence[bytes]], offset: int) -> list[MetadataBatch]:
        found: list[MetadataBatch] = []
        timestamp_ms = self._now_ms()
        builder = RecordBatchBuilder(offset, partition_leader_epoch=self.epoch)
        for result in results:
            if builder.count and builder.size_bytes + sum(map(len, result)) > BATCH_BYTES:
                found.append(checked_batch(bytes(builder.build()), OWN))
                builder = RecordBatchBuilder(found[-1].end_offset, partition_leader_epoch=self.epoch)
            for value in result:
                builder.append(None, value, timestamp_ms)
        found.append(checked_batch(bytes(builder.build()), OWN))
        return found

    def append_control(self, records: Sequence[tuple[ControlType, Message]]) -> int:
        """Append records of the quorum itself as a batch of their own, behind all that lingers."""
        self._check()
        results, self._results = self._results, []
        batches = self._batches(results, self.end_offset - sum(map(len, results))) if results else []
        made = control_batch(records, self.end_offset, self.epoch, self._now_ms())
        batches.append(checked_batch(made, OWN))
        self.end_offset += len(records)
        self.put(batches)
        return self.end_offset

    def put(self, batches: Sequence[MetadataBatch]) -> None:
        """Have batches written."""
        self._is_writing = True
        self._write(batches)

    def written(self) -> None:
        """All that was to be written is on disk."""
        self._is_writing = False
        if self._results:
            self._due()

    def end(self) -> None:
        """This node leads no more: what waits fails, and what lingers is forgotten."""
        self.is_over = True
        self._results.clear()
        self._changes.announce()


def leader_change(
    leader_id: int, voters: VoterSet, granting: Sequence[int], first_voters: int | None
) -> list[tuple[ControlType, Message]]:
    """The records that begin an epoch.  `first_voters`: the kraft.version, where no log names the voters yet."""
    message = wire.LeaderChangeMessage
    change = message(
        version=0,
        leader_id=leader_id,
        voters=[message.Voter(voter_id=each) for each in voters.by_id],
        granting_voters=[message.Voter(voter_id=each) for each in granting],
    )
    records: list[tuple[ControlType, Message]] = [(ControlType.LEADER_CHANGE, change)]
    if first_voters is not None:
        version = wire.KRaftVersionRecord(version=0, kraft_version=first_voters)
        records += [(ControlType.KRAFT_VERSION, version), (ControlType.KRAFT_VOTERS, voters.record())]
    return records
