"""Makes the project's data sources known to a Spark session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Registers `format("kbroker")` and `format("kbroker-log")` with this session; a second call changes nothing.

    With a `local` master and without PYSPARK_PYTHON, Spark's workers are set to run this very interpreter, as
    `kbroker-spark-python` where that is installed: Spark's own choice is the `python3` of the PATH, which need not have
    the package.
    """
    from kbroker.replay.sources.datasources import SOURCES
    from kbroker.replay.spark_python import workers_python

    # A session of Spark Connect has no context: its server decides.
    context = getattr(spark, "_sc", None)
    if context is not None and context.master.startswith("local") and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = workers_python()
    for source in SOURCES:
        spark.dataSource.register(source)
