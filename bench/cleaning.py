"""Compaction beside the traffic: how fast each codec is cleaned, and what end-to-end latency costs meanwhile.

    python bench/cleaning.py                      # kbroker and Apache Kafka, one after the other, per codec
    python bench/cleaning.py --only kbroker --gigabytes 2 --codecs none,zstd

A topic is filled with keyed records that may not be compacted yet; latency is measured (1,000 messages/s on a topic of
its own); then compaction is allowed, and latency is measured again until all but the newest segments are clean.  One
cleaner thread, equal settings, segments of 64 MB.  A table and JSON go to standard output.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import brokers, frames, operations, raw  # noqa: E402
from bench.admin import Admin  # noqa: E402
from bench.brokers import Broker  # noqa: E402
from bench.cell import Cell, Load, Result  # noqa: E402

SEGMENT_BYTES = 64 << 20
BATCH_RECORDS = 140
PORTIONS = 16
PATIENCE_SECONDS = 600.0
LATENCY = Cell("e2e", "end to end at 1,000/s", "e2e", partitions=1, rate=1_000)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("kbroker", "kafka"))
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of records before compression")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--folder", type=pathlib.Path, help="where the brokers' data go (default: the system's)")
    return parser.parse_args()


def fill(broker: Broker, topic: str, codec: str, gigabytes: float, keys: int) -> int:
    """Records of random keys; the bytes written, before compression."""
    written = 0
    for portion in range(PORTIONS):
        batches = [
            frames.batch(BATCH_RECORDS, 100, codec, key_space=keys, seed=portion * 1000 + number)
            for number in range(64)
        ]
        requests = [frames.produce(topic, 0, batch, 1) for batch in batches]
        count = max(1, int(gigabytes * 1e9 / PORTIONS / (BATCH_RECORDS * 115)))
        cell = Cell("fill", "", "produce", 1)
        check_at = frames.produce_layout(topic).error_at
        load = Load(PATIENCE_SECONDS)
        done = raw.run_closed(broker, requests, cell, load, warm=0, max_requests=count, check_at=check_at, rotate=1)
        assert not done["errors"], done
        written += int(done["requests"]) * BATCH_RECORDS * 115
    return written


class Watch:
    """Notes when the topic is clean up to its newest segment."""

    def __init__(self, broker: Broker, topic: str) -> None:
        directory = broker.log_directory()
        self._checkpoint = directory / "cleaner-offset-checkpoint"
        self._topic = topic
        self._target = max(int(path.stem) for path in (directory / f"{topic}-0").glob("*.log"))
        self._begin = time.monotonic()
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while time.monotonic() - self._begin < PATIENCE_SECONDS:
            if operations.cleaned_to(self._checkpoint, self._topic) >= self._target:
                self.seconds = time.monotonic() - self._begin
                return
            time.sleep(0.02)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()


def measure(side: str, codec: str, arguments: argparse.Namespace) -> Result:
    """One side, one codec, on a broker of its own."""
    settings = operations.EAGER | {"log.cleaner.enable": "true", "log.cleaner.threads": "1"}
    broker = brokers.start(side, "", arguments.folder, settings)
    topic = "keyed"
    configs = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.compaction.lag.ms": "86400000"}
    try:
        with Admin(broker.host, broker.port) as admin:
            admin.create_topic(topic, 1, configs)
        written = fill(broker, topic, codec, arguments.gigabytes, arguments.keys)
        raw.end_to_end(LATENCY, broker, Load(2.0))
        before = raw.end_to_end(LATENCY, broker, Load(4.0))
        operations.alter_topic(broker, topic, {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01"})
        cpu = broker.cpu_seconds()
        watch = Watch(broker, topic)
        # Both look for work once a second.
        worst: Result = {}
        while not watch.done:
            found = raw.end_to_end(LATENCY, broker, Load(1.0))
            if not watch.done or not worst:
                worst = max((worst, found), key=lambda row: row.get("p99_us", 0.0))
        seconds = watch.seconds
        return {
            "written_gb": round(written / 1e9, 2),
            "cleaned_s": round(seconds, 2),
            "mb_per_s": round(written / seconds / 1e6, 1) if seconds else 0.0,
            "broker_cpu_s": round(broker.cpu_seconds() - cpu, 2),
            "p50_before_us": before["p50_us"],
            "p50_during_us": worst["p50_us"],
            "p99_before_us": before["p99_us"],
            "p99_during_us": worst["p99_us"],
            "resident_mb": round(broker.resident_bytes() / 1e6, 1),
        }
    finally:
        broker.stop()


def main() -> None:
    arguments = parse_arguments()
    sides = [arguments.only] if arguments.only else ["kbroker", "kafka"]
    results = {}
    for codec in arguments.codecs.split(","):
        for side in sides:
            results[f"{side} {codec}"] = found = measure(side, codec, arguments)
            print(f"{side:8} {codec:6} " + " ".join(f"{name}={value}" for name, value in found.items()), flush=True)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
