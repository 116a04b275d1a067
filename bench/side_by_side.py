"""kbroker and Apache Kafka side by side, or any other broker: the same load, the same settings, interleaved rounds.

    python bench/side_by_side.py                                  both, all cells, 5 rounds
    python bench/side_by_side.py --cells 'one-*,batch-16' --rounds 2
    python bench/side_by_side.py --only kbroker
    python bench/side_by_side.py --against 127.0.0.1:9092 --pid 4711       kbroker and a broker that runs already
    python bench/side_by_side.py --compare bench/results/A bench/results/B
    python bench/side_by_side.py --report docs/benchmarks/2026-11-28-whole
    python bench/side_by_side.py --list

Memory is used once, and what a run fills was in use until just before; a first round warms both sides and is thrown
away, and who goes first alternates.  Each cell's figures are the medians over the rounds.  Ctrl-C keeps what was
measured and reports it.  CPU is the broker's user and system time, all threads, over the measured window.  TCP
congestion control is the same on both sides (`--congestion`): kbroker has a setting for it, Kafka a preloaded
listen().  Results go to bench/results/<date>/: results.json, report.md and report.html, which needs nothing beside it.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import cells, compare, limits, page, report, session  # noqa: E402


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="", help="comma list of names, each may end in *; all when not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of a cell in a round")
    parser.add_argument("--warm-seconds", type=float, default=5.0, help="time of a cell in the round thrown away")
    parser.add_argument("--scale", type=float, default=1.0, help="size of what cells fill, read, restart")
    parser.add_argument("--only", choices=("kbroker", "kafka", "against"), help="measure this side alone")
    parser.add_argument("--against", metavar="HOST:PORT", help="a broker that runs already, in Kafka's place")
    parser.add_argument("--pid", type=int, default=0, help="its process, for CPU and memory")
    parser.add_argument("--congestion", default="cubic", help="TCP congestion control; empty leaves the system's")
    parser.add_argument(
        "--touch-gb",
        type=float,
        default=-1.0,
        help="memory to use at first, and then to free right before each run that takes much of it "
        "(half of what is free, then three times what a run takes)",
    )
    parser.add_argument("--data", type=pathlib.Path, help="folder for the brokers' data; the system's temporary one")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--compare", nargs=2, type=pathlib.Path, metavar=("A", "B"), help="two results, no run")
    parser.add_argument("--report", type=pathlib.Path, metavar="RESULT", help="write the report of a result again")
    parser.add_argument("--list", action="store_true", help="the cells, no run")
    arguments = parser.parse_args(argv)
    if arguments.only == "against" and not arguments.against:
        parser.error("--only against needs --against HOST:PORT")
    if arguments.against and not arguments.against.rpartition(":")[2].isdigit():
        parser.error("--against needs HOST:PORT")
    if arguments.rounds < 1 or arguments.seconds <= 0 or arguments.scale <= 0:
        parser.error("--rounds, --seconds and --scale must be more than 0")
    return arguments


def write(document: dict[str, Any], folder: pathlib.Path) -> str:
    """The three files of a result; returns the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    return write_report(document, folder)


def write_report(document: dict[str, Any], folder: pathlib.Path) -> str:
    """What a result looks like, as Markdown and as a page; returns the Markdown."""
    text = report.table(document)
    (folder / "report.md").write_text(text)
    (folder / "report.html").write_text(page.render(document))
    return text


def measure(arguments: argparse.Namespace) -> None:
    """Run the chosen cells and write the report, also when stopped by hand."""
    try:
        running = session.chosen(arguments)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    # A run that is ended in order keeps what it has, and its brokers do not outlive it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = arguments.results / time.strftime("%Y-%m-%d-%H%M%S")
    gigabytes = limits.gigabytes_to_touch(arguments.touch_gb, 0.5)
    try:
        if gigabytes:
            print(f"touching {gigabytes:.1f} GB of memory", file=sys.stderr, flush=True)
            limits.touch_memory(gigabytes)
        running.run()
    except KeyboardInterrupt:
        running.stopped = running.stopped or "stopped by hand before anything was measured"
    if not running.rounds and not running.not_served:
        for fault in running.faults:
            print(fault, file=sys.stderr)
        raise SystemExit("nothing was measured")
    print(write(running.document(), folder))
    print(f"written to {folder}", file=sys.stderr)


def main() -> None:
    arguments = parse_arguments()
    try:
        if arguments.list:
            for cell in cells.CELLS:
                print(f"{cell.name:26} {cell.title}")
        elif arguments.compare:
            before, after = (compare.load(path) for path in arguments.compare)
            print(compare.table(before, after))
        elif arguments.report:
            given = arguments.report
            write_report(compare.load(given), given if given.is_dir() else given.parent)
        else:
            measure(arguments)
    except ValueError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
