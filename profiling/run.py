"""Profiles the broker under one bench cell: a flame graph and a table of hot symbols.

    python profiling/run.py one-50
    python profiling/run.py batch-16 --seconds 8 --tool py-spy
    python profiling/run.py fetch-1m-1 --against 127.0.0.1:9092 --pid 4711

perf sees C, Cython and the kernel; it needs extensions with symbols and frame pointers
(`KBROKER_BUILD=profile python setup.py build_ext --inplace`, which also tells perf where inlined code came from).
py-spy sees Python and, with --native, C.  Files go to profiling/results/: stacks (folded), flame graph (SVG), table.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import brokers, cells, raw, runners  # noqa: E402
from bench.brokers import Broker  # noqa: E402
from bench.cell import Cell, Load, Result  # noqa: E402
from profiling import flame_graph, stacks  # noqa: E402
from profiling.stacks import Stacks  # noqa: E402

#: Let the load generator connect and the broker warm before sampling begins.
LEAD_SECONDS = 1.5


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", help=f"one of {', '.join(cell.name for cell in cells.CELLS)}")
    parser.add_argument("--seconds", type=float, default=5.0, help="time to sample")
    parser.add_argument("--tool", choices=("perf", "py-spy"), help="perf if it is there, else py-spy")
    parser.add_argument("--frequency", type=int, default=997, help="samples per second")
    parser.add_argument("--call-graph", choices=("fp", "dwarf"), default="fp", help="how perf unwinds")
    parser.add_argument("--against", metavar="HOST:PORT", help="a broker that runs already")
    parser.add_argument("--pid", type=int, default=0, help="its process")
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "profiling" / "results")
    return parser.parse_args()


def choose_tool(wanted: str | None) -> str:
    """The sampler to use; says how to get one when there is none."""
    for tool in (wanted,) if wanted else ("perf", "py-spy"):
        if shutil.which(tool) or pathlib.Path(sys.executable).with_name(tool).exists():
            return tool
    raise SystemExit("no sampler: install perf (apt-get install linux-perf) or py-spy (pip install py-spy)")


def sample_with_perf(pid: int, arguments: argparse.Namespace, folder: str) -> Stacks:
    data = f"{folder}/perf.data"
    record = ["perf", "record", "-q", "-F", str(arguments.frequency), "--call-graph", arguments.call_graph]
    record += ["-p", str(pid), "-o", data, "--", "sleep", str(arguments.seconds)]
    subprocess.run(record, check=True)
    script = ["perf", "script", "-i", data, "-F", "comm,ip,sym,dso"]
    text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    return stacks.from_perf_script(text.splitlines())


def sample_with_py_spy(pid: int, arguments: argparse.Namespace, folder: str) -> Stacks:
    local = pathlib.Path(sys.executable).with_name("py-spy")
    program = str(local) if local.exists() else "py-spy"
    folded = f"{folder}/folded"
    argv = [program, "record", "--pid", str(pid), "--format", "raw", "--output", folded, "--native"]
    argv += ["--rate", str(min(arguments.frequency, 500)), "--duration", str(max(1, round(arguments.seconds)))]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return stacks.from_folded(pathlib.Path(folded).read_text().splitlines())


def profile(cell: Cell, broker: Broker, arguments: argparse.Namespace, tool: str) -> tuple[Stacks, Result]:
    """Load from one thread, samples from another process."""
    results: list[Result] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            load = Load(arguments.seconds + 2 * LEAD_SECONDS, congestion=arguments.congestion)
            results.append(runners.run(cell, broker, load))
        except BaseException as error:
            faults.append(error)

    if cell.kind == "fetch":
        raw.prepare_reading(broker)
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(LEAD_SECONDS)
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        sampler = sample_with_perf if tool == "perf" else sample_with_py_spy
        found = sampler(broker.pid, arguments, folder)
    thread.join()
    if faults:
        raise SystemExit(f"the load failed: {faults[0]}")
    return found, results[0]


def main() -> None:
    arguments = parse_arguments()
    tool = choose_tool(arguments.tool)
    try:
        (cell,) = cells.chosen(arguments.cell)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    if arguments.against:
        host, _, port = arguments.against.rpartition(":")
        broker = Broker("against", host, int(port), arguments.pid)
    else:
        broker = brokers.start("kbroker", arguments.congestion)
    try:
        found, result = profile(cell, broker, arguments, tool)
    finally:
        broker.stop()
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{cell.name}"
    cpu = float(result.get("cpu_us_per_request", 0.0))
    title = f"{cell.title}: {result['requests_per_s']:,.0f} requests/s, {cpu:.1f} us CPU each ({tool})"
    folded = "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(found.items()))
    stem.with_suffix(".folded").write_text(folded)
    stem.with_suffix(".svg").write_text(flame_graph.render(found, title))
    text = f"# {title}\n\n{stacks.table(found, cpu_us_per_request=cpu)}"
    stem.with_suffix(".md").write_text(text)
    print(text)
    print(f"written to {stem}.svg, .md and .folded", file=sys.stderr)


if __name__ == "__main__":
    main()
