"""One run: which cells on which sides in which order, and what was measured so far."""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from bench import brokers, cells, limits, raw
from bench.admin import AdminError
from bench.brokers import Broker, BrokerError
from bench.cell import Cell, CellError, Load, NotServedError, Result
from bench.hot_memory import HotMemory
from bench.operations import IDLE_SECONDS, LEAST_STARTS, ONCE, OPERATIONS
from bench.progress import Progress
from bench.runners import RUNNERS, memory_for, run, takes_memory
from bench.sampling import Sampler

FORMAT = 2
_BRIEF = ("requests_per_s", "records_per_s", "mb_per_s", "p50_us", "p99_us", "cpu_us_per_request", "cpu_s_per_gb",
          "seconds", "idle_cpu_percent", "resident_mb", "bytes_per_connection", "note")  # fmt: skip
FAULTS = (AdminError, BrokerError, CellError, OSError, ValueError, SystemExit)


@dataclass(slots=True)
class Session:
    """The measurements of one run: results by cell and side, one entry per round."""

    arguments: argparse.Namespace
    cells: tuple[Cell, ...]
    rounds: dict[str, dict[str, list[Result]]] = field(default_factory=dict)
    not_served: dict[str, dict[str, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    marks: list[tuple[float, str]] = field(default_factory=list)
    stopped: str = ""
    sampler: Sampler = field(default_factory=Sampler)
    _memory: HotMemory = field(init=False)
    _progress: Progress = field(init=False)

    def sides(self) -> list[str]:
        """The brokers that are measured."""
        if self.arguments.only:
            return [self.arguments.only]
        return ["kbroker", "against" if self.arguments.against else "kafka"]

    # ------------------------------------------------------------------------------------------ the plan

    def plan(self) -> list[tuple[str, float]]:
        """All steps, each named by its cell, with the seconds expected of it."""
        steps: list[tuple[str, float]] = []
        for cell in self.cells:
            for _ in self.sides():
                for number in range(self._rounds_of(cell)):
                    steps.append((cell.name, self._expected(cell, warm=number == 0 and cell.kind in RUNNERS)))
        return steps

    def _rounds_of(self, cell: Cell) -> int:
        rounds = int(self.arguments.rounds)
        if cell.kind in RUNNERS:
            return rounds + 1
        return 1 if cell.kind in ONCE else max(rounds, LEAST_STARTS)

    def _expected(self, cell: Cell, *, warm: bool) -> float:
        scale = float(self.arguments.scale)
        by_kind = {
            "idle": IDLE_SECONDS * scale + 8,
            "storm": 60,
            "start": 4,
            "restart_partitions": 60 * scale,
            "restart_killed": 40 * scale,
            "compaction": 20 * scale,
            "retention": 15,
        }
        if cell.kind in by_kind:
            return by_kind[cell.kind]
        seconds = float(self.arguments.warm_seconds if warm else self.arguments.seconds)
        return seconds + (3 if cell.kind.startswith("java") else 1.5)

    # ------------------------------------------------------------------------------------------ running

    def run(self) -> None:
        """All cells; a KeyboardInterrupt ends it and is noted."""
        raw.READ_BYTES = max(64 << 20, int(raw.READ_BYTES * min(1.0, float(self.arguments.scale))))
        with self.sampler, Progress(self.plan()) as self._progress:
            try:
                with HotMemory(float(self.arguments.touch_gb)) as self._memory:
                    for system in (False, True):
                        together = [cell for cell in self.cells if cell.kind in RUNNERS and not cell.apart]
                        self._try_together([cell for cell in together if cell.system_congestion == system])
                    for cell in self.cells:
                        if cell.kind in RUNNERS and cell.apart:
                            self._try_together([cell])
                for place, cell in enumerate(cell for cell in self.cells if cell.kind in OPERATIONS):
                    self._run_operation(cell, place)
            except KeyboardInterrupt:
                self.stopped = "stopped by hand; what was measured until then is here"

    def _congestion(self, cell: Cell) -> str:
        """The congestion control of a cell's brokers and clients; empty leaves the system's."""
        return "" if cell.system_congestion else str(self.arguments.congestion)

    def _start(self, name: str, cell: Cell, settings: dict[str, str] | None = None) -> Broker:
        if name == "against":
            host, _, port = self.arguments.against.rpartition(":")
            self.versions.setdefault("against", self.arguments.against)
            return Broker("against", host, int(port), self.arguments.pid)
        broker = brokers.start(name, self._congestion(cell), self.arguments.data, settings)
        self.versions[name] = broker.version
        self.commands.setdefault(name, broker.command_line())
        return broker

    @contextmanager
    def _running(self, cell: Cell) -> Iterator[list[Broker]]:
        """One broker of each side, set up for `cell` and those that run together with it."""
        running: list[Broker] = []
        try:
            for name in self.sides():
                running.append(self._start(name, cell))
                self.sampler.follow(running[-1])
            yield running
        finally:
            for broker in running:
                self.sampler.forget(broker)
                broker.stop()

    def _try_together(self, wanted: list[Cell]) -> None:
        """As below; brokers that do not come up cost these cells only."""
        try:
            self._run_together(wanted)
        except FAULTS as error:
            self.faults.append(f"{', '.join(cell.name for cell in wanted)}: {error}")
            self._progress.say(f"  {error}")

    def _run_together(self, wanted: list[Cell]) -> None:
        """A round to warm, thrown away, then the others; who goes first alternates."""
        if not wanted:
            return
        with self._running(wanted[0]) as running:
            for number in range(self.arguments.rounds + 1):
                for place, cell in enumerate(wanted):
                    self.marks.append((round(self.sampler.seconds(), 1), cell.name))
                    for broker in running if (number + place) % 2 else running[::-1]:
                        if takes_memory(cell):
                            for each in running:
                                each.wait_for_deletions()
                        self._measure(cell, broker, number)
        self.marks.append((round(self.sampler.seconds(), 1), ""))

    def _measure(self, cell: Cell, broker: Broker, number: int) -> None:
        seconds = self.arguments.seconds if number else self.arguments.warm_seconds
        around = partial(memory_for, cell, self._memory) if number else nullcontext
        load = Load(seconds, congestion=self._congestion(cell), scale=self.arguments.scale, around=around)
        with self._step(cell, broker.name):
            result = run(cell, broker, load)
            if result.get("errors"):
                self.faults.append(f"{cell.name} on {broker.name}: {result['errors']} answers were errors")
            if broker.pid:
                result["resident_mb"] = round(broker.resident_bytes() / 1e6, 1)
            self._keep(cell, broker.name, result, number)

    def _run_operation(self, cell: Cell, place: int) -> None:
        for number in range(1, self._rounds_of(cell) + 1):
            for name in self.sides() if (number + place) % 2 else self.sides()[::-1]:
                with self._step(cell, name):
                    if name == "against":
                        raise NotServedError("only for brokers that the harness starts itself")
                    load = Load(self.arguments.seconds, congestion=self._congestion(cell), scale=self.arguments.scale)
                    result = OPERATIONS[cell.kind](cell, partial(self._start, name, cell), load)
                    self._keep(cell, name, result, number)

    @contextmanager
    def _step(self, cell: Cell, side: str) -> Iterator[None]:
        """One run of a cell.  A fault is told and leaves the others alone."""
        self._progress.begin(cell.name)
        try:
            yield
        except NotServedError as error:
            self.not_served.setdefault(cell.name, {})[side] = str(error)
            self._progress.say(f"  {cell.name:24} {side:8} {error}")
        except FAULTS as error:
            self.faults.append(f"{cell.name} on {side}: {error}")
            self._progress.say(f"  {cell.name:24} {side:8} failed: {error}")
        finally:
            self._progress.finish(cell.name)

    def _keep(self, cell: Cell, side: str, result: Result, number: int) -> None:
        if number:
            self.rounds.setdefault(cell.name, {}).setdefault(side, []).append(result)
        self._progress.say(
            f"  {cell.name:24} {side:8} {'round ' + str(number) if number else 'warming'}  {brief(result)}"
        )

    # ------------------------------------------------------------------------------------------ the result

    def document(self) -> dict[str, Any]:
        """All that was measured, as it is written to results.json."""
        return {
            "format": FORMAT,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": shlex.join([".venv/bin/python", *sys.argv]),
            "machine": limits.machine(),
            "versions": self.versions,
            "sides": self.sides(),
            "arguments": {key: str(value) for key, value in vars(self.arguments).items() if key != "results"},
            "settings": brokers.EQUAL_SETTINGS,
            "commands": self.commands,
            "cells": {cell.name: asdict(cell) for cell in self.cells},
            "medians": medians(self.rounds),
            "rounds": self.rounds,
            "not_served": self.not_served,
            "faults": self.faults,
            "stopped": self.stopped,
            "over_time": {"points": self.sampler.points, "marks": self.marks},
        }


def medians(rounds: dict[str, dict[str, list[Result]]]) -> dict[str, dict[str, Result]]:
    return {cell: {side: median(results) for side, results in sides.items()} for cell, sides in rounds.items()}


def median(rounds: list[Result]) -> Result:
    """The median of each number; of text, the last one that is there."""
    joined: Result = {}
    for key in dict.fromkeys(key for result in rounds for key in result):
        values = [result[key] for result in rounds if key in result]
        number = isinstance(values[-1], int | float) and not isinstance(values[-1], bool)
        joined[key] = statistics.median(values) if number else values[-1]
    return joined


def brief(result: Result) -> str:
    return " ".join(f"{key}={result[key]}" for key in _BRIEF if key in result)


def chosen(arguments: argparse.Namespace) -> Session:
    """A session for the arguments; ValueError for a cell that is not there."""
    return Session(arguments, cells.chosen(arguments.cells))
