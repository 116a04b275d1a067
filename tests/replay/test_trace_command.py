"""`kbroker trace` as its user meets it: tables, pictures, Parquet, exit status and messages.

Also of `kbroker.cli.spark.trace`, `kbroker.replay.trace_plot`, `kbroker.replay.trace_statistics`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kbroker.cli.main import run
from kbroker.replay.trace_output import complete_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MAPPING = """
format = "csv"
[time]
column = "t"
unit = "s"
[record]
source = "{who}"
topic = "t"
key = "{who}"
size = "n"
"""


@pytest.fixture
def trace(spark: SparkSession, tmp_path: Path) -> Path:
    """A trace of 100 rows, one a second, of ten sources, with two rows that are none."""
    del spark  # The command uses the session that is there.
    (tmp_path / "mine.toml").write_text(MAPPING)
    lines = [f"{second},{'busy' if second % 2 else second % 20},{100 + second}" for second in range(100)]
    (tmp_path / "trace.csv").write_text("\n".join(["t,who,n", *lines, "soon,x,1", "5,late,x"]) + "\n")
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    return [str(folder / "trace.csv"), "--mapping", str(folder / "mine.toml"), *more]


def test_inspect_measures_a_trace(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The user would plan a replay with wrong rates, sizes or keys."""
    picture, side = trace / "trace.svg", trace / "side"
    options = ("--json", "--plot", str(picture), "--malformed", str(side), "--malformed-format", "json", "--strict")
    assert run(["trace", "inspect", *arguments(trace, *options)]) == 3
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert (found["rows"], found["bytes"], found["seconds"]) == (100, sum(range(100, 200)), 99)
    assert found["malformed"] == {"bad size": 1, "bad time": 1}
    assert found["keys"]["distinct"] == 11
    assert found["keys"]["top"][0] == {"key": "busy", "rows": 50, "share": 0.5}
    assert found["keys"]["top_1_percent"] == {"keys": 1, "share": 0.5}
    assert found["bursts"]["gap_variation"] == 0
    second = next(one for one in found["bursts"]["windows"] if one["window_ms"] == 1000)
    assert second["dispersion"] == 0 and second["peak"] == 1
    assert sum(found["rate"]["rows"]) == 100
    assert found["order"]["rows_back_in_time"] == 0
    assert "2 rows are malformed: bad size 1, bad time 1" in err
    kept = [json.loads(line) for file in side.glob("*.json") for line in file.read_text().splitlines()]
    assert sorted((row["reason"], row["raw"]) for row in kept) == [("bad size", "5,late,x"), ("bad time", "soon,x,1")]
    assert "Rate over time" in picture.read_text() or picture.stat().st_size > 10_000


def test_convert_writes_a_whole_trace_or_none(
    trace: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """A trace of half its rows would be taken for all of it."""
    output = trace / "out"
    convert = ["trace", "convert", *arguments(trace, "-o", str(output), "--speed", "2", "--loops", "2")]
    assert run(convert) == 0
    assert spark.read.parquet(str(output)).count() == 200
    assert spark.read.parquet(f"{output}.malformed").count() == 2
    assert run(convert) == 1
    assert "is there already" in capfd.readouterr().err
    (trace / "trace.csv").write_text("t,who,n\n2,a,1\n1,a,1\n")
    again = trace / "again"
    assert run(["trace", "convert", *arguments(trace, "-o", str(again), "--order", "refuse")]) == 1
    assert "time goes back in source a" in capfd.readouterr().err
    assert [path.name for path in trace.iterdir() if "again" in path.name] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t,who,n\n", "the trace has no rows"),
        ("", "is empty: there is no header"),
        ("t,who,n\nx,a,1\n", "no row could be read: bad time 1; times were tried as s"),
        ("t,name,n\n1,a,1\n", "record.source: there is no column 'who'; the columns are: t, name, n"),
    ],
)
def test_a_trace_without_rows_is_a_failure(
    trace: Path, capfd: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """An empty output would look like a trace without traffic."""
    (trace / "trace.csv").write_text(text)
    assert run(["trace", "convert", *arguments(trace, "-o", str(trace / "out"))]) == 1
    assert words in capfd.readouterr().err
    assert not (trace / "out").exists()


def test_a_file_that_is_not_there(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A typing error would end in pages of Java."""
    assert run(["trace", "inspect", str(trace / "no.csv"), "--mapping", str(trace / "mine.toml")]) == 1
    assert capfd.readouterr().err == f"kbroker: {trace}/no.csv: there is no such file or directory\n"
    (trace / "trace.csv.gz").write_bytes(b"\x1f\x8b\x08 no gzip")
    assert run(["trace", "inspect", str(trace / "trace.csv.gz"), "--mapping", str(trace / "mine.toml")]) == 1
    assert "trace.csv.gz cannot be read" in capfd.readouterr().err
    assert run(["trace", "inspect", *arguments(trace, "--plot", "x.doc")]) == 2


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """A new attempt that fails would cost the result of the one before."""
    output = tmp_path / "out"
    with complete_directory(str(output)) as directory:
        Path(directory.removeprefix("file://")).mkdir()
        assert not output.exists()
    with pytest.raises(KeyboardInterrupt), complete_directory(str(output), overwrite=True) as directory:
        Path(directory.removeprefix("file://")).mkdir()
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_help_needs_no_spark() -> None:
    """A broker's command line would need 450 MB of packages, and seconds to say how it is used."""
    code = (
        "import sys, kbroker.cli.main as m; m.run(['trace', 'convert', '--help']); sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
