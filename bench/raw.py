"""Cells of prebuilt frames: the C load generator against one broker.

Cells that write get a new topic each time.  Cells that read share a topic, filled once per broker.  Before a cold
fetch the topic's segment files are written back and dropped from the page cache with posix_fadvise, and the answer is
read in one pass; `evicted_percent` says how much of it really was out of the cache.
"""

from __future__ import annotations

import errno
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import frames
from bench.admin import Admin
from bench.brokers import Broker
from bench.cell import SMALL_BATCH_RECORDS, SMALL_RECORD_BYTES, Cell, CellError, Load, Result
from bench.native_build import load_generator

#: Bytes of each topic that is read, whatever number of partitions it has.
READ_BYTES = 1 << 30
#: One CreateTopics may not make more records than Kafka's controller takes in one write.
PARTITIONS_PER_TOPIC = 1_000
MANY_PARTITIONS = 100
STORM_SECONDS = 150


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


def _run(argv: list[str], load: Load) -> Result:
    with load.around():
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CellError(done.stderr.strip() or f"the load generator ended with {done.returncode}")
    result: Result = json.loads(done.stdout)
    return result


def run_closed(broker: Broker, requests: list[bytes], cell: Cell, load: Load, **options: object) -> Result:
    common: dict[str, object] = {
        "connections": cell.connections,
        "depth": cell.depth,
        "seconds": load.seconds,
        "warm": min(load.warm_seconds, load.seconds / 4),
    }
    if load.congestion:
        common["congestion"] = load.congestion
    with _frames_file(requests) as file:
        return _run(_generator("closed", broker, file, **(common | options)), load)


