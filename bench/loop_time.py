"""How long the periodic work over many partitions holds the event loop: in all, and in its longest piece.

    python -m bench.loop_time [--partitions 10000] [--segments 3] [--data FOLDER] [--rounds 3]

The logs are real, in one log directory (of `--data`, else of memory under /dev/shm), half of them compacted; nothing
else runs.  Each task is a coroutine that gives the loop back in between: it is driven step by step here and each step
is timed, so the figures are loop time, without what the loop would do meanwhile.

- retention, first: every log is looked at for the first time, its oldest timestamps read from the indexes;
- retention, again: nothing has changed, what usually happens every `log.retention.check.interval.ms`;
- retention, one segment of each twentieth: what an hour of a busy broker brings;
- retention, all due: every log of those with `cleanup.policy=delete` loses all it has, the active segment too;
- compaction, survey: how dirty each compacted log is, what happens every `log.cleaner.backoff.ms`;
- scrape: what /metrics reads, with and without a series for each partition;
- log list: what `kbroker logs list` reads.

The result is one JSON object: milliseconds, the best of the rounds where a task can be run again.  `processor_ms` is
what the thread used of it: the rest the machine spent on others, or waiting.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from kbroker._fast.base.counters import RequestStats
from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import BrokerConfig, LogConfig
from kbroker.metrics.snapshot import take
from kbroker.metrics.sources import Sources
from kbroker.records.batch import RecordBatchBuilder
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.manager.log_manager import LogManager
from kbroker.storage.reports.log_pages import LogPages
from kbroker.storage.reports.maintenance_figures import maintenance_figures
from kbroker.types import ZERO_UUID, TopicPartition

PER_TOPIC = 20
DELETE = frozenset({"delete"})
HOUR_MS = 3_600_000


class UnsyncedFiles(FileSystem):
    """Making the logs does not wait for the disk."""

    def fsync(self, fd: int) -> None:
        """Not waited for."""

    def fdatasync(self, fd: int) -> None:
        """Not waited for."""

    def fsync_directory(self, path: str) -> None:
        """Not waited for."""


def settings(topic: int, retention_ms: int) -> LogConfig:
    policy = frozenset({"compact"}) if topic % 2 else DELETE
    return LogConfig(cleanup_policy=policy, retention_ms=retention_ms, file_delete_delay_ms=HOUR_MS)


def fill(manager: LogManager, partitions: int, segments: int) -> None:
    """Logs of a few small segments, an hour old."""
    builder = RecordBatchBuilder()
    for at in range(20):
        builder.append(b"key %d" % at, b"x" * 80, SYSTEM_CLOCK.now_ms() - HOUR_MS + at)
    batch = bytes(builder.build())
    for at in range(partitions):
        topic = at // PER_TOPIC
        tp = TopicPartition(f"topic-{topic:05d}", at % PER_TOPIC)
        log = manager.get_or_create_log(tp, ZERO_UUID, settings(topic, 7 * 24 * HOUR_MS))
        for number in range(segments):
            if number:
                log.roll()
            log.append_as_leader(bytearray(batch), 0)
            log.maybe_increment_high_watermark(log.log_end_offset)


def drive(make: Callable[[], Coroutine[Any, Any, Any]]) -> dict[str, float]:
    """Run a coroutine to its end; the time of its steps together, and of the longest."""
    gc.collect()
    coroutine = make()
    pieces = []
    processor = time.thread_time()
    while True:
        started = time.perf_counter()
        try:
            coroutine.send(None)
        except StopIteration:
            break
        finally:
            pieces.append((time.perf_counter() - started) * 1000)
    processor_ms = (time.thread_time() - processor) * 1000
    return {
        "loop_ms": round(sum(pieces), 1),
        "processor_ms": round(processor_ms, 1),
        "longest_ms": round(max(pieces), 1),
        "pieces": len(pieces),
    }


def best(rounds: int, make: Callable[[], Coroutine[Any, Any, Any]]) -> dict[str, float]:
    return min((drive(make) for _ in range(rounds)), key=lambda result: result["loop_ms"])


def measure(manager: LogManager, rounds: int) -> dict[str, Any]:
    retention, cleaner = manager.retention, manager.cleaner
    results = {"retention, first": drive(retention.run), "retention, again": best(rounds, retention.run)}
    results["compaction, survey"] = best(rounds, cleaner._survey)
    for name, most in (("scrape, sums", 0), ("scrape, all series", 1 << 30)):
        sources = Sources("", 0, "", RequestStats(), str, logs=manager.logs.values, max_partitions=most)
        gather = partial(maintenance_figures, manager, SYSTEM_CLOCK, most)
        results[name] = best(rounds, partial(take, dataclasses.replace(sources, gathered=gather)))
    results["log list"] = best(rounds, partial(LogPages(manager, SYSTEM_CLOCK), []))
    for at, log in enumerate(manager.logs.values()):
        if at % 20 == 0:
            log.config = dataclasses.replace(log.config, cleanup_policy=DELETE, retention_bytes=log.size_bytes * 2 // 3)
    results["retention, one segment of each twentieth"] = drive(retention.run)
    results["its segments"] = retention.totals.segments_deleted
    for at, log in enumerate(manager.logs.values()):
        log.config = settings(at // PER_TOPIC, 60_000)
    results["retention, all due"] = drive(retention.run)
    results["all segments"] = retention.totals.segments_deleted
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path("/dev/shm"))
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="kbroker-loop-time-", dir=arguments.data))
    manager = LogManager(BrokerConfig.from_mapping({"log.dirs": str(folder)}), SYSTEM_CLOCK, UnsyncedFiles())
    try:
        manager.start("bench")
        fill(manager, arguments.partitions, arguments.segments)
        gc.freeze()
        print(json.dumps({"partitions": arguments.partitions, **measure(manager, arguments.rounds)}, indent=1))
        manager.release()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
