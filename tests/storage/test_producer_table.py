"""The table of a partition's producers: against a dictionary, its memory, what it forgets when there are too many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.log.producer_entry import ProducerEntry
from kbroker._fast.log.producer_table import LEAST_KEPT, ProducerBudget, ProducerTable
from kbroker._fast.records.record_batch import BatchInfo, read_header
from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import START_MS, UNSYNCED_FILES, append, batch, environment, marker, open_log

BYTES_PER_PRODUCER = 200


def info_of(pid: int, sequence: int, *, epoch: int = 0, transactional: bool = False, at: int = START_MS) -> BatchInfo:
    return read_header(
        batch(producer_id=pid, epoch=epoch, sequence=sequence, transactional=transactional, timestamp=at)
    )


class Model:
    """What the table should hold: entries in the order of use."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.entries: dict[int, ProducerEntry] = {}
        self.evicted = 0

    def touch(self, pid: int) -> ProducerEntry:
        entry = self.entries.pop(pid, None)
        if entry is None:
            if self.limit and len(self.entries) >= max(self.limit, LEAST_KEPT):
                oldest = next((p for p, e in self.entries.items() if e.current_txn_first_offset < 0), None)
                if oldest is not None:
                    del self.entries[oldest]
                    self.evicted += 1
            entry = ProducerEntry(pid)
        self.entries[pid] = entry
        return entry


STEPS = st.lists(
    st.tuples(st.sampled_from(["note", "begin", "end", "discard", "put"]), st.integers(0, 120)), max_size=400
)


@given(STEPS, st.sampled_from([0, 20, 70]))
def test_table_holds_what_a_dictionary_would(steps: list[tuple[str, int]], limit: int) -> None:
    """A producer would be taken for another one or be forgotten: duplicates stored, or good batches refused."""
    budget = ProducerBudget(limit)
    table, model = ProducerTable(budget), Model(limit)
    for offset, (step, number) in enumerate(steps):
        # Ids of one hash neighbourhood as well as ids far apart.
        pid = number if number % 2 else number << 32
        if step == "discard":
            assert table.discard(pid) == (model.entries.pop(pid, None) is not None)
            continue
        if step == "put":
            model.touch(pid)
            entry = ProducerEntry(pid, 3, 4, 5, -1)
            model.entries[pid] = entry
            table.put(entry)
            continue
        info = info_of(pid, offset, transactional=step == "begin")
        entry = model.touch(pid)
        first = entry.current_txn_first_offset
        if step == "end":
            assert table.end_transaction(info, 9) == first
            model.entries[pid] = copy(entry, epoch=0, coordinator=9, last=START_MS, txn=-1)
            continue
        begins = step == "begin" and first < 0
        assert table.note(info, offset, offset) == begins
        entry.add(0, info.last_sequence, offset, 0, START_MS)
        if begins:
            model.entries[pid] = copy(entry, epoch=0, coordinator=entry.coordinator_epoch, last=START_MS, txn=offset)
        assert len(table) == len(model.entries) == budget.count
    assert sorted(table.keys()) == sorted(model.entries)
    assert all(show(table[pid]) == show(entry) for pid, entry in model.entries.items())
    assert budget.evictions == model.evicted
    del table
    assert budget.count == 0


def copy(entry: ProducerEntry, *, epoch: int, coordinator: int, last: int, txn: int) -> ProducerEntry:
    made = ProducerEntry(entry.producer_id, epoch, coordinator, last, txn)
    if entry.producer_epoch == epoch:
        for sequence, offset, delta, timestamp in entry.remembered():
            made.add(epoch, sequence, offset, delta, timestamp)
    return made


def show(entry: ProducerEntry) -> tuple[object, ...]:
    return (repr(entry), entry.coordinator_epoch, entry.last_timestamp, entry.remembered())


