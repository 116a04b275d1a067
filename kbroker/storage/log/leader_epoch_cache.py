"""Which leader epoch wrote which offsets: (epoch, start offset) pairs, kept in `leader-epoch-checkpoint`.

Invariants: epochs and start offsets both ascend strictly; the start offset of an epoch, once assigned, never moves
up.  The first entry's start offset follows the log start offset.  OffsetsForLeaderEpoch is answered from here;
followers use it to find where their log diverges from the leader's.

`write`, with the call that it returns, replaces the file before a log's recovery point moves and when the log closes.
Batches carry their epoch, so recovery finds every pair above the recovery point again.  Pairs beyond the log's end or
before its start are removed at load.  Appends and truncations never wait for an fsync here.  If the file of a log with
records is damaged, empty or missing, the pairs are rebuilt from all batches of the log (`log_mending.mend_epochs`).
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.log_fields import EpochFields
from kbroker._fast.records.record_batch import MAGIC_V2
from kbroker.storage.files.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    CorruptCheckpointError,
    decode_checkpoint,
    encode_checkpoint,
    whole_number,
)
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.replaced_file import ReplacedFile
from kbroker.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from kbroker._fast.records.record_batch import BatchInfo

logger = logging.getLogger("kbroker.storage")

UNDEFINED_EPOCH = LeaderEpoch(-1)
UNDEFINED_OFFSET = Offset(-1)


class EpochEndOffset(NamedTuple):
    """The end offset (exclusive) of the largest epoch up to the one asked for; both -1 when unknown."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


@lru_cache(maxsize=256)
def _decode(data: bytes) -> tuple[tuple[LeaderEpoch, Offset], ...]:
    """The pairs in a file's content: a start reads one of each partition, and most hold the same."""
    entries = decode_checkpoint(data, "leader epochs")
    try:
        return tuple(
            (LeaderEpoch(whole_number(epoch, 32)), Offset(whole_number(start, 64))) for epoch, start in entries
        )
    except ValueError as error:
        raise CorruptCheckpointError("an entry is not `epoch offset`") from error


class LeaderEpochCache(EpochFields):
    """The pairs of one partition and their file."""

    __slots__ = ("_epochs", "_file", "_files", "_starts", "dirty")

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._file = ReplacedFile(files, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        self.latest_epoch = UNDEFINED_EPOCH
        self.dirty = False

    def load(self, *, exists: bool) -> bool:
        """Reads the file.  False when it is damaged: the pairs are found again in the log (`log_mending`).

        Kafka makes the file empty, and writes it with the first pair, which the first record brings.
        """
        data = b""
        if exists:
            with contextlib.suppress(FileNotFoundError):
                data = self._files.read_file(self._file.path)
        try:
            pairs = _decode(data)
        except CorruptCheckpointError as error:
            logger.warning("Finding leader epochs again in the log: %s: %s", self._file.path, error)
            self.dirty = True
            return False
        assert not self._epochs, f"{self.path} is read twice"
        for epoch, start in pairs:
            self._insert(epoch, start)
        return True

    @property
    def path(self) -> str:
        """Where its file is."""
        return self._file.path

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        """(epoch, start offset) of all epochs, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def earliest(self) -> tuple[LeaderEpoch, Offset] | None:
        """(epoch, start offset) of the oldest epoch."""
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def _insert(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """Adds a pair, dropping later ones that contradict it.  False when nothing changes."""
        epochs, starts = self._epochs, self._starts
        if epoch < 0 or start < 0:
            return False
        if epochs and epoch == epochs[-1] and start >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start)
        self.latest_epoch = epoch
        return True

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Notes that `epoch` begins at `start_offset`; nothing happens when it is the latest already."""
        if self._insert(epoch, start_offset):
            self.dirty = True
            self._check_last(epoch, start_offset)
        if CHECKED:
            self.check_invariants()

    def _check_last(self, epoch: int, start_offset: int) -> None:
        """Raises AssertionError unless the last pair is this one, behind the one before it."""
        before = self.entries[-2:-1]
        assert (self.latest_epoch, self._starts[-1]) == (epoch, start_offset), (self.path, epoch, start_offset)
        assert not before or (before[0][0] < epoch and before[0][1] < start_offset), (self.path, before, epoch)

    def found(self, info: BatchInfo) -> None:
        """Notes the epoch of a batch that was read from the log, in the order of the log.  Messages of older formats
        have no epoch: they clear the cache, as appending them does (`UnifiedLog.forget_epochs`)."""
        if info.magic < MAGIC_V2:
            self.clear()
        elif 0 <= info.partition_leader_epoch != self.latest_epoch:
            self.assign(info.partition_leader_epoch, info.base_offset)

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEndOffset:
        """Kafka's endOffsetFor: the end of the largest known epoch that is not after `epoch`."""
        epochs, starts = self._epochs, self._starts
        assert not starts or starts[-1] <= log_end_offset, (self.path, starts[-1], log_end_offset)
        if epoch == UNDEFINED_EPOCH or not epochs or epoch > epochs[-1]:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == epochs[-1]:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(epochs, epoch)
        if higher == 0:
            return EpochEndOffset(epoch, starts[0])
        return EpochEndOffset(epochs[higher - 1], starts[higher])

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`, or -1."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Forgets epochs that start at or after `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self._changed()
        assert not self._starts or self._starts[-1] < end_offset, (self.path, self._starts[-1], end_offset)

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Moves the first pair up to `start_offset` and forgets those before it."""
        at = bisect_right(self._starts, start_offset)
        if at == 0 or (at == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: at - 1], self._starts[: at - 1]
        self._starts[0] = start_offset
        self._changed()
        assert len(self._starts) == 1 or self._starts[1] > start_offset, (self.path, self._starts[1], start_offset)

    def clear(self) -> None:
        """Forget all epochs."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def _changed(self) -> None:
        self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.dirty = True
        assert len(self._epochs) == len(self._starts), (self.path, self._epochs, self._starts)
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless epochs and their starts ascend."""
        epochs, starts = self._epochs, self._starts
        assert all(one < other for one, other in pairwise(epochs)), (self.path, epochs)
        assert all(one < other for one, other in pairwise(starts)), (self.path, starts)
        assert self.latest_epoch == (epochs[-1] if epochs else UNDEFINED_EPOCH), (self.path, self.latest_epoch, epochs)

    def moved_to(self, directory: str) -> None:
        """The file lies in another directory now, and is replaced with the next `write`; after `withdraw`."""
        assert not self._file.is_staged, f"{self.path} is about to be replaced"
        self._file.moved_to(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self.dirty = True

    def encode(self) -> bytes:
        """The file's content for what is in memory."""
        return encode_checkpoint(f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True))

    def write(self) -> ReplacedFile | None:
        """What makes the file hold what is in memory: to be run, in any thread, before the directory's fsync.

        None when it holds that already.
        """
        if self.dirty:
            self._file.stage(self.encode())
            self.dirty = False
        return self._file if self._file.is_staged else None

    def put_in_place(self) -> bool:
        """See `ReplacedFile.put_in_place`."""
        return self._file.put_in_place()

    def withdraw(self) -> None:
        """The directory is about to get another name, or not to be written to any more."""
        if self._file.withdraw():
            self.dirty = True