@contextmanager
def topics(broker: Broker, cell: Cell) -> Iterator[list[tuple[str, int]]]:
    """The (topic, partition)s that a cell writes to.  New ones that are deleted after it; on brokers of the cell's
    own they are made once and stay.  If they are many, one request goes to each of them before."""
    count = -(-cell.partitions // PARTITIONS_PER_TOPIC)
    stem = f"bench-{cell.name}" if cell.apart else f"bench-{cell.name}-{time.monotonic_ns()}"
    names = [f"{stem}-{number:03d}" for number in range(count)]
    each = [min(PARTITIONS_PER_TOPIC, cell.partitions - number * PARTITIONS_PER_TOPIC) for number in range(count)]
    places = [(name, index) for name, size in zip(names, each, strict=True) for index in range(size)]
    with Admin(broker.host, broker.port) as admin:
        made = [name for name in names if not cell.apart or admin.end_offset(name, 0) is None]
        for name, size in zip(names, each, strict=True):
            if name in made:
                admin.create_topic(name, size, {"max.message.bytes": "8388608"})
        if made and cell.partitions >= MANY_PARTITIONS:
            batch = frames.batch(1, SMALL_RECORD_BYTES)
            for name, index in places:
                admin.ask(frames.produce(name, index, batch, 1))
        try:
            yield places
        finally:
            if not cell.apart:
                for name in names:
                    admin.delete_topic(name)


def produce(cell: Cell, broker: Broker, load: Load) -> Result:
    """Produce requests of one batch each; with more partitions than connections, each goes to the next one."""
    batch = frames.batch(cell.records, cell.record_bytes, cell.codec)
    with topics(broker, cell) as places:
        requests = [frames.produce(name, index, batch, cell.acks) for name, index in places]
        result = run_closed(
            broker,
            requests,
            cell,
            load,
            check_at=frames.produce_layout(places[0][0]).error_at,
            base_at=frames.produce_layout(places[0][0]).base_at if cell.acks else -1,
            max_requests=cell.max_bytes // len(requests[0]),
            rotate=int(bool(cell.sweep)),
        )
    result["records_per_s"] = round(result["requests"] * cell.records / result["seconds"])
    if cell.codec != "none":
        result["batch_bytes"] = len(batch)
    return result


def read_topic(partitions: int, record_bytes: int) -> str:
    return f"bench-read-{partitions}-{record_bytes}"


def prepare_reading(
    broker: Broker, partitions: int = 16, record_bytes: int = SMALL_RECORD_BYTES, *, hot: bool = True
) -> str:
    """The topic that cells read, in the page cache if it is to be `hot`; filled if this broker doesn't have it yet:
    batches of 16 KB."""
    topic = read_topic(partitions, record_bytes)
    batch = read_batch(record_bytes)
    with Admin(broker.host, broker.port) as admin:
        if admin.end_offset(topic, 0) is not None:
            if hot and broker.folder is not None:
                bring_in(broker.log_directory(), topic)
            return topic
        admin.create_topic(topic, partitions)
    requests = [frames.produce(topic, partition, batch, 1) for partition in range(partitions)]
    filler = Cell("fill", "", "produce", partitions)
    check_at = frames.produce_layout(topic).error_at
    count = READ_BYTES // len(batch)
    result = run_closed(broker, requests, filler, Load(120), warm=0, max_requests=count, check_at=check_at)
    if result["errors"]:
        raise CellError(f"{result['errors']} errors while filling {topic}")
    return topic


def read_batch(record_bytes: int) -> bytes:
    """The batches of the topics that cells read; about 16 KB whatever the record's size."""
    return frames.batch(SMALL_BATCH_RECORDS * SMALL_RECORD_BYTES // record_bytes, record_bytes)


def end_offsets(broker: Broker, topic: str, partitions: int) -> list[int]:
    with Admin(broker.host, broker.port) as admin:
        return [admin.end_offset(topic, partition) or 0 for partition in range(partitions)]


def fetch(cell: Cell, broker: Broker, load: Load) -> Result:
    """Fetches that go on from where the last one ended, each connection on its own partition."""
    topic = prepare_reading(broker, cell.partitions, hot=not cell.cold)
    batch_bytes = len(read_batch(SMALL_RECORD_BYTES))
    # One batch a time where 16 KB are asked for; Kafka cuts the last batch of a larger answer, so that part is
    # fetched twice on both sides.
    max_bytes = batch_bytes if cell.fetch_bytes <= batch_bytes else cell.fetch_bytes
    end = min(end_offsets(broker, topic, cell.partitions)) - cell.fetch_bytes // batch_bytes * SMALL_BATCH_RECORDS
    requests = [frames.fetch(topic, partition, max_bytes) for partition in range(cell.partitions)]
    layout = frames.fetch_layout(topic)
    options: dict[str, object] = {}
    evicted = 0.0
    if cell.cold:
        evicted = evict(broker.log_directory(), topic)
        # One pass: what was read once is hot.
        share = min(cell.connections, cell.partitions) / cell.partitions
        options = {"warm": 0, "max_requests": int(READ_BYTES * share / max_bytes * 0.9)}
    result = run_closed(
        broker,
        requests,
        cell,
        load,
        check_at=layout.error_at,
        base_at=layout.records_at,
        offset_at=layout.offset_at,
        batch_bytes=batch_bytes,
        batch_records=SMALL_BATCH_RECORDS,
        end_offset=end,
        **options,
    )
    if cell.cold:
        result["evicted_percent"] = evicted
    return result


def bring_in(directory: pathlib.Path, topic: str) -> None:
    """Read a topic's segment files, so that they are in the page cache.

    Cold cells have dropped them, and some machines drop what was not used for a minute.
    """
    buffer = bytearray(1 << 20)
    for path in sorted(directory.glob(f"{topic}-*/*.log")):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def evict(directory: pathlib.Path, topic: str) -> float:
    """Write a topic's segment files back and drop them from the page cache; the percentage that is out of it now,
    from samples."""
    draw = random.Random(1)
    out = tried = 0
    for path in sorted(directory.glob(f"{topic}-*/*.log")):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            size = os.fstat(descriptor).st_size
            for _ in range(32 if size > 1 << 20 else 0):
                tried += 1
                out += not _is_cached(descriptor, draw.randrange(size - 1))
        finally:
            os.close(descriptor)
    return round(100 * out / tried, 1) if tried else 0.0


def _is_cached(descriptor: int, position: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT) == 1
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return False
        raise


def metadata(cell: Cell, broker: Broker, load: Load) -> Result:
    with topics(broker, cell) as places:
        return run_closed(broker, [frames.metadata(places[0][0])], cell, load)


def api_versions(cell: Cell, broker: Broker, load: Load) -> Result:
    return run_closed(broker, [frames.api_versions()], cell, load)


def end_to_end(cell: Cell, broker: Broker, load: Load) -> Result:
    """One producer at a fixed rate, to each partition in turn, and one consumer that waits for each record of all."""
    batch = frames.batch(1, cell.record_bytes)
    with topics(broker, cell) as places:
        topic = places[0][0]
        ends = dict(enumerate(end_offsets(broker, topic, cell.partitions)))
        layout = frames.fetch_layout(topic, cell.partitions)
        requests = [frames.produce(topic, index, batch, cell.acks) for index in ends]
        requests.append(frames.fetch_many(topic, ends, 1 << 20))
        options: dict[str, object] = {
            "offset_at": layout.offset_at,
            "rows_at": layout.rows_at,
            "row_bytes": layout.row_bytes,
        }
        if load.congestion:
            options["congestion"] = load.congestion
        with _frames_file(requests) as file:
            argv = _generator("e2e", broker, file, rate=cell.rate, warm=1, seconds=load.seconds, **options)
            return _run(argv, load)


def storm(cell: Cell, broker: Broker, load: Load) -> Result:
    """Connections arrive at once; the memory is read a while later, when the broker has given buffers back."""
    before = broker.resident_bytes() if broker.pid else 0
    options = {"congestion": load.congestion} if load.congestion else {}
    with _frames_file([frames.api_versions()]) as file:
        argv = _generator("storm", broker, file, connections=cell.connections, seconds=STORM_SECONDS, **options)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            try:
                line = process.stdout.readline()
            except BaseException:
                process.kill()  # it would try on for minutes
                raise
            if not line:
                raise CellError(process.stderr.read().decode().strip())
            result: Result = json.loads(line)
            time.sleep(max(2.0, load.seconds))
            if broker.pid:
                held = broker.resident_bytes() - before
                result["bytes_per_connection"] = round(held / cell.connections)
    return result
