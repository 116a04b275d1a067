"""What an observer of the controllers' quorum asks whom next, and what an answer means (KIP-595, KIP-630, KIP-853).

A state machine without I/O and without a clock: times are arguments, in seconds on any clock that does not go back.

    ask = quorum.next(now)                     Fetch, FetchSnapshot, or Wait until a time
    steps = quorum.answered(ask, answer, now)  what is to be done with the log, in order
    quorum.failed(ask, now)                    there was no answer

One question is under way at a time.  The steps are carried out before the next question, which acknowledges them: it
says where the log ends.

Rules: an epoch or a leader that is older than the known one is never taken, nor anything that such a controller says;
the high watermark never goes back, and never beyond the log's end; a truncation never goes below it.  The leader that
controllers name may be dead: it is asked in turn with the others, at growing intervals.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.kraft.batches import DamagedBatchesError, MetadataBatch, whole_batches
from kbroker.cluster.kraft.quorum_steps import (
    NO_LEADER,
    UNKNOWN,
    Append,
    Ask,
    Committed,
    Elected,
    EpochStart,
    Fatal,
    Fetch,
    FetchSnapshot,
    Identity,
    KeptLog,
    Leader,
    LogPlace,
    SnapshotId,
    SnapshotPiece,
    Step,
    Trouble,
    Truncate,
    Wait,
)
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import Endpoint
from kbroker.schemas import wire

MAX_BACKOFF_SECONDS = 1.0


class _Named(Protocol):
    """A leader as an answer names it."""

    leader_id: int
    leader_epoch: int


class _At(Protocol):
    """Where an answer says that a node is."""

    node_id: int
    host: str
    port: int


class Quorum:
    """See the module.  `addresses` are those known beforehand, `voters` those by id."""

    def __init__(
        self,
        identity: Identity,
        kept: KeptLog,
        addresses: Sequence[Endpoint],
        voters: Mapping[int, Endpoint],
        rng: random.Random,
        *,
        backoff_seconds: float = 0.02,
    ) -> None:
        self._identity = identity
        self._random = rng
        self._backoff_seconds = backoff_seconds
        self._beforehand = tuple(dict.fromkeys((*addresses, *voters.values())))
        self._known: dict[int, Endpoint] = dict(voters)
        self._epochs = list(kept.epochs)
        self._base = kept.snapshot
        self.end_offset = kept.end_offset
        self.high_watermark = UNKNOWN if kept.snapshot is None else kept.snapshot.end_offset
        self.epoch = max(kept.epoch, self.last_epoch)
        self.leader_id = kept.leader_id if kept.epoch == self.epoch else NO_LEADER
        self.leader_high_watermark = UNKNOWN
        """The first high watermark that a leader answered with since this process started."""
        self.served_count = 0
        """Good answers of leaders so far."""
        self._snapshot: tuple[SnapshotId, int] | None = None
        self._not_before = 0.0
        self._failures = 0
        self._leader_failures = 0
        self._leader_not_before = 0.0
        self._next_address = rng.randrange(max(1, len(self._beforehand)))

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; 0 without one."""
        if self._epochs:
            return self._epochs[-1].epoch
        return 0 if self._base is None else self._base.epoch

    @property
    def base(self) -> SnapshotId | None:
        """The snapshot behind which the epochs are known; None: from the begin of the log."""
        return None if self._base is None or not self._base.end_offset else self._base

    @property
    def leader(self) -> Leader | None:
        """The active controller as far as it is known."""
        endpoint = self._known.get(self.leader_id)
        return None if endpoint is None else Leader(self.leader_id, self.epoch, endpoint)

    # -- questions ----------------------------------------------------------------------------------------------------

    def next(self, now: float) -> Ask | Wait:
        """What to do next."""
        if now < self._not_before:
            return Wait(self._not_before)
        to = self._target(now)
        if to is None:
            return Wait(now + MAX_BACKOFF_SECONDS)
        if self._snapshot is not None:
            snapshot, position = self._snapshot
            return FetchSnapshot(to, self.epoch, snapshot, position)
        return Fetch(to, LogPlace(self.epoch, self.end_offset, self.last_epoch, self.high_watermark))

    def _target(self, now: float) -> Endpoint | None:
        leader = self.leader
        if leader is not None and now >= self._leader_not_before:
            return leader.endpoint
        addresses = tuple(dict.fromkeys((*self._beforehand, *self._known.values())))
        others = [each for each in addresses if leader is None or each != leader.endpoint] or addresses
        if not others:
            return None
        return others[self._next_address % len(others)]

    # -- failures -----------------------------------------------------------------------------------------------------

    def failed(self, ask: Ask, now: float) -> None:
        """There was no answer to a question: another controller is asked after a pause."""
        leader = self.leader
        if leader is not None and ask.to == leader.endpoint:
            pause = ExponentialBackoff(self._backoff_seconds, MAX_BACKOFF_SECONDS).backoff(self._leader_failures)
            self._leader_failures += 1
            self._leader_not_before = now + pause * self._random.uniform(1.0, 1.5)
        self._snapshot = None
        self._next_address += 1
        self._back_off(now)

    def _back_off(self, now: float) -> None:
        # The first round goes through all that are known quickly, later ones more slowly.
        rounds = self._failures // max(1, len(self._beforehand))
        pause = ExponentialBackoff(self._backoff_seconds, MAX_BACKOFF_SECONDS / 2).backoff(rounds)
        self._failures += 1
        self._not_before = now + pause * self._random.uniform(1.0, 1.5)

    def _succeeded(self) -> None:
        self.served_count += 1
        self._failures = self._leader_failures = 0
        self._leader_not_before = self._not_before = 0.0

    # -- answers ------------------------------------------------------------------------------------------------------

    def answered(self, ask: Ask, answer: wire.FetchResponse | wire.FetchSnapshotResponse, now: float) -> list[Step]:
        """What an answer means.  The state is as after the steps, but for a snapshot: see `snapshot_loaded`."""
        if answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            return [self._wrong_cluster(ask)]
        if isinstance(ask, FetchSnapshot):
            assert isinstance(answer, wire.FetchSnapshotResponse)
            return self._snapshot_answered(ask, answer, now)
        assert isinstance(answer, wire.FetchResponse)
        row = _fetched(answer)
        if answer.error_code or row is None:
            return self._refused(ask, answer.error_code, now)
        was_known = self.leader is not None
        steps = self._take_leader(row.current_leader, answer.node_endpoints, ask.to if not row.error_code else None)
        if row.error_code:
            return [*steps, *self._not_served(ask, row.error_code, was_known, bool(steps), now)]
        if row.current_leader.leader_epoch not in (NO_LEADER, self.epoch):
            self.failed(ask, now)
            return [Trouble(f"{_at(ask)} answers from epoch {row.current_leader.leader_epoch}, known is {self.epoch}")]
        if ask.place.epoch != self.epoch:
            # The question was of an older epoch, and so was its answer.
            return steps
        return [*steps, *self._served(ask, row, now)]

    def _wrong_cluster(self, ask: Ask) -> Fatal:
        return Fatal(
            f"the controller {_at(ask)} belongs to another cluster than this broker, whose directories say "
            f"{self._identity.cluster_id}: either the controllers' addresses or the log directories are wrong"
        )

    def _refused(self, ask: Ask, code: int, now: float) -> list[Step]:
        self.failed(ask, now)
        return [Trouble(f"{_at(ask)} answers with error {code}" if code else f"{_at(ask)} answers nothing of the log")]

    def _take_leader(self, named: _Named, endpoints: Sequence[_At], asked: Endpoint | None) -> list[Step]:
        """Take a newer epoch, or this one's leader if none is known.  `asked`: who has served as leader."""
        at = {each.node_id: Endpoint(each.host, each.port) for each in endpoints}
        epoch, leader_id = named.leader_epoch, named.leader_id
        if epoch < self.epoch or (epoch == self.epoch and leader_id < 0):
            return []
        if leader_id == self._identity.node_id:
            return self._named_leader(epoch)
        if epoch == self.epoch and self.leader_id not in (NO_LEADER, leader_id):
            return []
        endpoint = at.get(leader_id) or self._known.get(leader_id) or asked
        is_new = (epoch, max(leader_id, NO_LEADER)) != (self.epoch, self.leader_id)
        if leader_id >= 0 and endpoint is not None and self._known.get(leader_id) != endpoint:
            self._known[leader_id] = endpoint
            self._leader_not_before = 0.0
        if not is_new:
            return []
        self.epoch, self.leader_id = epoch, max(leader_id, NO_LEADER)
        self._leader_failures, self._leader_not_before = 0, 0.0
        self._snapshot = None
        return [Elected(self.epoch, self.leader_id)]

    def _named_leader(self, epoch: int) -> list[Step]:
        """A controller says that this node leads, which it does not."""
        if not self._identity.may_lead:
            node_id = self._identity.node_id
            return [Fatal(f"node.id {node_id} is that of a controller: a broker needs an id of its own")]
        if epoch == self.epoch:
            return []
        self.enter(epoch, NO_LEADER)
        return [Elected(epoch, self._identity.node_id)]

    def _not_served(self, ask: Ask, code: int, was_known: bool, is_news: bool, now: float) -> list[Step]:
        if is_news and self.leader is not None:
            # It is asked at once.
            self._not_before = 0.0
            return []
        # No news: no leader, or the one that this broker has asked already, which may be dead or have resigned.
        self.failed(ask, now)
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
            if not was_known and self.leader is not None:
                self._not_before = 0.0
            return []
        return [Trouble(f"{_at(ask)} answers with error {code}")]

    def _served(self, ask: Ask, row: wire.FetchResponse.PartitionData, now: float) -> list[Step]:
        if row.snapshot_id.end_offset >= 0 and row.snapshot_id.epoch >= 0:
            return self._begin_snapshot(ask, SnapshotId(row.snapshot_id.end_offset, row.snapshot_id.epoch), now)
        if row.diverging_epoch.end_offset >= 0 and row.diverging_epoch.epoch >= 0:
            return self._diverged(ask, EpochStart(row.diverging_epoch.epoch, row.diverging_epoch.end_offset), now)
        steps: list[Step] = []
        records = _plain(row.records)
        if records:
            try:
                batches = self._following(records, _at(ask))
            except DamagedBatchesError as error:
                self.failed(ask, now)
                return [Trouble(str(error))]
            steps.append(Append(batches))
        self._succeeded()
        if self.leader_high_watermark == UNKNOWN and row.high_watermark >= 0:
            self.leader_high_watermark = row.high_watermark
        return [*steps, *self._commit(row.high_watermark)]

    def _commit(self, high_watermark: int) -> list[Step]:
        reached = min(high_watermark, self.end_offset)
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [Committed(reached)] if reached else []

    def _following(self, records: bytes, where: str) -> tuple[MetadataBatch, ...]:
        """The batches of an answer, which follow the log's end, one behind the other.  DamagedBatchesError."""
        batches = tuple(whole_batches(records, where))
        end, epoch = self.end_offset, self.last_epoch
        for batch in batches:
            if batch.base_offset != end:
                raise DamagedBatchesError(f"{where}: a batch begins at offset {batch.base_offset}, {end} is due")
            if not epoch <= batch.epoch <= self.epoch:
                due = f"between {epoch} and {self.epoch}"
                raise DamagedBatchesError(f"{where}: the batch at offset {end} is of epoch {batch.epoch}, not {due}")
            end, epoch = batch.end_offset, batch.epoch
        for batch in batches:
            if not self._epochs or self._epochs[-1].epoch != batch.epoch:
                self._epochs.append(EpochStart(batch.epoch, batch.base_offset))
        self.end_offset = end
        return batches

    def _diverged(self, ask: Ask, diverging: EpochStart, now: float) -> list[Step]:
        """Take a diverging epoch: the leader's end of our last epoch, or of the last epoch before it that the leader
        has."""
        later = [each.offset for each in self._epochs if each.epoch > diverging.epoch]
        end = min(diverging.offset, later[0] if later else self.end_offset)
        if end < self.high_watermark:
            return [
                Fatal(
                    f"the leader {_at(ask)} has other records from offset {end} on, and those below "
                    f"{self.high_watermark} were committed: the controllers have lost metadata; without "
                    f"__cluster_metadata-0 the broker would begin with what they have"
                )
            ]
        if end >= self.end_offset:
            self.failed(ask, now)
            return [Trouble(f"{_at(ask)} says that the log differs from offset {end} on, which is its end")]
        self._succeeded()
        self.truncated(end)
        return [Truncate(end)]

    def truncated(self, end_offset: int) -> None:
        """The log ends here now."""
        self._epochs = [each for each in self._epochs if each.offset < end_offset]
        self.end_offset = end_offset

    # -- what a voter knows before its log does ------------------------------------------------------------------------

    def enter(self, epoch: int, leader_id: int) -> None:
        """The epoch by now, and its leader; never an older one, nor another leader of the same epoch."""
        assert epoch > self.epoch or (epoch == self.epoch and self.leader_id in (NO_LEADER, leader_id))
        self.epoch, self.leader_id = epoch, leader_id
        self._leader_failures, self._leader_not_before = 0, 0.0
        self._snapshot = None

    def appended(self, epoch: int, start_offset: int, end_offset: int) -> None:
        """A leader has written records of its own epoch."""
        assert epoch == self.epoch >= self.last_epoch and start_offset == self.end_offset < end_offset
        if not self._epochs or self._epochs[-1].epoch != epoch:
            self._epochs.append(EpochStart(epoch, start_offset))
        self.end_offset = end_offset

    def end_of_epoch(self, epoch: int) -> EpochStart:
        """The largest epoch up to this one that the log has, and where its records end."""
        base = self._base
        found, end = (0, 0) if base is None else (base.epoch, base.end_offset)
        for at, each in enumerate(self._epochs):
            if each.epoch > epoch:
                break
            found = each.epoch
            end = self._epochs[at + 1].offset if at + 1 < len(self._epochs) else self.end_offset
        return EpochStart(found, end)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _begin_snapshot(self, ask: Ask, snapshot: SnapshotId, now: float) -> list[Step]:
        if snapshot.end_offset <= max(self.high_watermark, 0):
            self.failed(ask, now)
            return [Trouble(f"{_at(ask)} offers a snapshot up to {snapshot.end_offset}, which this broker is past")]
        self._succeeded()
        self._snapshot = snapshot, 0
        return []

    def _snapshot_answered(self, ask: FetchSnapshot, answer: wire.FetchSnapshotResponse, now: float) -> list[Step]:
        rows = answer.topics[0].partitions if answer.topics else []
        steps: list[Step] = []
        if rows:
            steps = self._take_leader(rows[0].current_leader, answer.node_endpoints, None)
        code = answer.error_code or (rows[0].error_code if rows else ErrorCode.UNKNOWN_SERVER_ERROR)
        if code or self._snapshot != (ask.snapshot, ask.position):
            self._snapshot = None
            if not steps:
                self.failed(ask, now)
            return [*steps, Trouble(f"{_at(ask)} gives no snapshot, but error {code}")] if code else steps
        row = rows[0]
        data = _plain(row.unaligned_records)
        if row.position != ask.position or not data or ask.position + len(data) > row.size:
            self.failed(ask, now)
            return [
                Trouble(
                    f"{_at(ask)} answers with {len(data)} bytes at {row.position} of {row.size} bytes of a snapshot, "
                    f"asked was for {ask.position}"
                )
            ]
        position = ask.position + len(data)
        is_last = position == row.size
        self._snapshot = None if is_last else (ask.snapshot, position)
        self._succeeded()
        return [SnapshotPiece(ask.snapshot, ask.position, data, is_last)]

    def snapshot_loaded(self, snapshot: SnapshotId) -> None:
        """A snapshot is on disk and takes the place of all that there was."""
        self._base, self._epochs = snapshot, []
        self.end_offset = self.high_watermark = snapshot.end_offset

    def snapshot_refused(self, ask: Ask, now: float) -> None:
        """A snapshot is damaged: another controller is asked, from the log's end on."""
        self.failed(ask, now)

    def voters(self, endpoints: Mapping[int, Endpoint]) -> None:
        """Where the log says that the controllers are."""
        for node_id, endpoint in endpoints.items():
            if node_id != self.leader_id or node_id not in self._known:
                self._known[node_id] = endpoint


def _fetched(answer: wire.FetchResponse) -> wire.FetchResponse.PartitionData | None:
    rows = [row for topic in answer.responses for row in topic.partitions]
    return rows[0] if len(rows) == 1 and rows[0].partition_index == 0 else None


def _at(ask: Ask) -> str:
    return f"{ask.to.host}:{ask.to.port}"


def _plain(records: object) -> bytes:
    """What an answer carries; none where it carries nothing."""
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else b""