def test_next_batch_is_told_from_any_other() -> None:
    """The quick way would let a gap, a fenced producer or a batch outside of its transaction through."""
    table = ProducerTable()
    assert table.is_next(info_of(7, 40, epoch=1)), "an unknown producer may begin anywhere"
    assert not table.is_next(info_of(7, 0, transactional=True)), "who begins a transaction is looked at closely"
    table.note(info_of(7, 40, epoch=1), 0, 0)
    assert table.is_next(info_of(7, 41, epoch=1))
    for other in (info_of(7, 40, epoch=1), info_of(7, 42, epoch=1), info_of(7, 41), info_of(7, 0, epoch=2)):
        assert not table.is_next(other)
    assert not table.is_next(info_of(7, 41, epoch=1, transactional=True))
    assert table.note(info_of(7, 41, epoch=1, transactional=True), 1, 1)
    assert table.is_next(info_of(7, 42, epoch=1, transactional=True))
    assert not table.is_next(info_of(7, 42, epoch=1))
    assert not table.is_next(read_header(marker(7, 1, abort=False)))
    top = (1 << 31) - 1
    table.note(info_of(8, top), 2, 2)
    assert table.is_next(info_of(8, 0))
    assert not table.is_next(info_of(8, top))


MEMORY = """
import os
from kbroker._fast.log.producer_entry import ProducerEntry
from kbroker._fast.log.producer_table import ProducerTable
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
table = ProducerTable()
worst = 0
before = resident()
for fill in range(3):
    for pid in range(1, 100_001):
        entry = ProducerEntry(pid * 1000)
        for at in range(5):
            entry.add(0, at, at, 0, at)
        table.put(entry)
        if fill == 0 and pid % 10_000 == 0:
            worst = max(worst, (resident() - before) / pid)
    print(int(max(worst, (resident() - before) / 100_000)))
    table.clear()
"""


def test_producer_takes_at_most_200_bytes() -> None:
    """A broker with millions of short-lived producers would run out of memory; or by and by, as they come and go."""
    ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    filled = [int(line) for line in ran.stdout.split()]
    assert len(filled) == 3
    assert max(filled) <= BYTES_PER_PRODUCER, filled


def test_flooded_partition_forgets_its_own_producers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Producers that never come back would fill the memory; or those of quiet partitions lose their retries' safety."""
    config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path), "kbroker.max.producers": "40"})
    manager = LogManager(config, SYSTEM_CLOCK, UNSYNCED_FILES)
    manager.environment.verifies = False
    manager.start("cluster")
    quiet, flooded = (
        manager.get_or_create_log(TopicPartition("orders", at), random_uuid(), LogConfig()) for at in range(2)
    )
    now_ms = SYSTEM_CLOCK.now_ms()
    for pid in range(10):
        append(quiet, batch(producer_id=pid, epoch=0, sequence=0, timestamp=now_ms))
    append(flooded, batch(producer_id=99, epoch=0, sequence=0, timestamp=now_ms, transactional=True))
    for pid in range(100, 200):
        append(flooded, batch(producer_id=pid, epoch=0, sequence=0, timestamp=now_ms))
        append(flooded, batch(producer_id=100, epoch=0, sequence=pid - 99, timestamp=now_ms))
    budget = manager.environment.producers
    assert (budget.count, budget.evictions) == (40, 71)
    assert sorted(quiet.producer_state.producers) == list(range(10))
    kept = sorted(flooded.producer_state.producers)
    assert kept == [99, 100, *range(172, 200)], "the one in a transaction, the busy one, the latest"
    assert append(quiet, batch(producer_id=3, epoch=0, sequence=0, timestamp=now_ms)).duplicate
    assert len([line for line in caplog.messages if "kbroker.max.producers (40)" in line]) == 1
    manager.shutdown()


def test_partition_keeps_a_few_whatever_the_others_hold(tmp_path: Path) -> None:
    """A partition whose producers begin after the broker is full of them would have no protection at all."""
    env = environment()
    env.producers.limit = 10
    first = open_log(tmp_path / "orders-0", env=env, topic_partition=TopicPartition("orders", 0))
    second = open_log(tmp_path / "orders-1", env=env, topic_partition=TopicPartition("orders", 1))
    for pid in range(30):
        for log in (first, second):
            append(log, batch(producer_id=pid, epoch=0, sequence=0))
    assert [len(log.producer_state.producers) for log in (first, second)] == [LEAST_KEPT] * 2
    assert env.producers.count == 2 * LEAST_KEPT
    second.producer_state.clear()
    assert env.producers.count == LEAST_KEPT
    append(second, marker(5, 0, abort=False), origin=AppendOrigin.COORDINATOR)
    assert len(second.producer_state.producers) == 1
