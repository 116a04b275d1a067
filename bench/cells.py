"""The cells: one workload each, as a row, and how a row is run against one broker.

A cell that writes gets a new topic each time and stops after `max_bytes`, because more than the kernel lets lie
dirty measures the disk.  Cells that read share one topic, filled once per broker.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench import frames
from bench.admin import Admin
from bench.brokers import Broker
from bench.native_build import load_generator

READ_TOPIC = "bench-read"
READ_PARTITIONS = 16
READ_BYTES_EACH = 64 << 20
WRITE_PARTITIONS = 16

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """`kind` is produce, fetch, metadata, api_versions, e2e, storm or idle."""

    name: str
    title: str
    kind: str
    connections: int = 1
    records: int = 1
    record_bytes: int = frames.SMALL_RECORD_BYTES
    acks: int = 1
    fetch_bytes: int = 0
    rate: int = 0
    depth: int = 1
    max_bytes: int = 2 << 30


SMALL = frames.SMALL_BATCH_RECORDS

CELLS: tuple[Cell, ...] = (
    Cell("one-1", "one record, 1 connection", "produce", 1),
    Cell("one-50", "one record, 50 connections", "produce", 50),
    Cell("batch-1", "150 x 100 B, 1 connection, acks 1", "produce", 1, SMALL),
    Cell("batch-16", "150 x 100 B, 16 connections, acks 1", "produce", 16, SMALL),
    Cell("batch-16-all", "150 x 100 B, 16 connections, acks all", "produce", 16, SMALL, acks=-1),
    Cell("batch-1m", "1 MB batches (10,000 x 100 B), 4 connections", "produce", 4, 9_400),
    Cell("batch-1m-1k", "1 MB batches (1,000 x 1 KB), 4 connections", "produce", 4, 1_000, 1_024),
    Cell("fetch-16k-1", "fetch 16 KB, 1 connection", "fetch", 1, fetch_bytes=16_384),
    Cell("fetch-16k-16", "fetch 16 KB, 16 connections", "fetch", 16, fetch_bytes=16_384),
    Cell("fetch-1m-1", "fetch 1 MB, 1 connection", "fetch", 1, fetch_bytes=1 << 20),
    Cell("fetch-1m-16", "fetch 1 MB, 16 connections", "fetch", 16, fetch_bytes=1 << 20),
    Cell("metadata", "Metadata of one topic, 50 connections", "metadata", 50),
    Cell("api-versions", "ApiVersions, 50 connections", "api_versions", 50),
    Cell("e2e-1000", "end to end at 1,000/s", "e2e", rate=1_000),
    Cell("e2e-5000", "end to end at 5,000/s", "e2e", rate=5_000),
    Cell("connections", "10,000 connections at once", "storm", 10_000),
    Cell("start", "start on an empty directory; idle memory and CPU", "idle"),
)


class CellError(Exception):
    """The load generator gave up; the message is its own."""


@contextmanager
def _frames_file(requests: list[bytes]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="bench-frames-") as file:
        file.writelines(requests)
        file.flush()
        yield file.name


def _generator(mode: str, broker: Broker, file: str, **options: object) -> list[str]:
    argv = [str(load_generator()), mode, "--host", broker.host, "--port", str(broker.port), "--frames", file]
    argv += ["--pid", str(broker.pid)]
    for name, value in options.items():
        argv += [f"--{name.replace('_', '-')}", str(value)]
    return argv


def _run(argv: list[str]) -> Result:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CellError(done.stderr.strip() or f"the load generator ended with {done.returncode}")
    result: Result = json.loads(done.stdout)
    return result


def _closed(broker: Broker, requests: list[bytes], cell: Cell, seconds: float, **options: object) -> Result:
    common = {"connections": cell.connections, "depth": cell.depth, "seconds": seconds, "warm": min(1.0, seconds / 4)}
    with _frames_file(requests) as file:
        return _run(_generator("closed", broker, file, **(common | options)))


@contextmanager
def _topic(broker: Broker, name: str, partitions: int) -> Iterator[str]:
    topic = f"bench-{name}-{time.monotonic_ns()}"
    with Admin(broker.host, broker.port) as admin:
        admin.create_topic(topic, partitions, {"max.message.bytes": "8388608"})
        try:
            yield topic
        finally:
            admin.delete_topic(topic)


def run(cell: Cell, broker: Broker, seconds: float, congestion: str = "") -> Result:
    """Run one cell for `seconds`; the result has rates, times and CPU."""
    result = _RUNNERS[cell.kind](cell, broker, seconds, {"congestion": congestion} if congestion else {})
    return _with_rates(result)


def _with_rates(result: Result) -> Result:
    seconds, requests = result["seconds"], result["requests"]
    moved = max(result.get("bytes_in", 0), result.get("bytes_out", 0))
    result["requests_per_s"] = round(requests / seconds, 1) if seconds else 0.0
    if moved:
        result["mb_per_s"] = round(moved / seconds / 1e6, 1)
    cpu = result.get("broker_cpu_s", 0.0)
    if cpu and requests:
        result["cpu_us_per_request"] = round(cpu / requests * 1e6, 2)
        if moved:
            result["cpu_s_per_gb"] = round(cpu / moved * 1e9, 3)
    if seconds and result.get("client_cpu_s", 0.0) / seconds > 0.9:
        result["note"] = "the client was the limit"
    return result


def _produce(cell: Cell, broker: Broker, seconds: float, options: dict[str, object]) -> Result:
    batch = frames.batch(cell.records, cell.record_bytes)
    with _topic(broker, cell.name, WRITE_PARTITIONS) as topic:
        requests = [frames.produce(topic, partition, batch, cell.acks) for partition in range(WRITE_PARTITIONS)]
        result = _closed(
            broker,
            requests,
            cell,
            seconds,
            check_at=frames.produce_layout(topic).error_at,
            max_requests=cell.max_bytes // len(requests[0]),
            **options,
        )
    result["records_per_s"] = round(result["requests"] * cell.records / result["seconds"])
    return result


def prepare_reading(broker: Broker) -> None:
    """Fill the topic that fetch cells read, if this broker doesn't have it yet."""
    batch = frames.batch(SMALL, frames.SMALL_RECORD_BYTES)
    with Admin(broker.host, broker.port) as admin:
        if admin.end_offset(READ_TOPIC, 0) is not None:
            return
        admin.create_topic(READ_TOPIC, READ_PARTITIONS)
    requests = [frames.produce(READ_TOPIC, partition, batch, 1) for partition in range(READ_PARTITIONS)]
    count = READ_BYTES_EACH * READ_PARTITIONS // len(batch)
    filler = Cell("fill", "", "produce", READ_PARTITIONS)
    check_at = frames.produce_layout(READ_TOPIC).error_at
    result = _closed(broker, requests, filler, 120, warm=0, max_requests=count, check_at=check_at)
    if result["errors"]:
        raise CellError(f"{result['errors']} errors while filling {READ_TOPIC}")


