"""How much of the broker's code histories reach: statements of each file, in C as well (`make simulate-coverage`).

    python -m tests.simulation.coverage --simulations 300 --seed 1 [NAME …]

Each history is played in a process of its own that is measured from its first line on; what they reached is put
together in the end.  A name (`fast_append`) lists the lines of that file which none has reached.
"""

from __future__ import annotations

import argparse
import linecache
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import coverage
from Cython.Coverage import Plugin

from tests.simulation.one_hash import with_one_hash

ROOT = Path(__file__).parents[2]
MEASURED = (
    "kbroker/_fast/net/*.py*",
    "kbroker/_fast/requests/*.py*",
    "kbroker/_fast/log/*.py*",
    "kbroker/replication/*.py",
    "kbroker/handlers/records/produce*.py",
    "kbroker/handlers/records/fetch*.py",
)
ASKED_PERCENT = 90
BEYOND = (
    ("", r"raise NotImplementedError", "of an interface, whose every class has its own"),
    ("", r"raise MemoryError|stop = STOP_MEMORY", "memory does not end"),
    ("_fast/tls/kernel_tls", r"", "the kernel's TLS, which sockets in memory have not"),
    ("_fast/net/connection_states", r"", "what tests alone ask"),
    ("_fast/net/gate", r"", "of an interface, whose every gate has its own"),
    ("replication/fetchers", r"", "a protocol for types, which nothing imports"),
    ("_fast/net/send_threads", r"pthread_|waiting_count == 0|do_job|start_thread|running \+=", "of a thread's own"),
    (
        "_fast/log/append_group",
        r"write_by|PyBytes_FromStringAndSize|stamp_group|_write_by_hook",
        "files of tests alone",
    ),
    ("_fast/log/fast_append", r"write_by|file\.pwrite", "files of tests alone"),
    ("_fast/", r"def __repr__|return \(?f\"", "for people with a debugger"),
)
"""Statements that no history can reach: file, text, and why.  They are counted, and said."""
SHARE = 20
"""So many histories of one process are measured together."""
KRAFT_EACH = 5
"""Of so many histories one more is of a KRaft cluster."""
NO_LIMIT = 1 << 62


@contextmanager
def measured(folder: Path) -> Iterator[None]:
    """What runs meanwhile in this process counts."""
    meter = _meter(folder)
    meter.start()
    try:
        yield
    finally:
        meter.stop()
        meter.save()


def _meter(folder: Path) -> coverage.Coverage:
    meter = coverage.Coverage(
        data_file=str(folder / "reached"),
        data_suffix=True,
        config_file=False,
        include=[str(ROOT / each) for each in MEASURED],
    )
    meter.set_option("run:plugins", ["Cython.Coverage"])
    meter.set_option("report:exclude_lines", ["pragma: no cover", "if TYPE_CHECKING:", r"^\s*\.\.\.$"])
    return meter


def _play(seeds: list[int], kind: str | None, folder: Path) -> int:
    """The number of histories that fail.  `kind`: one of the runner's, which no seed draws."""
    with measured(folder):
        from tests.simulation import work
        from tests.simulation.runner import play_seed
        from tests.simulation.world import ViolationError

        # Each line that is told of counts as a call.
        work.CALLS = work.BYTES = NO_LIMIT
        failed = 0
        for seed in seeds:
            try:
                play_seed(seed, only=kind)
            except ViolationError as error:
                print(str(error).splitlines()[0], file=sys.stderr, flush=True)
                failed += 1
        return failed


def _play_apart(seeds: list[int], kind: str | None, folder: Path) -> int:
    """The same in a process of its own; its id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 1 if _play(seeds, kind, folder) else 0
        finally:
            os._exit(status)
    return pid


def _report(folder: Path, names: list[str]) -> float:
    """Print a line for each file, and what is not reached of those that are named; what share is, in percent."""
    meter = _meter(folder)
    meter.combine([str(folder)])
    reached = total = beyond = 0
    print(f"{'statements':>10} {'reached':>8} {'percent':>8}  file")
    for path in sorted(each for pattern in MEASURED for each in ROOT.glob(pattern) if each.suffix in {".py", ".pyx"}):
        try:
            _, lines, _, missing, text = meter.analysis2(str(path))
        except coverage.CoverageException:
            # No history has loaded it: all of it counts as not reached.
            lines = missing = sorted(Plugin().file_reporter(str(path)).lines())
            text = "all of it"
        if not lines:
            continue
        total += len(lines)
        reached += len(lines) - len(missing)
        beyond += sum(_is_beyond(path, number) for number in missing)
        share = 100 * (len(lines) - len(missing)) / len(lines)
        print(f"{len(lines):10} {len(lines) - len(missing):8} {share:8.1f}  {path.relative_to(ROOT)}")
        if path.stem in names:
            print(f"{'':28}  not reached: {text}")
    share = 100 * reached / max(1, total)
    print(f"{total:10} {reached:8} {share:8.1f}  in all")
    print(f"{100 * reached / max(1, total - beyond):.1f} % of what a history can reach")
    print(f"{beyond} of the others are beyond any history: {', '.join(dict.fromkeys(why for *_, why in BEYOND))}")
    return share


def _is_beyond(path: Path, number: int) -> bool:
    text = linecache.getline(str(path), number)
    return any(name in str(path) and re.search(pattern, text) for name, pattern, _ in BEYOND)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="list the lines of this file that are not reached")
    parser.add_argument("--simulations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    seeds = list(range(given.seed, given.seed + given.simulations))
    # No seed draws brokers of a KRaft cluster: a part of the seeds plays them as well.
    drawn: list[tuple[str | None, list[int]]] = [(None, seeds), ("kraft", seeds[::KRAFT_EACH])]
    shares = [(kind, each[at : at + SHARE]) for kind, each in drawn for at in range(0, len(each), SHARE)]
    with tempfile.TemporaryDirectory(prefix="kbroker-coverage-") as name:
        folder, failed = Path(name), 0
        running: set[int] = set()
        while shares or running:
            while shares and len(running) < given.workers:
                kind, share_of_seeds = shares.pop(0)
                running.add(_play_apart(share_of_seeds, kind, folder))
            pid, status = os.wait()
            running.discard(pid)
            failed += status != 0
        share = _report(folder, given.names)
    if failed:
        print("some histories fail", file=sys.stderr)
    return 1 if failed or share < ASKED_PERCENT else 0


if __name__ == "__main__":
    with_one_hash("tests.simulation.coverage")
    sys.exit(main())
