"""Spark 4.1 and Iceberg's runtime for it, fetched on first use: Iceberg has none for the Spark 4.2 of other tests."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.replay.fetched import TOOLS, fetched, fetched_jars

POM = Path(__file__).with_name("pom.xml")
SPARK = "4.1"


def spark_folder() -> Path:
    """A directory for PYTHONPATH with PySpark 4.1."""
    name = f"pyspark-{SPARK}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(TOOLS / name)]
    return fetched(name, "PySpark 4.1", [*command, f"pyspark=={SPARK}.*"])


def iceberg_jars() -> list[str]:
    """The paths of the jars, for `spark.jars`."""
    return fetched_jars(f"iceberg-spark-{SPARK}", "Iceberg's runtime", POM, "-DexcludeTransitive=true")
