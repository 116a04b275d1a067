"""Counted costs: what counts, what does not, and that a cost which grows fails the comparison.

Of `bench.counting`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.counting.__main__ import KEPT
from bench.counting.collector import instructions, system_calls
from bench.counting.compare import TOLERANCES, changes
from bench.counting.counting_runs import ROOT, still_environment
from bench.counting.memory import MEMORY
from bench.counting.starts import STARTS
from bench.counting.table import REQUESTS

INSIDE = (sys.executable, "-m", "bench.counting.inside")


def _allocations(*cells: str) -> dict[str, int]:
    done = subprocess.run(
        [*INSIDE, "allocations", *cells], cwd=ROOT, env=dict(still_environment()), capture_output=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_each_cell_is_kept() -> None:
    """A request whose cost is not kept could grow without a word."""
    kept = json.loads(KEPT.read_text())
    assert list(kept["requests"]) == [each.name for each in REQUESTS]
    assert list(kept["starts"]) == [f"start {each.name}" for each in STARTS]
    assert list(kept["memory"]) == list(MEMORY)
    rows = [row for part in ("requests", "starts", "idle", "memory") for row in kept[part].values()]
    assert {counted for row in rows for counted in row} == set(TOLERANCES)


@pytest.mark.parametrize("kind", ["plain", "secured", "kraft"])
def test_the_cells_are_served_and_cost_the_same_each_time(kind: str) -> None:
    """A cell whose requests fail, or whose cost is up to chance, guards nothing."""
    cells = [each for each in REQUESTS if each.kind == kind and not each.name.endswith("1m")]
    names = [each.name for each in cells][:6]
    found, again = _allocations(*names), _allocations(*names)
    assert found == again
    for name in names:
        assert found[f"{name}:twice"] > found[f"{name}:once"] > 0


def test_what_grows_beyond_its_tolerance_is_found() -> None:
    """A slower request would pass."""
    kept = {"a": {"instructions": 10_000.0, "allocations": 20.0}, "b": {"instructions": 500.0}}
    assert not list(changes(kept, {"a": {"instructions": 10_199.0, "allocations": 20.5}, "b": {"instructions": 490.0}}))
    (grown,) = changes(kept, {"a": {"instructions": 10_201.0, "allocations": 20.0}})
    assert grown.has_grown and str(grown) == "a: 10,201 instructions, 10,000 are kept (+2.0%)"
    (shrunk,) = changes(kept, {"b": {"instructions": 400.0}})
    assert not shrunk.has_grown
    (new,) = changes(kept, {"c": {"modules": 1.0}})
    assert new.has_grown


def test_calls_count_between_the_marks_alone(tmp_path: Path) -> None:
    """The client's calls would be the broker's."""
    mark = 'access("/#kbroker-counts/{}", F_OK) = -1 ENOENT'
    lines = ["7 write(1, 2)", "7 " + mark.format("on"), "7 pwrite64(3)", "8 fstat(4)", "7 " + mark.format("off"),
             "7 read(5)", "7 " + mark.format("part:one:once"), "7 " + mark.format("on"), "7 pwrite64(3)",
             "7 " + mark.format("part:one:twice")]  # fmt: skip
    trace = tmp_path / "trace"
    trace.write_text("\n".join(lines))
    assert system_calls(trace) == {"one:once": 2, "one:twice": 1}


def test_parts_that_callgrind_wrote_are_read_by_their_names(tmp_path: Path) -> None:
    """What was counted before a part would be its cost."""
    for number, (trigger, total) in enumerate((("Client Request: one:once", 5), ("Program termination", 9))):
        (tmp_path / f"callgrind.out.{number}").write_text(
            f"desc: Trigger: {trigger}\nsummary: {total}\ntotals: {total}\n"
        )
    assert instructions(tmp_path) == {"one:once": 5}
