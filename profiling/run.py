"""Profiles the broker under one bench cell: µs per request by stage, system calls, allocations, a flame graph.

    python profiling/run.py one-50
    python profiling/run.py batch-16 --seconds 8 --parts stages
    python profiling/run.py fetch-1m-1 --against 127.0.0.1:9092 --pid 4711

The cell is run once alone, for its rate and CPU; once under perf, once under py-spy, once counted.  perf sees C, Cython
and the kernel; py-spy sees Python, Cython and C, but stops the broker for each sample, so its own rate means nothing
(`profiling/stages.py` says how the two become one table).  Extensions built with symbols name inlined code too:
`KBROKER_BUILD=profile python setup.py build_ext --inplace`.

Files go to profiling/results/: the report (.md), flame graphs (.svg from perf, -python.svg from py-spy), the stacks
(.folded).  What is missing on the machine (perf, py-spy, hardware counters) is said in the report.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import brokers, cells, raw, runners  # noqa: E402
from bench.brokers import Broker  # noqa: E402
from bench.cell import Cell, Load, Result  # noqa: E402
from profiling import counting, flame_graph, stacks, stages  # noqa: E402
from profiling.stacks import Stacks  # noqa: E402

#: Let the load generator connect and the broker warm before sampling begins.
LEAD_SECONDS = 1.5
PARTS = ("stages", "counts")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", help=f"one of {', '.join(cell.name for cell in cells.CELLS)}")
    parser.add_argument("--seconds", type=float, default=4.0, help="time of each run")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma list of stages, counts")
    parser.add_argument("--frequency", type=int, default=997, help="samples per second")
    parser.add_argument("--call-graph", choices=("fp", "dwarf"), default="dwarf", help="how perf unwinds")
    parser.add_argument("--against", metavar="HOST:PORT", help="a broker that runs already")
    parser.add_argument("--pid", type=int, default=0, help="its process")
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "profiling" / "results")
    return parser.parse_args()


def perf_is_there() -> bool:
    return shutil.which("perf") is not None


def py_spy() -> str | None:
    """py-spy's program, beside this Python or on the path."""
    local = pathlib.Path(sys.executable).with_name("py-spy")
    return str(local) if local.exists() else shutil.which("py-spy")


def sample_with_perf(pid: int, arguments: argparse.Namespace, folder: str) -> Stacks:
    data = f"{folder}/perf.data"
    graph = "dwarf,16384" if arguments.call_graph == "dwarf" else "fp"
    record = ["perf", "record", "-q", "-F", str(arguments.frequency), "--call-graph", graph]
    record += ["-p", str(pid), "-o", data, "--", "sleep", str(arguments.seconds)]
    subprocess.run(record, check=True, stderr=subprocess.DEVNULL)
    script = ["perf", "script", "-i", data, "-F", "comm,ip,sym,dso", "--no-inline"]
    text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    return stacks.from_perf_script(text.splitlines())


def sample_with_py_spy(pid: int, arguments: argparse.Namespace, folder: str) -> Stacks:
    folded = f"{folder}/folded"
    argv = [py_spy() or "py-spy", "record", "--pid", str(pid), "--format", "raw", "--output", folded, "--native"]
    argv += ["--rate", "250", "--duration", str(max(1, round(arguments.seconds)))]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return stacks.from_folded(pathlib.Path(folded).read_text().splitlines())


Sampler = Callable[[int, argparse.Namespace, str], Stacks]


def load_of(arguments: argparse.Namespace, seconds: float) -> Load:
    return Load(seconds, congestion=arguments.congestion)


def sample(cell: Cell, broker: Broker, arguments: argparse.Namespace, sampler: Sampler) -> Stacks:
    """Load from one thread, samples from another process."""
    faults: list[BaseException] = []

    def work() -> None:
        try:
            runners.run(cell, broker, load_of(arguments, arguments.seconds + 2 * LEAD_SECONDS))
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(LEAD_SECONDS)
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        found = sampler(broker.pid, arguments, folder)
    thread.join()
    if faults:
        raise SystemExit(f"the load failed: {faults[0]}")
    return found


