"""`kbroker-spark-python`, which Spark runs in the place of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyspark

from kbroker.replay.spark_python import COMMAND, _has_pyspark_of, workers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ASKS = "import sys; print(sys.argv, sys.executable, sys.path[:1], sys.flags.optimize); sys.exit(len(sys.argv) + 3)"


def test_the_command_is_installed_for_this_interpreter() -> None:
    """Every daemon of Spark's would compile PySpark anew, as if there were no such command."""
    assert workers_python() == str(Path(sysconfig.get_path("scripts")) / COMMAND)


@pytest.mark.parametrize("words", [["-c", ASKS, "a", "b"], ["-O", "-c", ASKS], ["-m", "no.such.module"]])
def test_whatever_is_not_a_daemon_runs_as_with_the_interpreter(words: list[str], tmp_path: Path) -> None:
    """Spark asks it for its version first, and spark-submit runs the driver with it: a job could not even begin."""
    runs = [
        subprocess.run([python, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        for python in (workers_python(), sys.executable)
    ]
    assert runs[0].returncode == runs[1].returncode != 0
    assert (runs[0].stdout, runs[0].stderr) == (runs[1].stdout, runs[1].stderr)


def _in_a_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parents = Path(f"/proc/{os.getppid()}/maps").read_text()
    found = [pyspark.__file__, str("libarrow" in parents), str(sys.path[0] == str(Path.cwd()))]
    for batch in batches:
        if batch.num_rows:
            yield pa.record_batch([pa.array([text]) for text in found], names=["pyspark", "early", "beside"])


def test_workers_have_compiled_pyspark_and_their_imports_before_they_are_forked(spark: SparkSession) -> None:
    """Four daemons, one after the other, would keep the first rows of every new session waiting for seconds."""
    rows = spark.range(1).mapInArrow(_in_a_worker, "pyspark string, early string, beside string").collect()
    assert [row["pyspark"] for row in rows] == [pyspark.__file__]
    assert [row["early"] for row in rows] == ["True"]
    # As `python -m` has it: functions of modules that lie where the job was started.
    assert [row["beside"] for row in rows] == ["True"]


def test_a_daemon_takes_its_own_modules_from_nowhere_beside_the_driver(tmp_path: Path) -> None:
    """A file with the name of a module, where a job is started, would run in the place of that module."""
    for name in ("json", "pyspark", "pyarrow", "kbroker"):
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'a').write('{name} ')")
    kind = "pyspark.sql.worker.plan_data_source_read"
    command = [workers_python(), "-m", "pyspark.daemon", kind]
    # Its standard input is at its end: it has no Spark to listen to, and ends.
    subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert not (tmp_path / "ran").exists()


def _archive(folder: Path, version: bytes) -> str:
    folder.mkdir()
    archive = folder / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("pyspark/__init__.py", "")
        file.writestr("pyspark/version.py", version)
    return str(archive)


def test_an_archive_of_another_version_is_left_in_its_place(tmp_path: Path) -> None:
    """A cluster's executors would speak with a PySpark that is not theirs, and fail in ways that nobody understands."""
    site = str(Path(pyspark.__file__).parent.parent)
    same = Path(pyspark.__file__).with_name("version.py").read_bytes()
    assert _has_pyspark_of([_archive(tmp_path / "same", same), site], [site])
    assert not _has_pyspark_of([_archive(tmp_path / "other", same + b"# of another build\n"), site], [site])
    assert not _has_pyspark_of([str(tmp_path / "same" / "pyspark.zip"), site], [str(tmp_path)])
    assert not _has_pyspark_of([site], [site])
    (tmp_path / "pyspark.zip").write_bytes(b"not an archive")
    assert not _has_pyspark_of([str(tmp_path / "pyspark.zip"), site], [site])


def test_a_command_of_another_interpreter_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers would run another version of Python than the driver, which Spark refuses."""
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert workers_python() == sys.executable
    command = tmp_path / COMMAND
    for first in ("#!/usr/bin/env python3", "#!/no/such/python", f"#!{tmp_path}/python", "", "#!/bin/sh"):
        command.write_text(f"{first}\n")
        command.chmod(0o755)
        assert workers_python() == sys.executable
    command.write_text(f"#!{sys.executable}\n")
    assert workers_python() == str(command)
    command.chmod(0o644)
    assert workers_python() == sys.executable
