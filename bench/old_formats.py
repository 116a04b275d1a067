"""Old message formats beside Apache Kafka 3.9.1: produce in version 2, fetches in version 2 that are converted.

python -m bench.old_formats [--seconds 3] [--rounds 2]

Interleaved: for each cell both brokers, turn by turn.  CPU per record is what a busy machine disturbs least; `peak` is
the broker's largest resident memory.  `calm p99` is what a client beside it waits for its one-record produce, in
version 9, alone and while the cell runs.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench import frames
from bench.admin import Admin
from bench.native_build import load_generator
from kbroker.records.batch import Record
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.old_kafka import OldKafka
from tests.records.stored import encode_messages

RECORDS, VALUE = 150, bytes(90)
T0 = 1_700_000_000_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
PARTITIONS = 8
FILL_BATCHES = 400
VERSION = 2


def produce_request(topic: str, partition: int, messages: bytes) -> bytes:
    """Produce 2 of one message set."""
    body = struct.pack(">hii", 1, 30_000, 1) + frames.string(topic)
    body += struct.pack(">iii", 1, partition, len(messages)) + messages
    return frames.request(frames.PRODUCE, VERSION, body, flexible=False)


def fetch_request(topic: str, partition: int, max_bytes: int) -> bytes:
    """Fetch 2 of one partition from its beginning."""
    body = struct.pack(">iiii", -1, 500, 1, 1) + frames.string(topic)
    body += struct.pack(">iiqi", 1, partition, 0, max_bytes)
    return frames.request(frames.FETCH, VERSION, body, flexible=False)


def message_set(codec: str) -> bytes:
    """150 messages of magic 1."""
    records = [Record(at, T0 + at, b"key", VALUE) for at in range(RECORDS)]
    return encode_messages(records, 1, CODECS[codec])


def error_at(topic: str, *, fetch: bool) -> int:
    """Where an answer has its partition's error: behind length, correlation id, (throttle time,) counts and names."""
    return 4 + 4 + (4 if fetch else 0) + 4 + len(frames.string(topic)) + 4 + 4


@contextmanager
def load(
    broker: BrokerProcess, requests: list[bytes], connections: int, seconds: float, check_at: int
) -> Iterator[Any]:
    """The generator runs meanwhile; its numbers are in the list that this gives, afterwards."""
    assert broker.process is not None
    found: list[dict[str, Any]] = []
    with tempfile.NamedTemporaryFile() as file:
        file.writelines(requests)
        file.flush()
        words = [str(load_generator()), "closed", "--port", str(broker.port), "--frames", file.name]
        words += ["--pid", str(broker.process.pid), "--connections", str(connections), "--seconds", str(seconds)]
        words += ["--warm", "3", "--check-at", str(check_at)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield found
            out, error = process.communicate(timeout=120)
        finally:
            process.kill()
        if process.returncode:
            raise RuntimeError(error)
        found.append(json.loads(out))


class Kafka(OldKafka):
    """With the compiler that it has by default, which the tests' brokers do without."""

    def command(self) -> list[str]:
        return [word for word in super().command() if word != "-XX:TieredStopAtLevel=1"]


def peak_mb(broker: BrokerProcess) -> float:
    """VmHWM."""
    assert broker.process is not None
    text = pathlib.Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def reset_peak(broker: BrokerProcess) -> None:
    """Forget the peak up to now."""
    assert broker.process is not None
    pathlib.Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")


def one_by_one(broker: BrokerProcess, topic: str, seconds: float) -> dict[str, Any]:
    """A client that produces a record at a time."""
    request = frames.produce(topic, 0, frames.batch(1, 100), 1)
    with load(broker, [request], 1, seconds, frames.produce_layout(topic).error_at) as found:
        pass
    result: dict[str, Any] = found[0]
    return result


def cells(connections: int) -> Iterator[tuple[str, str, int, bool]]:
    """Name, codec, connections, whether it fetches."""
    for codec in CODECS:
        yield f"produce v2, {codec}", codec, connections, False
    for codec in CODECS:
        yield f"fetch v2, {codec}", codec, connections, True


def run(broker: BrokerProcess, cell: tuple[str, str, int, bool], seconds: float) -> dict[str, Any]:
    """One cell on one broker."""
    _, codec, connections, fetches = cell
    topic, calm = f"old-{codec}-{time.monotonic_ns()}", f"calm-{time.monotonic_ns()}"
    with Admin("127.0.0.1", broker.port) as admin:
        admin.create_topic(topic, PARTITIONS)
        admin.create_topic(calm, 1)
        messages = message_set(codec)
        if fetches:
            for _ in range(FILL_BATCHES // PARTITIONS):
                for partition in range(PARTITIONS):
                    admin.ask(produce_request(topic, partition, messages))
            requests = [fetch_request(topic, partition, 1 << 20) for partition in range(PARTITIONS)]
        else:
            requests = [produce_request(topic, partition, messages) for partition in range(PARTITIONS)]
        alone = one_by_one(broker, calm, 1)
        reset_peak(broker)
        with load(broker, requests, connections, seconds, error_at(topic, fetch=fetches)) as found:
            beside = one_by_one(broker, calm, max(1, seconds - 1.5))
        result = found[0]
        per_request = FILL_BATCHES // PARTITIONS * RECORDS if fetches else RECORDS
        result["peak_mb"] = round(peak_mb(broker))
        # The client beside it has its share of the broker's time; one record of it is like one request.
        result["ns_per_record"] = round(result["broker_cpu_s"] * 1e9 / (result["requests"] * per_request), 1)
        result["records_per_s"] = round(result["requests"] * per_request / result["seconds"])
        result["calm"] = (alone, beside)
        admin.delete_topic(topic)
        admin.delete_topic(calm)
    return result


def main() -> None:
    """Both brokers, cell by cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        brokers: list[BrokerProcess] = [
            Kafka(pathlib.Path(folder) / "kafka"),
            KbrokerProcess(pathlib.Path(folder) / "kbroker"),
        ]
        for broker in brokers:
            broker.start()
            stack.callback(broker.kill)
        for _ in range(options.rounds):
            for cell in cells(options.connections):
                if options.only not in cell[0]:
                    continue
                for broker in brokers:
                    found = run(broker, cell, options.seconds)
                    alone, beside = found["calm"]
                    print(
                        f"{cell[0]:20} {broker.name:10} {found['records_per_s']:>10,} records/s "
                        f"{found['ns_per_record']:>8} ns CPU/record  {found['bytes_in'] // found['requests']} B/answer "
                        f"peak {found['peak_mb']:>4} MB  "
                        f"calm p99 {alone.get('p99_us')} → {beside.get('p99_us')} µs",
                        flush=True,
                    )


if __name__ == "__main__":
    sys.exit(main())
