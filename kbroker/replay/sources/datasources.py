"""The list of the project's Spark data sources."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from kbroker.replay.sources.kbroker_source import KbrokerSource
from kbroker.replay.sources.log_reader import KbrokerLogSource

SOURCES: tuple[type[DataSource], ...] = (KbrokerSource, KbrokerLogSource)
