"""The list of the project's Spark data sources."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from kbroker.replay.sources.kbroker_source import KbrokerSource

SOURCES: tuple[type[DataSource], ...] = (KbrokerSource,)
