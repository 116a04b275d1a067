"""What the storage engine costs: `pytest bench/test_storage.py`.

Times are per call; `us` in the extra info is the fastest round.  Appends go to page cache; the disk is not waited
for.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.log.index import OffsetTable
from kbroker._fast.log.producer_entry import ProducerEntry
from kbroker._fast.log.producer_table import ProducerTable
from kbroker._fast.records.record_batch import read_header
from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import UNSYNCED_FILES, append, batch, environment, open_log

PARTITIONS = 1000
HIGH = FetchIsolation.HIGH_WATERMARK


def measure(benchmark: Any, call: Callable[[], object], repeat: int = 1) -> None:
    benchmark.pedantic(call, rounds=30, iterations=1, warmup_rounds=3)
    benchmark.extra_info["us"] = round(benchmark.stats.stats.min / repeat * 1e6, 2)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[UnifiedLog]:
    opened = open_log(tmp_path / "log", env=environment(UNSYNCED_FILES, clock=SYSTEM_CLOCK))
    for _ in range(2000):
        append(opened, batch([b"x" * 100], timestamp=SYSTEM_CLOCK.now_ms()))
    yield opened
    opened.close(clean=False)


@pytest.mark.parametrize(("records", "repeat"), [(1, 2000), (140, 200), (9000, 10)], ids=["1", "16KB", "1MB"])
def test_append(benchmark: Any, log: UnifiedLog, records: int, repeat: int) -> None:
    """Validation, offsets, one pwrite, index: a batch as a producer sends it."""
    data = batch([b"x" * 100] * records, timestamp=SYSTEM_CLOCK.now_ms())
    zero = bytes(8)

    def run() -> None:
        for _ in range(repeat):
            data[0:8] = zero
            log.append_as_leader(data, 0)

    measure(benchmark, run, repeat)


def test_append_idempotent(benchmark: Any, log: UnifiedLog) -> None:
    """As above with producer id and sequence."""
    now_ms = SYSTEM_CLOCK.now_ms()
    made = iter(range(1 << 30))

    def setup() -> tuple[tuple[list[bytearray]], dict[str, object]]:
        values = [b"x" * 100]
        return ([batch(values, timestamp=now_ms, producer_id=5, epoch=0, sequence=next(made)) for _ in range(500)],), {}

    def run(batches: list[bytearray]) -> None:
        for data in batches:
            log.append_as_leader(data, 0)

    benchmark.pedantic(run, setup=setup, rounds=20)
    benchmark.extra_info["us"] = round(benchmark.stats.stats.min / 500 * 1e6, 2)


@pytest.mark.parametrize("where", ["end", "tail", "random"])
def test_read(benchmark: Any, log: UnifiedLog, where: str) -> None:
    """A fetch that finds nothing, one of the newest batch, one anywhere."""
    end = log.log_end_offset
    offsets = {"end": [end] * 500, "tail": [end - 1] * 500, "random": random.Random(1).choices(range(end), k=500)}[
        where
    ]

    def run() -> None:
        for offset in offsets:
            log.read(offset, 1 << 20, HIGH, True)

    measure(benchmark, run, 500)


def test_index_lookup(benchmark: Any) -> None:
    """The binary search from Python, over a full index of a 1 GiB segment."""
    table = OffsetTable(0)
    for i in range(250_000):
        table.append(i * 40 + 39, i * 4096)
    targets = random.Random(1).choices(range(10_000_000), k=1000)

    def run() -> None:
        for target in targets:
            table.position_for(target)

    measure(benchmark, run, 1000)


def test_producer_memory(benchmark: Any) -> None:
    """Bytes per idempotent producer with five batches, its places in the index and in the order of use included."""
    infos = [read_header(batch(producer_id=5 << 20, epoch=0, sequence=at)) for at in range(5)]
    batches = [(info.last_sequence, at, 0, info.max_timestamp) for at, info in enumerate(infos)]

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    count = 100_000
    table = ProducerTable()
    before = resident()
    for pid in range(1, count + 1):
        entry = ProducerEntry(pid << 20)
        for each in batches:
            entry.add(0, *each)
        table.put(entry)
    benchmark.extra_info["bytes_per_producer"] = (resident() - before) // count
    info = infos[0]
    measure(benchmark, lambda: table.is_next(info))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_open_many_partitions(benchmark: Any, tmp_path: Path, clean: bool) -> None:
    """A start with 1,000 partitions, half of them with data; `us` is per partition."""
    config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path)})
    manager = LogManager(config, SYSTEM_CLOCK, UNSYNCED_FILES)
    manager.start("bench")
    topic_id = random_uuid()
    for i in range(PARTITIONS):
        log = manager.get_or_create_log(TopicPartition("t", i), topic_id, LogConfig())
        if i % 2:
            append(log, batch([b"x" * 100] * 50, timestamp=SYSTEM_CLOCK.now_ms()))
    manager.shutdown()

    def run() -> None:
        again = LogManager(config, SYSTEM_CLOCK, UNSYNCED_FILES)
        again.open_dirs()
        for directory in again.directories:
            directory.clean = clean
        again.load_all()
        assert len(again.logs) == PARTITIONS
        again.release()

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    benchmark.extra_info["us"] = round(benchmark.stats.stats.min / PARTITIONS * 1e6, 1)


def test_recovery(benchmark: Any, tmp_path: Path) -> None:
    """Checking and indexing 256 MiB of 16 KB batches after a kill; `bytes_per_s` in the extra info."""
    env = environment(clock=SYSTEM_CLOCK)
    log = open_log(tmp_path / "log", env=env)
    data = batch([b"x" * 100] * 140, timestamp=SYSTEM_CLOCK.now_ms())
    while log.size_bytes < 256 << 20:
        data[0:8] = bytes(8)
        log.append_as_leader(data, 0)
    size = log.size_bytes
    log.close(clean=False)

    def run() -> None:
        started = time.perf_counter()
        open_log(tmp_path / "log", env=env).close(clean=False)
        benchmark.extra_info["bytes_per_s"] = int(size / (time.perf_counter() - started))

    benchmark.pedantic(run, rounds=3)
