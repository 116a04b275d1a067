"""What waiting for the disk costs: kbroker's fsync modes side by side, with the disk's own figure beside them.

    python -m bench.durability [--rounds 3] [--seconds 3] [--data FOLDER]

The modes take turns on brokers that stay up, as in `bench.side_by_side`.  The last row is a loop of one 200-byte
`pwrite` and one `fdatasync`, which no broker that keeps its promise can beat on one connection and one partition.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import brokers, runners
from bench.brokers import Broker
from bench.cell import SMALL_BATCH_RECORDS, Cell, Load, Result

CONGESTION = "cubic"
MODES: dict[str, dict[str, str]] = {
    "os": {"KBROKER_FSYNC": "os"},
    "interval": {"KBROKER_FSYNC": "interval"},
    "commit": {"KBROKER_FSYNC": "commit"},
    "flush.messages=1": {"KBROKER_LOG_FLUSH_INTERVAL_MESSAGES": "1"},
}
CELLS = (
    Cell("one-1", "one record, 1 connection", "produce", 1, acks=-1),
    Cell("one-50", "one record, 50 connections, 16 partitions", "produce", 50, acks=-1),
    Cell("one-400", "one record, 400 connections, 16 partitions", "produce", 400, acks=-1),
    Cell("batch-16", "150 x 100 B, 16 connections, 16 partitions", "produce", 16, SMALL_BATCH_RECORDS, acks=-1),
)


@contextmanager
def _running(data: pathlib.Path | None) -> Iterator[dict[str, Broker]]:
    running: dict[str, Broker] = {}
    before = dict(os.environ)
    try:
        for mode, environ in MODES.items():
            os.environ.update(environ)
            running[mode] = brokers.start("kbroker", CONGESTION, data)
            os.environ.clear()
            os.environ.update(before)
        yield running
    finally:
        for broker in running.values():
            broker.stop()


def probe(data: pathlib.Path | None, seconds: float) -> Result:
    """Microseconds of a small write with its fdatasync, and how many a second."""
    times = []
    with tempfile.NamedTemporaryFile(prefix="bench-fsync-", dir=data) as file:
        position, end = 0, time.monotonic() + seconds
        while (begin := time.monotonic()) < end:
            os.pwrite(file.fileno(), b"x" * 200, position)
            os.fdatasync(file.fileno())
            position += 200
            times.append((time.monotonic() - begin) * 1e6)
    times.sort()
    return {
        "requests_per_s": round(len(times) / seconds),
        "p50_us": round(times[len(times) // 2]),
        "p99_us": round(times[len(times) * 99 // 100]),
    }


def row(title: str, mode: str, rounds: list[Result]) -> str:
    def middle(key: str) -> str:
        values = [result[key] for result in rounds if key in result]
        return f"{statistics.median(values):,.0f}" if values else ""

    figures = " | ".join(middle(key) for key in ("requests_per_s", "p50_us", "p99_us", "cpu_us_per_request"))
    return f"| {title} | {mode} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="kbroker's fsync modes side by side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--data", type=pathlib.Path, help="folder for the data; the system's temporary one")
    arguments = parser.parse_args()
    measured: dict[tuple[str, str], list[Result]] = {}
    disk: list[Result] = []
    with _running(arguments.data) as running:
        for number in range(arguments.rounds + 1):
            # What the round before left to write would be measured otherwise.
            os.sync()
            disk.append(probe(arguments.data, 1.0))
            for cell in CELLS:
                os.sync()
                for mode, broker in running.items():
                    result = runners.run(
                        cell, broker, Load(arguments.seconds if number else 1.0, congestion=CONGESTION)
                    )
                    if result.get("errors"):
                        raise SystemExit(f"{cell.name} with {mode}: {result['errors']} answers were errors")
                    if number:
                        measured.setdefault((cell.title, mode), []).append(result)
    print("| load (acks=all) | mode | requests/s | p50 µs | p99 µs | broker CPU µs per request |")
    print("|---|---|---|---|---|---|")
    for (title, mode), rounds in measured.items():
        print(row(title, mode, rounds))
    print(row("`pwrite` of 200 B and `fdatasync`, alone", "", disk))


if __name__ == "__main__":
    main()
