"""Cells of Kafka's own Java tools: ProducerPerformance, ConsumerPerformance and EndToEndLatency.

Rates and latencies are those that the tools print.  Broker CPU is counted over the tool's whole run, its start
included, during which the broker has next to nothing to do.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import time

from bench import brokers, frames, raw
from bench.admin import Admin
from bench.brokers import Broker
from bench.cell import Cell, CellError, Load, NotServedError, Result

TOOLS = "org.apache.kafka.tools"
_PRODUCED = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
)
_PERCENTILES = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+), 99\.9th = ([\d.]+)")


def _tool(name: str, broker: Broker, load: Load, *arguments: str) -> tuple[str, Result]:
    """Run a tool; its output, and what it and the broker used."""
    with tempfile.NamedTemporaryFile("w", prefix="bench-log4j-", suffix=".properties") as logging:
        logging.write("status=error\nrootLogger.level=ERROR\n")
        logging.flush()
        argv = ["java", "-Xms512m", "-Xmx512m", f"-Dlog4j2.configurationFile={logging.name}"]
        argv += ["-cp", f"{brokers.kafka_jars()}/*", f"{TOOLS}.{name}", *arguments]
        cpu = broker.cpu_seconds() if broker.pid else 0.0
        own, begin = _children_cpu(), time.monotonic()
        with load.around():
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
        used: Result = {"client_cpu_s": round(_children_cpu() - own, 3), "run_s": round(time.monotonic() - begin, 3)}
        if broker.pid:
            used["broker_cpu_s"] = round(broker.cpu_seconds() - cpu, 3)
    if done.returncode:
        raise CellError(f"{name}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout, used


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def produce(cell: Cell, broker: Broker, load: Load) -> Result:
    """ProducerPerformance without a throttle; its warm-up records are not in the figures."""
    settings = [setting for setting in cell.settings if not setting.startswith("transaction.")]
    transactions = [
        setting.partition("=")[2] for setting in cell.settings if setting.startswith("transaction.duration")
    ]
    if transactions:
        require_transactions(broker)
    count = min(int(cell.records_per_s * load.seconds), cell.max_bytes // cell.record_bytes)
    warm = count // 3
    with raw.topics(broker, cell) as places:
        arguments = ["--topic", places[0][0], "--bootstrap-server", f"{broker.host}:{broker.port}"]
        arguments += ["--num-records", str(count + warm), "--warmup-records", str(warm), "--throughput", "-1"]
        arguments += ["--record-size", str(cell.record_bytes), "--command-property", *settings]
        for duration in transactions:
            arguments += ["--transaction-duration-ms", duration]
        text, used = _tool("ProducerPerformance", broker, load, *arguments)
    result = parse_produced(text)
    # The broker worked for the warm-up too.
    share = result["records"] / (count + warm)
    result |= {key: round(value * share, 4) for key, value in used.items()}
    result["bytes"] = result["records"] * cell.record_bytes
    return result


def parse_produced(text: str) -> Result:
    """The last complete line that ProducerPerformance prints."""
    lines = _PRODUCED.findall(text)
    if not lines:
        raise CellError(f"ProducerPerformance printed no result: {text[-300:]}")
    records, rate, _, _, most, *percentiles = lines[-1]
    p50, _, p99, p999 = (int(value) * 1000.0 for value in percentiles)
    return {
        "records": int(records),
        "seconds": round(int(records) / float(rate), 6),
        "errors": 0,
        "p50_us": p50,
        "p99_us": p99,
        "p999_us": p999,
        "max_us": float(most) * 1000,
    }


def require_transactions(broker: Broker) -> None:
    """NotServedError where there are none."""
    with Admin(broker.host, broker.port) as admin:
        if frames.ADD_PARTITIONS_TO_TXN not in admin.apis():
            raise NotServedError("transactions are not served yet")


def consume(cell: Cell, broker: Broker, load: Load) -> Result:
    """ConsumerPerformance of a new group from the beginning; its rate without the rebalance."""
    topic = raw.prepare_reading(broker, cell.partitions, cell.record_bytes)
    there = sum(raw.end_offsets(broker, topic, cell.partitions))
    wanted = min(there, int(cell.records_per_s * load.seconds))
    arguments = ["--topic", topic, "--bootstrap-server", f"{broker.host}:{broker.port}", "--num-records", str(wanted)]
    arguments += ["--group", f"bench-{os.getpid()}-{time.monotonic_ns()}", "--hide-header"]
    text, used = _tool("ConsumerPerformance", broker, load, *arguments)
    return parse_consumed(text) | used


def parse_consumed(text: str) -> Result:
    """start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s."""
    fields = text.strip().splitlines()[-1].split(", ")
    if len(fields) < 10:
        raise CellError(f"ConsumerPerformance printed no result: {text[-300:]}")
    megabytes, records, rebalance_ms, fetch_ms = (float(fields[at]) for at in (2, 4, 6, 7))
    return {
        "records": int(records),
        "bytes": int(megabytes * (1 << 20)),
        "seconds": fetch_ms / 1000,
        "first_record_s": rebalance_ms / 1000,
        "errors": 0,
    }


def share(cell: Cell, broker: Broker, load: Load) -> Result:
    """ShareConsumerPerformance: members of a share group, each a thread, read a topic and accept it."""
    topic = raw.prepare_reading(broker, cell.partitions, cell.record_bytes)
    there = sum(raw.end_offsets(broker, topic, cell.partitions))
    wanted = min(there, int(cell.records_per_s * load.seconds))
    group = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    with Admin(broker.host, broker.port) as admin:
        if frames.SHARE_FETCH not in admin.apis():
            raise NotServedError("share groups are not served")
        admin.set_group_config(group, "share.auto.offset.reset", "earliest")
    arguments = ["--topic", topic, "--bootstrap-server", f"{broker.host}:{broker.port}", "--num-records", str(wanted)]
    arguments += ["--group", group, "--threads", str(cell.consumers), "--hide-header", "--timeout", "60000"]
    text, used = _tool("ShareConsumerPerformance", broker, load, *arguments)
    return parse_shared(text) | used


def parse_shared(text: str) -> Result:
    """start, end, MB, MB/s, records/s, records, fetch ms."""
    fields = text.strip().splitlines()[-1].split(", ")
    if len(fields) < 7:
        raise CellError(f"ShareConsumerPerformance printed no result: {text[-300:]}")
    megabytes, records, fetch_ms = (float(fields[at]) for at in (2, 5, 6))
    return {"records": int(records), "bytes": int(megabytes * (1 << 20)), "seconds": fetch_ms / 1000, "errors": 0}


def end_to_end(cell: Cell, broker: Broker, load: Load) -> Result:
    """EndToEndLatency: one record after the other, each waited for."""
    count = max(500, int(2_000 * load.seconds / 3))
    with raw.topics(broker, Cell(cell.name, cell.title, cell.kind, partitions=1)) as places:
        arguments = ["--bootstrap-server", f"{broker.host}:{broker.port}", "--topic", places[0][0]]
        arguments += ["--num-records", str(count), "--record-size", str(cell.record_bytes)]
        arguments += ["--producer-acks", "all" if cell.acks == -1 else str(cell.acks)]
        text, used = _tool("EndToEndLatency", broker, load, *arguments)
    match = _PERCENTILES.search(text)
    if match is None:
        raise CellError(f"EndToEndLatency printed no percentiles: {text[-300:]}")
    p50, p99, p999 = (float(value) * 1000 for value in match.groups())
    counts: Result = {"records": count, "seconds": used["run_s"], "errors": 0}
    return counts | {"p50_us": p50, "p99_us": p99, "p999_us": p999} | used
