"""The benchmark's own logic: what it reports of results that are known, and what it keeps of a run that is stopped."""

from __future__ import annotations

import copy
import gzip
import inspect
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest

from tests.compat.waiting import wait_for

pytest.importorskip("tqdm", reason="needs the extra `bench`")
pytest.importorskip("matplotlib", reason="needs the extra `bench`")
pytest.importorskip("jinja2", reason="needs the extra `bench`")
cells = pytest.importorskip("bench.cells", reason="the benchmark is not part of this tree")
compare = pytest.importorskip("bench.compare")
frames = pytest.importorskip("bench.frames")
hot_memory = pytest.importorskip("bench.hot_memory")
java_clients = pytest.importorskip("bench.java_clients")
limits = pytest.importorskip("bench.limits")
page = pytest.importorskip("bench.page")
progress = pytest.importorskip("bench.progress")
report = pytest.importorskip("bench.report")
runners = pytest.importorskip("bench.runners")
operations = pytest.importorskip("bench.operations")
side_by_side = pytest.importorskip("bench.side_by_side")
verdict = pytest.importorskip("bench.verdict")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STORED = pathlib.Path(__file__).with_name("stored.json")


@pytest.fixture
def document() -> dict[str, Any]:
    """A result as a run left it."""
    loaded: dict[str, Any] = compare.load(STORED)
    return loaded


@pytest.fixture(scope="module")
def stopped() -> dict[str, Any]:
    """The same, of a run that was stopped, and kbroker half as fast as Kafka in one cell."""
    loaded: dict[str, Any] = compare.load(STORED)
    cell = loaded["medians"]["one-1"]
    cell["kbroker"]["requests_per_s"] = cell["kafka"]["requests_per_s"] / 2
    return loaded | {"stopped": "stopped by hand"}


@pytest.fixture(scope="module")
def shown(stopped: dict[str, Any]) -> str:
    """Its page, made once: plots take their time."""
    rendered: str = page.render(stopped)
    return rendered


def test_a_cell_that_is_behind_is_shown_behind(stopped: dict[str, Any], shown: str) -> None:
    """A reader would believe that kbroker is ahead where it is not."""
    text = report.table(stopped)
    assert re.search(r"behind: one record, 1 connection: requests/s", text)
    assert "**behind** 0.50x" in text
    assert 'class="behind">behind 0.50x</td>' in shown


def test_figures_that_are_about_equal_are_neither(document: dict[str, Any]) -> None:
    """Noise would be sold as progress."""
    (one, *_) = verdict.compare("produce", {"requests_per_s": 102.0}, {"requests_per_s": 100.0})
    assert one.word == "equal"
    (one, *_) = verdict.compare("e2e", {"p50_us": 120.0}, {"p50_us": 100.0})
    assert one.word == "behind"


def test_the_page_needs_nothing_beside_it(stopped: dict[str, Any], shown: str) -> None:
    """A report that is sent to somebody would lose its plots."""
    assert shown.count("<svg") >= 6
    assert not re.search(r"<(script|link|img)\b|src=|@import", shown)
    for name in stopped["medians"]:
        assert stopped["cells"][name]["title"] in shown


def test_what_is_not_served_says_so(document: dict[str, Any], shown: str) -> None:
    """A cell that kbroker can't run would look as if it had been forgotten."""
    assert document["not_served"]["java-100-transactions"]["kbroker"] == "transactions are not served yet"
    assert "transactions are not served yet" in report.table(document)
    assert "transactions are not served yet" in shown


def test_a_stopped_run_is_not_shown_as_complete(document: dict[str, Any], stopped: dict[str, Any], shown: str) -> None:
    """Half a run would pass for a whole one."""
    assert "Not complete" not in report.table(document)
    assert "Not complete: stopped by hand" in report.table(stopped)
    assert "stopped by hand" in shown


def test_comparing_two_results_tells_better_from_worse(document: dict[str, Any]) -> None:
    """A regression between two runs would go unseen."""
    later = copy.deepcopy(document)
    for result in (later["medians"]["batch-16"]["kbroker"], *later["rounds"]["batch-16"]["kbroker"]):
        result["requests_per_s"] /= 10
        result["cpu_us_per_request"] /= 10
    later["settings"]["num.partitions"] = "2"
    text = compare.table(document, later)
    rows = [line for line in text.splitlines() if line.startswith("| 150 x 100 B, 16 connections, acks 1 | kbroker")]
    assert any("requests/s" in row and "**worse**, 0.10x" in row for row in rows)
    assert any("CPU µs/request" in row and "10.00x better" in row for row in rows)
    assert "settings, num.partitions: 1 before, 2 after" in text
    assert "0 measures better, 0 worse" in compare.table(document, document)


