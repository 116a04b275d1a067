"""Cells of librdkafka: the library that comes with confluent-kafka, driven by a C program."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import time

from bench import java_clients, raw
from bench.brokers import Broker
from bench.cell import Cell, CellError, Load, Result
from bench.native_build import librdkafka_client


def library() -> pathlib.Path:
    """librdkafka as confluent-kafka's wheel carries it."""
    found = importlib.util.find_spec("confluent_kafka")
    if found is None or found.origin is None:
        raise CellError("confluent-kafka is not installed")
    folder = pathlib.Path(found.origin).parent.parent / "confluent_kafka.libs"
    files = sorted(folder.glob("librdkafka*.so*"))
    if not files:
        raise CellError(f"no librdkafka in {folder}")
    return files[0]


def _run(mode: str, broker: Broker, topic: str, cell: Cell, load: Load, **options: object) -> Result:
    argv = [str(librdkafka_client()), mode, "--library", str(library()), "--pid", str(broker.pid)]
    argv += ["--bootstrap", f"{broker.host}:{broker.port}", "--topic", topic]
    for name, value in options.items():
        argv += [f"--{name}", str(value)]
    for setting in cell.settings:
        argv += ["--set", setting]
    with load.around():
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise CellError(done.stderr.strip()[-500:] or f"the client ended with {done.returncode}")
    result: Result = json.loads(done.stdout)
    return result


def produce(cell: Cell, broker: Broker, load: Load) -> Result:
    """As many messages as it takes without a wait; counted when acknowledged."""
    limit = cell.max_bytes // cell.record_bytes
    options: dict[str, object] = {"warm": min(1.0, load.seconds / 3), "seconds": load.seconds, "messages": limit}
    with raw.topics(broker, cell) as places:
        result = _run("produce", broker, places[0][0], cell, load, size=cell.record_bytes, **options)
    result["bytes"] = result["records"] * cell.record_bytes
    return result


def transact(cell: Cell, broker: Broker, load: Load) -> Result:
    """Transactions of `records` messages, one after the other."""
    java_clients.require_transactions(broker)
    settings = (f"transactional.id=bench-{time.monotonic_ns()}", *cell.settings)
    options: dict[str, object] = {"warm": load.warm_seconds, "seconds": load.seconds, "messages": cell.records}
    with raw.topics(broker, cell) as places:
        quiet = Cell(cell.name, cell.title, cell.kind, settings=settings)
        return _run("transact", broker, places[0][0], quiet, load, size=cell.record_bytes, **options)


def consume(cell: Cell, broker: Broker, load: Load) -> Result:
    """A new group reads from the beginning; the rate runs from its first message to its last."""
    topic = raw.prepare_reading(broker, cell.partitions, cell.record_bytes)
    there = sum(raw.end_offsets(broker, topic, cell.partitions))
    wanted = min(there, int(cell.records_per_s * load.seconds))
    group = f"bench-{cell.name}-{time.monotonic_ns()}"
    settings = ("auto.offset.reset=earliest", "enable.auto.commit=false")
    quiet = Cell(cell.name, cell.title, cell.kind, settings=(*settings, *cell.settings))
    return _run("consume", broker, topic, quiet, load, group=group, consumers=cell.consumers, messages=wanted)
