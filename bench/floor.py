"""What the machine takes for a request, whatever broker it goes to: kbroker beside a server that does nothing else.

    python -m bench.floor [--cells one-1,batch-16,fetch-16k-16] [--rounds 3] [--seconds 2] [--json FILE]

The bare server (`native/bare.c`) is a loop in C that reads a frame, appends it to a file or reads an answer from one,
and sends the answer that kbroker gave to the same request: the system calls of a request, no decoding, no checks, no
log.  Both take turns under the same load generator; figures are medians of the rounds after the first.  No broker with
one thread and these system calls can cost less, so what a cell misses by more than the difference to this row is the
machine's.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench import brokers, frames, raw, runners
from bench.admin import Admin
from bench.brokers import Broker
from bench.cell import Cell, Load, Result
from bench.cells import chosen
from bench.hot_memory import HotMemory
from bench.native_build import bare_server

CELLS = "one-1,one-50,batch-1,batch-16,batch-1m,fetch-16k-1,fetch-16k-16,fetch-1m-1,fetch-1m-16,metadata"
CONGESTION = "cubic"
KINDS = ("produce", "fetch", "metadata", "api_versions")
#: As kbroker's `socket.busy.poll.us`.
SPIN_US = 50
FIGURES = ("requests_per_s", "cpu_us_per_request", "p50_us", "p99_us")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a cell as kbroker answered it.  `read_bytes` of the answer are records out of `files`."""

    request: bytes
    answer: bytes
    check_at: int = -1
    read_bytes: int = 0
    files: tuple[pathlib.Path, ...] = ()


def capture(cell: Cell, broker: Broker) -> Exchange:
    """Ask kbroker what the cell's load generator asks."""
    if cell.kind == "fetch":
        topic = raw.prepare_reading(broker, cell.partitions)
        batch_bytes = len(raw.read_batch(cell.record_bytes))
        layout = frames.fetch_layout(topic)
        request = frames.fetch(topic, 0, max(cell.fetch_bytes, batch_bytes))
        answer = _ask(broker, request)
        # Behind the records stand the tags of partition, topic and answer, before them their size.
        files = tuple(sorted(broker.log_directory().glob(f"{topic}-*/*.log")))
        return Exchange(request, answer, layout.error_at, len(answer) - layout.records_at - 8, files)
    if cell.kind == "api_versions":
        return Exchange(frames.api_versions(), _ask(broker, frames.api_versions()))
    with raw.topics(broker, replace(cell, partitions=1)) as places:
        topic = places[0][0]
        if cell.kind == "metadata":
            return Exchange(frames.metadata(topic), _ask(broker, frames.metadata(topic)))
        batch = frames.batch(cell.records, cell.record_bytes, cell.codec)
        request = frames.produce(topic, 0, batch, cell.acks)
        return Exchange(request, _ask(broker, request), frames.produce_layout(topic).error_at)


def _ask(broker: Broker, request: bytes) -> bytes:
    with Admin(broker.host, broker.port) as admin:
        answer = admin.ask(request)
    return struct.pack(">i", len(answer)) + answer


@contextmanager
def bare(cell: Cell, exchange: Exchange, folder: pathlib.Path) -> Iterator[Broker]:
    """A bare server for the requests of one cell.  It reads what kbroker reads: how the page cache holds a file decides
    what sending it costs."""
    answer = folder / "answer"
    answer.write_bytes(exchange.answer)
    argv = [str(bare_server()), "--answer", str(answer), "--spin-us", str(SPIN_US), "--congestion", CONGESTION]
    if exchange.read_bytes:
        argv += ["--read", str(exchange.read_bytes)]
    argv += [part for path in exchange.files for part in ("--data", str(path))]
    if cell.kind == "produce":
        argv += ["--data", str(folder / "data"), "--spread", str(cell.partitions)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Broker("bare", "127.0.0.1", int(process.stdout.readline()), process.pid)
        finally:
            process.stdin.close()
            process.wait(10)


def ask_bare(cell: Cell, exchange: Exchange, load: Load, folder: pathlib.Path) -> Result:
    with bare(cell, exchange, folder) as server:
        count = cell.max_bytes // len(exchange.request)
        options = {"check_at": exchange.check_at, "max_requests": count}
        return runners.with_rates(raw.run_closed(server, [exchange.request], cell, load, **options))


def compare(cell: Cell, broker: Broker, memory: HotMemory, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Medians of both sides."""
    exchange = capture(cell, broker)

    @contextmanager
    def around() -> Iterator[None]:
        broker.wait_for_deletions()
        with runners.memory_for(cell, memory):
            yield

    load = Load(seconds, congestion=CONGESTION, around=around)
    found: dict[str, list[Result]] = {"kbroker": [], "bare": []}
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory(prefix="bench-bare-") as folder:
            sides = {
                "kbroker": lambda: runners.run(cell, broker, load),
                "bare": lambda: ask_bare(cell, exchange, load, pathlib.Path(folder)),
            }
            for side in sides if number % 2 else reversed(sides):
                result = sides[side]()
                if number:
                    found[side].append(result)
    return {
        side: {name: statistics.median(result.get(name, 0.0) for result in results) for name in FIGURES}
        for side, results in found.items()
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=CELLS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--memory", type=float, default=-1.0, help="GB that are kept in use for runs that write")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args(argv)
    cells = chosen(arguments.cells)
    if wrong := [cell.name for cell in cells if cell.kind not in KINDS or cell.cold]:
        parser.error(f"no bare server can stand for {', '.join(wrong)}")
    document: dict[str, Any] = {}
    print(
        f"{'cell':16}{'kbroker':>12}{'bare':>12}  requests/s {'kbroker':>9}{'bare':>9}  us CPU each   p50 of both",
        flush=True,
    )
    broker = brokers.start("kbroker", CONGESTION)
    try:
        with HotMemory(arguments.memory) as memory:
            for cell in cells:
                both = document[cell.name] = compare(cell, broker, memory, arguments.rounds, arguments.seconds)
                ours, least = both["kbroker"], both["bare"]
                print(
                    f"{cell.name:16}{ours['requests_per_s']:12,.0f}{least['requests_per_s']:12,.0f}"
                    f"{ours['cpu_us_per_request']:21.1f}{least['cpu_us_per_request']:9.1f}"
                    f"{ours['p50_us']:17.0f}{least['p50_us']:7.0f}",
                    flush=True,
                )
    finally:
        broker.stop()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