def _fetch(cell: Cell, broker: Broker, seconds: float, options: dict[str, object]) -> Result:
    prepare_reading(broker)
    batch_bytes = len(frames.batch(SMALL, frames.SMALL_RECORD_BYTES))
    # One batch a time where 16 KB are asked for; Kafka cuts the last batch of a larger answer, so that part is
    # fetched twice on both sides.
    max_bytes = batch_bytes if cell.fetch_bytes <= batch_bytes else cell.fetch_bytes
    with Admin(broker.host, broker.port) as admin:
        ends = [admin.end_offset(READ_TOPIC, partition) or 0 for partition in range(READ_PARTITIONS)]
    end = min(ends) - cell.fetch_bytes // batch_bytes * SMALL
    requests = [frames.fetch(READ_TOPIC, partition, max_bytes) for partition in range(READ_PARTITIONS)]
    layout = frames.fetch_layout(READ_TOPIC)
    return _closed(
        broker,
        requests,
        cell,
        seconds,
        check_at=layout.error_at,
        offset_at=layout.offset_at,
        batch_bytes=batch_bytes,
        batch_records=SMALL,
        end_offset=end,
        **options,
    )


def _metadata(cell: Cell, broker: Broker, seconds: float, options: dict[str, object]) -> Result:
    with _topic(broker, cell.name, 1) as topic:
        return _closed(broker, [frames.metadata(topic)], cell, seconds, **options)


def _api_versions(cell: Cell, broker: Broker, seconds: float, options: dict[str, object]) -> Result:
    return _closed(broker, [frames.api_versions()], cell, seconds, **options)


def _end_to_end(cell: Cell, broker: Broker, seconds: float, options: dict[str, object]) -> Result:
    batch = frames.batch(1, cell.record_bytes)
    with _topic(broker, cell.name, 1) as topic:
        layout = frames.fetch_layout(topic)
        requests = [frames.produce(topic, 0, batch, cell.acks), frames.fetch(topic, 0, 1 << 20)]
        places = {"check_at": layout.error_at, "offset_at": layout.offset_at, "records_at": layout.records_at}
        with _frames_file(requests) as file:
            argv = _generator("e2e", broker, file, rate=cell.rate, warm=1, seconds=seconds, **(places | options))
            return _run(argv)


def _storm(cell: Cell, broker: Broker, seconds: float, options: dict[str, object]) -> Result:
    """Connections arrive at once; the memory is read a while later, when the broker has given buffers back."""
    before = broker.resident_bytes() if broker.pid else 0
    with _frames_file([frames.api_versions()]) as file:
        argv = _generator("storm", broker, file, connections=cell.connections, seconds=150, **options)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            if not line:
                raise CellError(process.stderr.read().decode().strip())
            result: Result = json.loads(line)
            time.sleep(max(2.0, seconds))
            if broker.pid:
                held = broker.resident_bytes() - before
                result["bytes_per_connection"] = round(held / cell.connections)
    return result


_RUNNERS = {
    "produce": _produce,
    "fetch": _fetch,
    "metadata": _metadata,
    "api_versions": _api_versions,
    "e2e": _end_to_end,
    "storm": _storm,
}


def chosen(names: str) -> tuple[Cell, ...]:
    """The cells of a comma list; a name ending in `*` takes all that begin so.  ValueError for an unknown one."""
    if not names:
        return CELLS
    picked: list[Cell] = []
    for name in names.split(","):
        found = [cell for cell in CELLS if cell.name == name or (name[-1:] == "*" and cell.name.startswith(name[:-1]))]
        if not found:
            raise ValueError(f"no cell {name!r}; there are {', '.join(cell.name for cell in CELLS)}")
        picked += found
    return tuple(dict.fromkeys(picked))


def touch_memory(gigabytes: float) -> None:
    """Write to memory once in a process of its own: pages never used before cost several times the CPU."""
    code = "import mmap,sys\nm=mmap.mmap(-1,int(sys.argv[1]))\nfor i in range(0,len(m),4096): m[i]=1"
    subprocess.run([sys.executable, "-c", code, str(int(gigabytes * (1 << 30)))], check=False)


def available_gigabytes() -> float:
    """Memory that can be had without swapping."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / (1 << 20)
    return 0.0
