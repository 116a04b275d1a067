"""The list of the project's Spark data sources."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

SOURCES: tuple[type[DataSource], ...] = ()
