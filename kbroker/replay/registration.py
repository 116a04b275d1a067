"""Makes the project's data sources known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Registers `format("kbroker")` and `format("kbroker-log")` with this session; a second call changes nothing."""
    from kbroker.replay.sources.datasources import SOURCES

    for source in SOURCES:
        spark.dataSource.register(source)