def test_differences_within_the_rounds_are_not_called_better(document: dict[str, Any]) -> None:
    """A lucky median would count as an improvement."""
    (one, *_) = verdict.compare("produce", {"requests_per_s": 120.0}, {"requests_per_s": 100.0})
    assert compare.judge(one, (90.0, 125.0), (110.0, 130.0)) == ""
    assert compare.judge(one, (90.0, 105.0), (110.0, 130.0)) == "better"


def test_a_file_that_holds_no_results_is_refused(tmp_path: pathlib.Path) -> None:
    """A wrong path would end in a stack trace."""
    with pytest.raises(ValueError, match="can't be read"):
        compare.load(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="no results of this benchmark"):
        compare.load(tmp_path)


def test_a_result_is_read_and_reported_compressed_as_well(tmp_path: pathlib.Path, document: dict[str, Any]) -> None:
    """The results that the tree keeps are compressed: neither a comparison nor a report could be made of them."""
    (tmp_path / "results.json.gz").write_bytes(gzip.compress(STORED.read_bytes()))
    assert compare.load(tmp_path) == compare.load(tmp_path / "results.json.gz") == document
    argv = [sys.executable, "bench/side_by_side.py", "--report", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.md", "results.json.gz"]
    (tmp_path / "results.json.gz").write_bytes(gzip.compress(STORED.read_bytes())[:100])
    with pytest.raises(ValueError, match="can't be read"):
        compare.load(tmp_path)


def test_a_run_has_five_rounds_unless_told_otherwise() -> None:
    """Medians of fewer rounds say little of cells that vary by a fifth."""
    assert side_by_side.parse_arguments([]).rounds == 5


def test_every_cell_can_be_run_and_judged() -> None:
    """A cell in the table would fail after half an hour, or be missing from the report."""
    names = [cell.name for cell in cells.CELLS]
    assert len(names) == len(set(names))
    for cell in cells.CELLS:
        assert cell.kind in runners.RUNNERS.keys() ^ operations.OPERATIONS.keys(), cell.name
        assert cell.kind in verdict.MEASURES, cell.name
        assert verdict.group_of({"kind": cell.kind, "sweep": cell.sweep}) != "Others", cell.name
    for axis, numbers in (("partitions", (1, 10, 100, 1_000, 10_000)), ("connections", (10, 100, 1_000, 10_000))):
        assert [getattr(cell, axis) for cell in cells.CELLS if axis in cell.sweep] == list(numbers)


def test_unknown_cells_are_named() -> None:
    """A typing error would run nothing, or everything."""
    with pytest.raises(ValueError, match="no cell 'on-1'"):
        cells.chosen("on-1")
    assert [cell.name for cell in cells.chosen("one-*,one-1")] == ["one-1", "one-50"]


def test_the_client_is_named_when_it_was_the_limit() -> None:
    """A slow client's figure would be taken for the broker's."""
    busy = {"seconds": 2.0, "client_cpu_s": 1.95, "broker_cpu_s": 0.5}
    assert limits.client_note(busy) == limits.CLIENT_WAS_LIMIT
    assert limits.client_note(busy | {"client_cpu_s": 0.2}) == ""
    assert limits.client_note(busy, threads=2).startswith(limits.CLIENT_WAS_LIMIT)


def test_the_disk_is_named_when_it_was_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk's speed would be taken for the broker's."""

    class Writer:
        pid = 1

        def __init__(self, amount: int) -> None:
            self.amounts = iter([0, amount])

        def written_bytes(self) -> int:
            return next(self.amounts)

    def note(amount: int) -> str:
        watch = limits.DiskWatch(Writer(amount))
        with watch.during(nullcontext()):
            pass
        return str(watch.note())

    monkeypatch.setattr(limits, "dirty_limit_bytes", lambda: 2 << 30)
    assert note(3 << 30).startswith(limits.DISK_WAS_LIMIT)
    assert note(1 << 27) == ""


def test_what_a_run_takes_was_in_use_until_then() -> None:
    """One broker would pay for memory that the machine gave back to its host, the other not."""

    def resident(pid: int) -> int:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    kept = 4 * hot_memory.CHUNK_BYTES
    with hot_memory.HotMemory(kept / (1 << 30)) as memory:
        pid = memory._keeper.pid
        with memory.lent():
            assert resident(pid) < hot_memory.CHUNK_BYTES
        assert resident(pid) > kept // 2
        with memory.lent(generous=True):
            assert resident(pid) < hot_memory.CHUNK_BYTES
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(OSError, match="keeps memory"), memory.lent():
            pass
    assert not pathlib.Path(f"/proc/{pid}").exists()
    with hot_memory.HotMemory(0) as none, none.lent():
        assert none._keeper is None


def test_cells_that_take_memory_in_large_pieces_are_lent_them() -> None:
    """What lies in large pieces would come from the host, at several times the CPU, for one side or the other."""

    class Asked:
        def lent(self, *, generous: bool = False) -> nullcontext[bool]:
            return nullcontext(generous)

    def lent(name: str) -> bool | None:
        (cell,) = cells.chosen(name)
        with runners.memory_for(cell, Asked()) as generous:
            return generous

    assert [name for name in ("batch-1m", "batch-1m-1k", "lz4-1m", "fetch-1m-16-cold") if not lent(name)] == []
    assert (lent("batch-16"), lent("one-50"), lent("fetch-1m-16")) == (False, None, None)


def test_what_the_java_tools_print_is_read() -> None:
    """Their rates would be wrong or missing."""
    line = "800000 records sent, 289017.3 records/sec (27.56 MB/sec), 8.50 ms avg latency, 636.00 ms max latency, "
    read = java_clients.parse_produced(line + "4 ms 50th, 40 ms 95th, 73 ms 99th, 101 ms 99.9th.\n")
    assert (read["records"], read["p50_us"], read["p99_us"], read["max_us"]) == (800000, 4000.0, 73000.0, 636000.0)
    assert read["records"] / read["seconds"] == pytest.approx(289017.3, rel=1e-4)
    row = (
        "2026-01-01 10:00:00:000, 2026-01-01 10:00:02:000, 143.05, 71.5, 1500300, 750150.0, 317, 743, 192.5, 2019246.3"
    )
    read = java_clients.parse_consumed(row + "\n")
    assert (read["records"], read["seconds"], read["first_record_s"]) == (1500300, 0.743, 0.317)
    with pytest.raises(java_clients.CellError):
        java_clients.parse_produced("java.lang.OutOfMemoryError")


def test_the_time_left_follows_what_steps_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar would promise a minute for an hour."""
    clock = iter([0.0, 0.0, 30.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress.sys, "stderr", io.StringIO())
    with progress.Progress([("a", 1.0), ("a", 1.0), ("b", 5.0)]) as bar:
        assert bar.seconds_left() == 7.0
        bar.begin("a")
        bar.finish("a")
        assert bar.seconds_left() == 35.0


def test_stopping_a_run_keeps_what_was_measured(tmp_path: pathlib.Path) -> None:
    """Ctrl-C after half an hour would throw everything away, or leave brokers behind."""
    argv = [sys.executable, "bench/side_by_side.py", "--only", "kbroker", "--cells", "api-versions", "--rounds", "500"]
    argv += ["--seconds", "0.2", "--warm-seconds", "0.2", "--touch-gb", "0"]
    argv += ["--results", str(tmp_path), "--data", str(tmp_path)]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_for(lambda: b"round 2" in (tmp_path / "output").read_bytes(), "a second round")
        broker = wait_for(lambda: next(tmp_path.glob("bench-kbroker-*"), None), "a broker's directory")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(150) == 0
    finally:
        if process.poll() is None:
            process.kill()
    (results,) = tmp_path.glob("20*/results.json")
    document = json.loads(results.read_text())
    assert len(document["rounds"]["api-versions"]["kbroker"]) >= 2
    assert document["stopped"].startswith("stopped by hand")
    assert "Not complete" in results.with_name("report.md").read_text()
    assert "Not complete" in results.with_name("report.html").read_text()
    assert not broker.exists()


def test_bars_begin_at_zero_also_where_cells_are_far_apart() -> None:
    """On a logarithmic axis a bar of half the length says anything."""
    plots = pytest.importorskip("bench.plots")
    assert plots.own_scales([[10.0, 20.0], [100.0, 250.0]]) == [1.0, 1.0]
    assert plots.own_scales([[1.0, 2.0], [100.0, 50.0], []]) == [2.0, 100.0, 1.0]
    assert "set_xscale" not in inspect.getsource(plots.bars)


def test_the_commands_of_the_page_about_performance_are_taken() -> None:
    """A word that the benchmark does not know, or a goal that is gone, would end the reader's attempt."""
    text = (ROOT / "docs" / "performance.md").read_text()
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    commands = [line.partition(" #")[0].strip() for line in blocks.splitlines()]
    assert len(commands) > 10
    goals = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in map(shlex.split, commands):
        if words[0] == "make":
            assert words[1] in goals
            given = [word.removeprefix("BENCH=") for word in words if word.startswith("BENCH=")]
            side_by_side.parse_arguments([word for each in given for word in shlex.split(each)])
        else:
            assert words[:2] == ["python", "-m"] and (ROOT / f"{words[2].replace('.', '/')}.py").exists()
            options = [word for word in words[3:] if word.startswith("--")]
            source = (ROOT / f"{words[2].replace('.', '/')}.py").read_text()
            assert all(f'"{option}"' in source for option in options)
