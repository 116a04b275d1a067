"""Spark's own Kafka connector, fetched by Maven on first use: never copied into the repository, never shipped."""

from __future__ import annotations

import fcntl
import subprocess
from importlib import metadata
from pathlib import Path

from tests.tools import missing, require_tool

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[2] / ".tools"
# What Spark has not got already; its other dependencies are in Spark's own jars.
ARTIFACTS = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"


def connector_version() -> str:
    """The connector is a part of Spark: the first one of the release that is installed."""
    major, minor, *_ = metadata.version("pyspark").split(".")
    return f"{major}.{minor}.0"


def connector_jars() -> list[str]:
    """The paths of the connector's jars, for `spark.jars`; skips (in CI: fails) the test when they cannot be had."""
    version = connector_version()
    folder = TOOLS / f"spark-sql-kafka-0-10_2.13-{version}"
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "spark-connector.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            require_tool("java")
            require_tool("mvn")
            command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
            command += [
                f"-Dspark.version={version}",
                "-DincludeScope=runtime",
                f"-DincludeArtifactIds={ARTIFACTS}",
                f"-DoutputDirectory={folder}",
            ]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                missing("Spark's Kafka connector", f"Maven could not provide it: {(done.stderr or done.stdout)[-300:]}")
            (folder / "complete").touch()
    return sorted(str(jar) for jar in folder.glob("*.jar"))
