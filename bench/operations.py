"""Cells about a broker's life: start, restarts, idling, compaction, retention.  Each starts brokers of its own.

A broker is ready when it accepts a produce, or, on an empty directory, answers ApiVersions.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

from bench import frames, raw, restart
from bench.admin import Admin
from bench.brokers import Broker, BrokerError
from bench.cell import SMALL_RECORD_BYTES, Cell, CellError, Load, Result

#: Starts the broker under test on an empty directory, with settings above the equal ones.
Starter = Callable[[dict[str, str]], Broker]
Operation = Callable[[Cell, Starter, Load], Result]

IDLE_SECONDS = 60.0
SEGMENT_BYTES = 16 << 20  # of retention's topic
KEYS = 100_000
PATIENCE_SECONDS = 300.0
#: Background work as often on both sides, so that waiting for it does not hide its own time.
EAGER = {
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}


def start(cell: Cell, starter: Starter, load: Load) -> Result:
    os.sync()  # what is left of the brokers before is not this one's
    broker = starter({})
    try:
        return {
            "seconds": round(broker.ready_seconds, 3),
            "resident_mb": round(broker.resident_bytes() / 1e6, 1),
            "broker_cpu_s": round(broker.cpu_seconds(), 3),
        }
    finally:
        broker.stop()


def idle(cell: Cell, starter: Starter, load: Load) -> Result:
    """CPU and memory of a broker without requests."""
    broker = starter({})
    try:
        time.sleep(3)
        cpu, begin = broker.cpu_seconds(), time.monotonic()
        time.sleep(IDLE_SECONDS * load.scale)
        seconds = time.monotonic() - begin
        return {
            "measured_s": round(seconds, 1),
            "idle_cpu_percent": round((broker.cpu_seconds() - cpu) / seconds * 100, 3),
            "resident_mb": round(broker.resident_bytes() / 1e6, 1),
        }
    finally:
        broker.stop()


def storm(cell: Cell, starter: Starter, load: Load) -> Result:
    broker = starter({})
    try:
        return raw.storm(cell, broker, load)
    finally:
        broker.stop()


def restart_partitions(cell: Cell, starter: Starter, load: Load) -> Result:
    """Stop in order and start again, a record in each partition."""
    count = max(1, round(cell.partitions * load.scale))
    many = Cell(cell.name, cell.title, cell.kind, partitions=count, apart=True)
    broker = starter({})
    try:
        made = time.monotonic()
        with raw.topics(broker, many) as places:
            topic = places[0][0]
        made = time.monotonic() - made
        stop_seconds = broker.end(PATIENCE_SECONDS)
        seconds = restart.first_produce(broker, broker.begin_again(), topic)
        return {
            "seconds": round(seconds, 3),
            "partitions": count,
            "create_s": round(made, 2),
            "stop_s": round(stop_seconds, 2),
            "broker_cpu_s": round(broker.cpu_seconds(), 3),
            "resident_mb": round(broker.resident_bytes() / 1e6, 1),
        }
    finally:
        broker.stop()


def restart_killed(cell: Cell, starter: Starter, load: Load) -> Result:
    """SIGKILL after writing much that was never flushed by the broker, and start again: all of it is checked."""
    broker = starter({})
    try:
        with Admin(broker.host, broker.port) as admin:
            admin.create_topic(cell.name, cell.partitions)
        written = _fill(broker, cell, cell.gigabytes * load.scale)
        ends = raw.end_offsets(broker, cell.name, cell.partitions)
        broker.kill()
        seconds = restart.first_produce(broker, broker.begin_again(), cell.name)
        cpu, resident = broker.cpu_seconds(), broker.resident_bytes()
        lost = sum(ends) + 1 - sum(raw.end_offsets(broker, cell.name, cell.partitions))
        if lost > 0:
            raise CellError(f"{lost} records are gone after the restart")
        return {
            "seconds": round(seconds, 3),
            "written_gb": round(written / 1e9, 2),
            "broker_cpu_s": round(cpu, 3),
            "resident_mb": round(resident / 1e6, 1),
        }
    finally:
        broker.stop()


def _fill(broker: Broker, cell: Cell, gigabytes: float, key_space: int = 0, seed: int = 0) -> int:
    """Write that much to the topic named like the cell, in batches of its shape; returns the bytes."""
    batch = frames.batch(cell.records, cell.record_bytes, key_space=key_space, seed=seed)
    requests = [frames.produce(cell.name, partition, batch, 1) for partition in range(cell.partitions)]
    filler = Cell("fill", "", "produce", min(cell.connections, cell.partitions))
    count = max(1, int(gigabytes * 1e9 / len(batch)))
    check_at = frames.produce_layout(cell.name).error_at
    result = raw.run_closed(
        broker, requests, filler, Load(PATIENCE_SECONDS), warm=0, max_requests=count, check_at=check_at, rotate=1
    )
    if result["errors"]:
        raise CellError(f"{result['errors']} errors while filling {cell.name}")
    return int(result["requests"]) * len(batch)


def compaction(cell: Cell, starter: Starter, load: Load) -> Result:
    """From the moment that keyed segments may be compacted until all but the newest are."""
    broker = starter(EAGER | {"log.cleaner.enable": "true"})
    keyed = Cell(cell.name, cell.title, cell.kind, 1, 4_000, SMALL_RECORD_BYTES, partitions=1)
    segment_bytes = max(1 << 20, int(cell.gigabytes * load.scale * 1e9 / 16))
    try:
        with Admin(broker.host, broker.port) as admin:
            # Nothing may be compacted until all is written.
            admin.create_topic(
                cell.name,
                1,
                {
                    "cleanup.policy": "compact",
                    "segment.bytes": str(segment_bytes),
                    "min.compaction.lag.ms": "86400000",
                },
            )
        written = 0
        share = cell.gigabytes * load.scale / 8
        for seed in range(8):
            written += _fill(broker, keyed, share, KEYS, seed)  # other keys each time
        alter_topic(broker, cell.name, {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01"})
        cpu, begin = broker.cpu_seconds(), time.monotonic()
        checkpoint = broker.log_directory() / "cleaner-offset-checkpoint"
        folder = broker.log_directory() / f"{cell.name}-0"
        target = max(int(path.stem) for path in folder.glob("*.log"))
        _wait(lambda: cleaned_to(checkpoint, cell.name) >= target, f"{cell.name} is not compacted")
        seconds = time.monotonic() - begin
        return {
            "seconds": round(seconds, 3),
            "written_gb": round(written / 1e9, 2),
            "left_gb": round(_log_bytes(folder) / 1e9, 3),
            "mb_per_s": round(written / seconds / 1e6, 1),
            "broker_cpu_s": round(broker.cpu_seconds() - cpu, 3),
            "cpu_s_per_gb": round((broker.cpu_seconds() - cpu) / written * 1e9, 3),
            "resident_mb": round(broker.resident_bytes() / 1e6, 1),
        }
    finally:
        broker.stop()


def cleaned_to(checkpoint: pathlib.Path, topic: str) -> int:
    """The first dirty offset of the topic's partition 0 as the cleaner wrote it down, -1 before."""
    try:
        lines = checkpoint.read_text().splitlines()[2:]
    except OSError:
        return -1
    return next((int(line.split()[2]) for line in lines if line.split()[:2] == [topic, "0"]), -1)


