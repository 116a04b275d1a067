"""kbroker and Apache Kafka side by side, or any broker alone: the same frames, the same settings, interleaved rounds.

    python bench/side_by_side.py                                  both, all cells, 3 rounds
    python bench/side_by_side.py --cells 'one-*,batch-16' --rounds 5
    python bench/side_by_side.py --only kbroker
    python bench/side_by_side.py --against 127.0.0.1:9092 --pid 4711

Memory is touched once, a first round warms both sides and is thrown away, and who goes first alternates.  Each cell's
figures are the medians over the rounds.  Ctrl-C keeps what was measured.  CPU is the broker's user and system time,
all threads, over the measured window.  TCP congestion control is the same on both sides (`--congestion`): kbroker has
a setting for it, Kafka gets it from a preloaded listen().  Results go to bench/results/ as JSON and as a table.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from dataclasses import asdict
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import brokers, cells  # noqa: E402
from bench.admin import AdminError  # noqa: E402
from bench.brokers import Broker, BrokerError  # noqa: E402
from bench.cells import Cell, CellError, Result  # noqa: E402
from bench.report import table  # noqa: E402

#: Cells that would spoil the others' figures are run last, each on a broker of its own.
SEPARATE = ("storm", "idle")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="", help="comma list of names, each may end in *; all when not given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of a cell in a round")
    parser.add_argument("--warm-seconds", type=float, default=5.0, help="time of a cell in the round thrown away")
    parser.add_argument("--only", choices=("kbroker", "kafka"))
    parser.add_argument("--against", metavar="HOST:PORT", help="a broker that runs already")
    parser.add_argument("--pid", type=int, default=0, help="its process, for CPU and memory")
    parser.add_argument("--congestion", default="cubic", help="TCP congestion control; empty leaves the system's")
    parser.add_argument("--touch-gb", type=float, default=-1.0, help="memory to touch first; half of what's free")
    parser.add_argument("--data", type=pathlib.Path, help="folder for the brokers' data; the system's temporary one")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    return parser.parse_args()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Session:
    """The measurements of one run: results by cell and side, one entry per round."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.cells = cells.chosen(arguments.cells)
        self.rounds: dict[str, dict[str, list[Result]]] = {}
        self.faults: list[str] = []
        self.versions: dict[str, str] = {}

    def names(self) -> list[str]:
        if self.arguments.against:
            return ["against"]
        return [self.arguments.only] if self.arguments.only else ["kbroker", "kafka"]

    def start(self, name: str) -> Broker:
        if name == "against":
            host, _, port = self.arguments.against.rpartition(":")
            return Broker("against", host, int(port), self.arguments.pid)
        broker = brokers.start(name, self.arguments.congestion, self.arguments.data)
        self.versions[name] = broker.version
        return broker

    def measure(self, cell: Cell, broker: Broker, *, keep: bool) -> None:
        """Run one cell once.  A fault is told and leaves the others alone."""
        seconds = self.arguments.seconds if keep else self.arguments.warm_seconds
        try:
            result = cells.run(cell, broker, seconds, self.arguments.congestion)
        except (AdminError, BrokerError, CellError, OSError) as error:
            self.faults.append(f"{cell.name} on {broker.name}: {error}")
            say(f"  {cell.name} on {broker.name} failed: {error}")
            return
        if result.get("errors"):
            self.faults.append(f"{cell.name} on {broker.name}: {result['errors']} answers were errors")
        if broker.pid:
            result["resident_mb"] = round(broker.resident_bytes() / 1e6, 1)
        if keep:
            self.rounds.setdefault(cell.name, {}).setdefault(broker.name, []).append(result)
        say(f"  {'' if keep else 'warm: '}{cell.name:14} {broker.name:8} {brief(result)}")

    def run_shared(self) -> None:
        """Cells that run against brokers which stay up for all rounds."""
        wanted = [cell for cell in self.cells if cell.kind not in SEPARATE]
        if not wanted:
            return
        running: list[Broker] = []
        try:
            for name in self.names():
                running.append(self.start(name))
            for number in range(self.arguments.rounds + 1):
                say(f"round {number} of {self.arguments.rounds}" if number else "warming")
                for place, cell in enumerate(wanted):
                    order = running if (number + place) % 2 else running[::-1]
                    for broker in order:
                        self.measure(cell, broker, keep=number > 0)
        finally:
            for broker in running:
                broker.stop()

    def run_separate(self) -> None:
        """Start-up, idle and connection cells: a fresh broker each."""
        for cell in (cell for cell in self.cells if cell.kind in SEPARATE):
            if cell.kind == "idle" and self.arguments.against:
                continue
            for name in self.names():
                rounds = self.arguments.rounds if cell.kind == "idle" else 1
                for _ in range(rounds):
                    broker = self.start(name)
                    try:
                        if cell.kind == "idle":
                            self.keep_idle(cell, broker)
                        else:
                            self.measure(cell, broker, keep=True)
                    finally:
                        broker.stop()

    def keep_idle(self, cell: Cell, broker: Broker) -> None:
        time.sleep(2)
        cpu, begin = broker.cpu_seconds(), time.monotonic()
        time.sleep(5)
        share = (broker.cpu_seconds() - cpu) / (time.monotonic() - begin)
        result: Result = {
            "ready_s": round(broker.ready_seconds, 3),
            "resident_mb": round(broker.resident_bytes() / 1e6, 1),
            "idle_cpu_percent": round(share * 100, 2),
        }
        self.rounds.setdefault(cell.name, {}).setdefault(broker.name, []).append(result)
        say(f"  {cell.name:14} {broker.name:8} {result}")

    def medians(self) -> dict[str, dict[str, Result]]:
        return {cell: {side: median(rounds) for side, rounds in sides.items()} for cell, sides in self.rounds.items()}

    def document(self) -> dict[str, Any]:
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
            "versions": self.versions,
            "arguments": {key: str(value) for key, value in vars(self.arguments).items()},
            "settings": brokers.EQUAL_SETTINGS,
            "cells": {cell.name: asdict(cell) for cell in self.cells},
            "medians": self.medians(),
            "rounds": self.rounds,
            "faults": self.faults,
        }


