"""The module path of Spark's workers, without Spark's own jar."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from kbroker.replay.sources.workers import FromSpark, forget_spark_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SPARK_JAR = "spark-core_2.13-4.0.1.jar"


def test_only_sparks_own_archives_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that come in a jar or zip of the user's could not be imported any more in his jobs."""
    names = (SPARK_JAR, "graphs.jar", "pyspark.zip", "py4j-0.10.9.9-src.zip", "mypyspark.zip")
    archives = [str(tmp_path / name) for name in names]
    for archive in archives:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("only_here/__init__.py", "PLACE = __file__")
            file.writestr("only_here/later.py", "PLACE = __file__")
    monkeypatch.setattr(sys, "path", [*archives[1:], *sys.path, archives[0]])
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    for name in ("only_here", "only_here.later", "only_anywhere"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError):
        importlib.import_module("only_anywhere")
    assert importlib.import_module("only_here").PLACE.startswith(archives[1])
    sys.path.remove(archives[1])
    del sys.modules["only_here"]
    assert importlib.import_module("only_here").PLACE.startswith(archives[2])
    forget_spark_archives()
    assert archives[0] not in sys.path
    assert archives[2] in sys.path
    known = [entry for entry in sys.path_importer_cache if entry.startswith(str(tmp_path))]
    assert sorted(known) == sorted([archives[1], archives[4]])
    assert importlib.import_module("only_here.later").PLACE.startswith(archives[2])


class _Handed(FromSpark):
    """Something of ours that Spark takes to a worker."""

    def __init__(self) -> None:
        self.what = "a reader"

    def known(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = [*sys.path_importer_cache, *(entry for entry in sys.path if entry.endswith(".jar"))]
        for batch in batches:
            yield pa.record_batch([pa.array([name for name in known for _ in range(batch.num_rows)])], names=["entry"])


def test_a_worker_that_is_handed_something_of_ours_knows_no_archive_of_sparks(spark: SparkSession) -> None:
    """Each task would begin with some 80 ms in which the worker reads lists of files in archives that never change."""
    handed = _Handed()

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return handed.known(batches)

    rows = spark.range(2, numPartitions=2).mapInArrow(look, "entry string").collect()
    names = ("pyspark.zip", "spark-core_", "-src.zip")
    assert rows
    assert not [row["entry"] for row in rows if any(name in row["entry"] for name in names)]