def _log_bytes(folder: pathlib.Path) -> int:
    total = 0
    for path in folder.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def retention(cell: Cell, starter: Starter, load: Load) -> Result:
    """From the first segment that is given up after a change of retention.bytes until all but the newest are off the
    disk, with the end-to-end latency of another topic at 1,000/s meanwhile.  When the broker looks, once a second, is
    chance."""
    broker = starter(EAGER)
    try:
        with Admin(broker.host, broker.port) as admin:
            admin.create_topic(cell.name, cell.partitions, {"segment.bytes": str(SEGMENT_BYTES)})
        written = _fill(broker, cell, cell.gigabytes * max(load.scale, 0.25))
        latency: Result = {}
        probe = Cell("retention-latency", "", "e2e", partitions=1, rate=1_000)
        raw.end_to_end(probe, broker, Load(2.0, congestion=load.congestion))  # to warm

        def watch() -> None:
            latency.update(raw.end_to_end(probe, broker, Load(4.0, congestion=load.congestion)))

        files = _files(broker, cell.name)
        watcher = threading.Thread(target=watch)
        watcher.start()
        time.sleep(1.5)  # the probe's own topic and its warm-up
        cpu = broker.cpu_seconds()
        alter_topic(broker, cell.name, {"retention.bytes": str(SEGMENT_BYTES)})
        begin = _wait(lambda: _files(broker, cell.name, ".deleted") > 0, f"{cell.name} keeps its segments")
        most = 2 * cell.partitions
        seconds = _wait(lambda: _files(broker, cell.name) <= most, f"{cell.name} keeps its segments") - begin
        used = broker.cpu_seconds() - cpu
        watcher.join()
        return {
            "seconds": round(seconds, 3),
            "written_gb": round(written / 1e9, 2),
            "segments": files,
            "p50_us": latency.get("p50_us", 0.0),
            "p99_us": latency.get("p99_us", 0.0),
            "max_us": latency.get("max_us", 0.0),
            "broker_cpu_s": round(used, 3),
        }
    finally:
        broker.stop()


def _files(broker: Broker, topic: str, suffix: str = ".log*") -> int:
    """Segment files of a topic, those that wait for their deletion (`.deleted`) included."""
    return sum(1 for _ in broker.log_directory().glob(f"{topic}-*/*{suffix}"))


def alter_topic(broker: Broker, topic: str, configs: dict[str, str]) -> None:
    admin: Any = importlib.import_module("confluent_kafka.admin")

    entries = [
        admin.ConfigEntry(key, value, incremental_operation=admin.AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    client = admin.AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 2})
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30)


def _wait(done: Callable[[], bool], complaint: str) -> float:
    """When it was done, on the monotonic clock."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise BrokerError(f"{complaint} after {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.01)
    return time.monotonic()


OPERATIONS: dict[str, Operation] = {
    "start": start,
    "idle": idle,
    "storm": storm,
    "restart_partitions": restart_partitions,
    "restart_killed": restart_killed,
    "compaction": compaction,
    "retention": retention,
}
#: Those that are over once, whatever number of rounds is asked for: they take long, and vary little.
ONCE = ("idle", "storm", "restart_partitions", "restart_killed", "compaction", "retention")
#: A start is over soon, and the first ones come right behind cells after which a machine has much to tidy up.
LEAST_STARTS = 5