def count(cell: Cell, broker: Broker, arguments: argparse.Namespace) -> str:
    """The table of what one request needs of the system: two loads, because counting allocations slows the broker."""
    calls, memory = counting.Counts(), counting.Counts()
    numbers = []
    for counts, how in ((calls, counting.counted), (memory, counting.counted_memory)):
        # The files of the runs before are not part of a request.
        broker.wait_for_deletions()
        around = functools.partial(how, broker.pid, counts)
        result = runners.run(cell, broker, Load(arguments.seconds, 0.0, arguments.congestion, around=around))
        numbers.append(max(1, int(result["requests"])))
    return counting.table(calls, numbers[0], memory, numbers[1])


@contextmanager
def target(arguments: argparse.Namespace) -> Iterator[Broker]:
    if arguments.against:
        host, _, port = arguments.against.rpartition(":")
        yield Broker("against", host, int(port), arguments.pid)
        return
    broker = brokers.start("kbroker", arguments.congestion)
    try:
        yield broker
    finally:
        broker.stop()


def write_graph(path: pathlib.Path, found: Stacks, title: str) -> None:
    folded = "".join(f"{';'.join(stack)} {number}\n" for stack, number in sorted(found.items()))
    path.with_suffix(".folded").write_text(folded)
    path.with_suffix(".svg").write_text(flame_graph.render(found, title))


def stage_report(cell: Cell, broker: Broker, arguments: argparse.Namespace, result: Result, stem: pathlib.Path) -> str:
    """The tables of stages and symbols; flame graphs beside them."""
    cpu = float(result.get("cpu_us_per_request", 0.0))
    title = f"{cell.title}: {result['requests_per_s']:,.0f} requests/s, {cpu:.1f} us CPU each"
    python: Stacks | None = None
    if py_spy() is not None:
        python = sample(cell, broker, arguments, sample_with_py_spy)
        write_graph(stem.with_name(f"{stem.name}-python"), python, f"{title} (py-spy)")
    if not perf_is_there():
        if python is None:
            return "Neither perf (apt-get install linux-perf) nor py-spy (pip install py-spy) is here.\n"
        return f"perf is not here: no stages.  By py-spy:\n\n{stacks.table(python)}"
    perf = sample(cell, broker, arguments, sample_with_perf)
    write_graph(stem, perf, f"{title} (perf)")
    parts = ["## By stage", "", stages.table(stages.shares(perf, python), cpu)]
    share = stages.interpreter_share(perf)
    parts.append(
        f"{share:.0%} of it are in the interpreter, shared out as py-spy saw the Python functions.\n"
        if python is not None
        else "py-spy is not here (pip install py-spy), so the interpreter's part is one line.\n"
    )
    parts += ["## By symbol", "", stacks.table(perf, cpu_us_per_request=cpu)]
    return "\n".join(parts)


def main() -> None:
    arguments = parse_arguments()
    wanted = [part.strip() for part in arguments.parts.split(",")]
    if not set(wanted) <= set(PARTS):
        raise SystemExit(f"--parts takes {', '.join(PARTS)}")
    try:
        (cell,) = cells.chosen(arguments.cell)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    if cell.kind not in runners.RUNNERS:
        raise SystemExit(f"{cell.name} starts brokers of its own and can't be profiled")
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{cell.name}"
    with target(arguments) as broker:
        if cell.kind == "fetch":
            raw.prepare_reading(broker, cell.partitions)
        result = runners.run(cell, broker, load_of(arguments, arguments.seconds))
        cpu = float(result.get("cpu_us_per_request", 0.0))
        rate = result.get("requests_per_s", 0.0)
        parts = [f"# {cell.title}: {rate:,.0f} requests/s, {cpu:.1f} us CPU each", ""]
        if "stages" in wanted and rate:
            parts += [stage_report(cell, broker, arguments, result, stem)]
        if "counts" in wanted and rate:
            parts += ["## What a request needs of the system", "", count(cell, broker, arguments)]
    text = "\n".join(parts)
    stem.with_suffix(".md").write_text(text)
    print(text)
    print(f"written to {stem}.md, .svg and .folded", file=sys.stderr)


if __name__ == "__main__":
    main()