def median(rounds: list[Result]) -> Result:
    """The median of each number; text is taken from the last round."""
    joined: Result = {}
    for key in rounds[-1]:
        values = [result[key] for result in rounds if key in result]
        joined[key] = statistics.median(values) if isinstance(values[-1], int | float) else values[-1]
    return joined


def brief(result: Result) -> str:
    wanted = ("requests_per_s", "mb_per_s", "p50_us", "p99_us", "cpu_us_per_request", "cpu_s_per_gb", "seconds")
    return " ".join(f"{key}={result[key]}" for key in (*wanted, "bytes_per_connection", "note") if key in result)


def machine() -> dict[str, Any]:
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": model, "cpus": os.cpu_count(), "memory_gb": round(total / 1e9, 1), "kernel": platform.release()}


def main() -> None:
    arguments = parse_arguments()
    try:
        session = Session(arguments)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    gigabytes = arguments.touch_gb if arguments.touch_gb >= 0 else cells.available_gigabytes() / 2
    if gigabytes:
        say(f"touching {gigabytes:.1f} GB of memory")
        cells.touch_memory(gigabytes)
    try:
        session.run_shared()
        session.run_separate()
    except KeyboardInterrupt:
        say("stopped; keeping what was measured")
    except BrokerError as error:
        say(str(error))
    finally:
        document = session.document()
        arguments.results.mkdir(parents=True, exist_ok=True)
        stem = arguments.results / time.strftime("%Y-%m-%d-%H%M%S")
        stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        text = table(document)
        stem.with_suffix(".md").write_text(text)
        print(text)
        say(f"written to {stem}.json and .md")


if __name__ == "__main__":
    main()
