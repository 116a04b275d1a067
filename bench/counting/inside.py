"""The counted process: serves the requests of the table's cells.

python -m bench.counting.inside instructions [CELL ...]
python -m bench.counting.inside allocations [CELL ...]      # writes its counts as JSON
python -m bench.counting.inside calls [CELL ...]            # under strace
python -m bench.counting.inside nothing [CELL ...]
"""

from __future__ import annotations

import gc
import json
import os
import sys

from bench.counting import secured_cells
from bench.counting.collector import Allocations, Collector, Instructions, SystemCalls
from bench.counting.counted import Counted
from bench.counting.kraft import Quorum
from bench.counting.machine import Machine, machine
from bench.counting.table import KRAFT, NODES, REQUESTS, SECURED, RequestCell


def _collector(what: str) -> Collector:
    if what == "instructions":
        return Instructions()
    if what == "allocations":
        return Allocations()
    return SystemCalls() if what == "calls" else Collector()


def _start(made: Machine, kind: str) -> None:
    if kind == KRAFT:
        quorum = Quorum(made)
        for node in NODES[kind]:
            quorum.start(node)
    else:
        (node,) = NODES[kind]
        made.start(node, secured_cells.settings(node) if kind == SECURED else {})


def _serve(made: Machine, cell: RequestCell) -> None:
    serve = cell.prepare(Counted(made, NODES[cell.kind][0]))
    collector = made.collector
    for count, part in ((cell.requests, ""), (cell.requests, ":once"), (2 * cell.requests, ":twice")):
        gc.collect()
        collector.part("before")
        for _ in range(count):
            serve()
        if part:
            collector.part(cell.name + part)


def main(what: str, *names: str) -> None:
    """Serve the cells of these names, or all."""
    collector = _collector(what)
    cells = [each for each in REQUESTS if not names or each.name in names]
    with machine(collector) as made:
        for kind in {each.kind: None for each in cells}:
            _start(made, kind)
        for cell in cells:
            _serve(made, cell)
    if isinstance(collector, Allocations):
        print(json.dumps(collector.counts))
    sys.stdout.flush()
    os._exit(0)  # Its brokers have not stopped.


if __name__ == "__main__":
    main(*sys.argv[1:])
