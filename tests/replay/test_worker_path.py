"""The module path of Spark's workers, without Spark's own jar."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from kbroker.replay.sources.worker_path import leave_out_spark_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SPARK_JAR = "spark-core_2.13-4.0.1.jar"


def test_only_sparks_own_jar_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that come in a jar or zip of the user's could not be imported any more in his jobs."""
    archives = [str(tmp_path / name) for name in (SPARK_JAR, "graphs.jar", "pyspark.zip")]
    for archive in archives:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("only_in_this_test.py", "PLACE = __file__")
    monkeypatch.setattr(sys, "path", [*archives, *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    monkeypatch.delitem(sys.modules, "only_in_this_test", raising=False)
    leave_out_spark_jar()
    assert sys.path[:2] == archives[1:]
    assert archives[0] not in sys.path_importer_cache
    module = __import__("only_in_this_test")
    monkeypatch.delitem(sys.modules, "only_in_this_test")
    assert module.PLACE.startswith(archives[1])


def _jars(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import kbroker.replay.sources

    assert kbroker.replay.sources.__doc__
    known = [*sys.path, *sys.path_importer_cache]
    for batch in batches:
        found = [entry for entry in known if entry.endswith(".jar")] or [""]
        yield pa.record_batch([pa.array(found * batch.num_rows)], names=["jar"])


def test_a_worker_that_has_met_our_sources_knows_no_jar(spark: SparkSession) -> None:
    """Each task would begin with some 50 ms in which the worker reads the index of a jar without modules."""
    found = {row["jar"] for row in spark.range(2, numPartitions=2).mapInArrow(_jars, "jar string").collect()}
    assert not [jar for jar in found if Path(jar).name.startswith("spark-core")]
