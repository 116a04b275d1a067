"""A share-partition does what a plain list of records would do, one by one.

Also of `kbroker.replication.share.aborted`, `kbroker.replication.share.acquiring`,
`kbroker.replication.share.in_flight`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker.errors import CoordinatorNotAvailableError, KafkaError
from kbroker.replication.share.acknowledgements import AcknowledgementBatch
from kbroker.replication.share.acquisition import Demand, LogBatch
from kbroker.replication.share.record_state import RecordState
from kbroker.replication.share.settings import ShareSettings
from tests.replication.share.surroundings import World

LIMIT = 3
LOCK_MS = 1_000
MEMBERS = ("alice", "bob")
GONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
AFTER = {0: RecordState.ARCHIVED, 1: RecordState.ACKNOWLEDGED, 2: RecordState.AVAILABLE, 3: RecordState.ARCHIVED}


@dataclass
class Record:
    """One record as the model has it; `wanted` while a change of it waits to be stored."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    lock: float = 0.0
    wanted: RecordState | None = None


class SharePartitionMachine(RuleBasedStateMachine):
    """Fetches, acknowledgements of any part, locks that time out, writes that fail, and restarts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(ShareSettings(record_lock_ms=LOCK_MS, delivery_count_limit=LIMIT, max_record_locks=30))
        self.world.persister.at_once = False
        self.partition = self.world.partition()
        self.log: list[LogBatch] = []
        self.records: dict[int, Record] = {}
        self.answers: list[KafkaError | None] = []

    @property
    def log_end(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else 0

    @rule(count=st.integers(1, 8))
    def produce(self, count: int) -> None:
        self.log.append(LogBatch(self.log_end, self.log_end + count - 1))

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 12), size=st.integers(1, 12), exact=st.booleans())
    def fetch(self, member: str, most: int, size: int, exact: bool) -> None:
        begin = self.partition.next_fetch_offset
        batches = [batch for batch in self.log if batch.last_offset >= begin]
        if not batches or not self.partition.can_acquire:
            return
        acquired = self.partition.acquire(Demand(member, most, size, exact), batches)
        offsets = [offset for each in acquired for offset in range(each.first_offset, each.last_offset + 1)]
        assert offsets == sorted(set(offsets))
        assert offsets, "a fetch that can acquire acquires"
        if exact:
            assert len(offsets) <= most
        counts = {offset: each.delivery_count for each in acquired for offset in range(each[0], each[1] + 1)}
        for offset in offsets:
            record = self.records.setdefault(offset, Record())
            assert record.state is RecordState.AVAILABLE and record.wanted is None
            record.state, record.member = RecordState.ACQUIRED, member
            record.count += 1
            record.lock = self.world.clock.seconds + LOCK_MS / 1000
            assert record.count == counts[offset] <= LIMIT

    @rule(data=st.data(), member=st.sampled_from(MEMBERS))
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        first = data.draw(st.integers(0, max(0, self.log_end)))
        last = data.draw(st.integers(first, first + 6))
        one = data.draw(st.booleans())
        types = data.draw(
            st.lists(st.integers(0, 4), min_size=1, max_size=1)
            if one
            else st.lists(st.integers(0, 4), min_size=last - first + 1, max_size=last - first + 1)
        )
        start = self.partition.start_offset
        named = [offset for offset in range(first, last + 1) if offset >= start]
        rightful = all(
            (record := self.records.get(offset)) is not None
            and record.state is RecordState.ACQUIRED
            and record.wanted is None
            and record.member == member
            for offset in named
        )
        try:
            self.partition.acknowledge(member, [AcknowledgementBatch(first, last, types)], self.answers.append)
        except KafkaError:
            assert not rightful
            return
        assert rightful
        for offset in named:
            kind = types[0] if len(types) == 1 else types[offset - first]
            record = self.records[offset]
            if kind == 4:
                record.lock = self.world.clock.seconds + LOCK_MS / 1000
                continue
            self._want(offset, AFTER[kind])

    def _want(self, offset: int, state: RecordState) -> None:
        record = self.records[offset]
        exhausted = state is RecordState.AVAILABLE and record.count >= LIMIT
        record.wanted = RecordState.ARCHIVED if exhausted else state

    def _written(self) -> dict[int, tuple[int, int] | None]:
        """What the write says of each offset, state and count; None of those that it says are done with."""
        update = self.world.persister.waiting[0][0]
        done: dict[int, tuple[int, int] | None] = dict.fromkeys(range(update.start_offset))
        return done | {offset: batch[2:] for batch in update.batches for offset in range(batch[0], batch[1] + 1)}

    @staticmethod
    def _is_of(offset: int, record: Record, written: dict[int, tuple[int, int] | None]) -> bool:
        """Whether the write has the change that the record waits for, not one before it."""
        said = written[offset]
        return said is None or said == (record.wanted, record.count)

    @rule(member=st.sampled_from(MEMBERS))
    def end_session(self, member: str) -> None:
        self.partition.release(member, self.answers.append)
        for offset, record in self.records.items():
            if record.state is RecordState.ACQUIRED and record.wanted is None and record.member == member:
                self._want(offset, RecordState.AVAILABLE)

    @precondition(lambda self: self.world.persister.waiting)
    @rule(fails=st.booleans())
    def finish_write(self, fails: bool) -> None:
        # Which of the changes that wait are in this write, the write itself says.
        written = self._written()
        self.world.persister.finish(CoordinatorNotAvailableError() if fails else None)
        for offset in written:
            record = self.records.get(offset)
            if record is None or record.wanted is None or not self._is_of(offset, record, written):
                continue
            if not fails:
                record.state, record.member = record.wanted, ""
            record.wanted = None

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.2]))
    def wait(self, seconds: float) -> None:
        self.world.clock.move(seconds)
        for record in self.records.values():
            held = record.state is RecordState.ACQUIRED and record.wanted is None
            if held and record.lock <= self.world.clock.seconds:
                exhausted = record.count >= LIMIT
                record.state = RecordState.ARCHIVED if exhausted else RecordState.AVAILABLE
                record.member = ""

    @invariant()
    def agrees(self) -> None:
        partition = self.partition
        seen: dict[int, tuple[RecordState, int, str, bool]] = {}
        previous = -1
        for run in partition.in_flight:
            assert previous < run.first <= run.last
            previous = run.last
            for offset in range(run.first, run.last + 1):
                seen[offset] = (run.state, run.delivery_count, run.member_id, run.before is not None)
        for offset, record in self.records.items():
            if offset < partition.start_offset:
                assert record.state in GONE and record.wanted is None
                continue
            waits = record.wanted is not None
            state = record.state if record.wanted is None else record.wanted
            assert seen[offset] == (state, record.count, "" if waits else record.member, waits)
        if partition.in_flight:
            first = partition.in_flight.runs[0]
            assert partition.start_offset == first.first
            assert first.state not in GONE or first.before is not None
            assert partition.end_offset == partition.in_flight.runs[-1].last

    @rule()
    def restart(self) -> None:
        """What was stored is known, all else is available again."""
        persister = self.world.persister
        persister.waiting.clear()
        self.partition.fence(CoordinatorNotAvailableError())
        self.partition = self.world.partition()
        start = max(persister.start_offset, 0)
        stored = {offset: batch for batch in persister.batches for offset in range(batch[0], batch[1] + 1)}
        end = max(stored, default=start - 1)
        for offset, record in self.records.items():
            if offset < start:
                assert record.wanted in GONE or record.state in GONE, "a record was skipped that nobody settled"
        self.records = {
            offset: Record(RecordState(stored[offset][2]), stored[offset][3]) if offset in stored else Record()
            for offset in range(start, end + 1)
        }


TestSharePartition = pytest.mark.filterwarnings("ignore")(SharePartitionMachine.TestCase)
TestSharePartition.__doc__ = """Records are lost, or delivered twice at once, where runs of offsets are cut wrongly."""
TestSharePartition.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
