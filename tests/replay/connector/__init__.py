"""Spark's own Kafka connector, fetched by Maven on first use: never copied into the repository, never shipped."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from tests.replay.fetched import fetched_jars

POM = Path(__file__).with_name("pom.xml")
# What Spark has not got already; its other dependencies are in Spark's own jars.
ARTIFACTS = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"


def connector_version() -> str:
    """The connector is a part of Spark: the first one of the release that is installed."""
    major, minor, *_ = metadata.version("pyspark").split(".")
    return f"{major}.{minor}.0"


def connector_jars() -> list[str]:
    """The paths of the connector's jars, for `spark.jars`; skips (in CI: fails) the test when they cannot be had."""
    version = connector_version()
    options = [f"-Dspark.version={version}", "-DincludeScope=runtime", f"-DincludeArtifactIds={ARTIFACTS}"]
    return fetched_jars(f"spark-sql-kafka-0-10_2.13-{version}", "Spark's Kafka connector", POM, *options)
