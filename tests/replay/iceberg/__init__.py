"""Spark 4.1 and Iceberg's runtime for it, fetched on first use: Iceberg has none for Spark 4.2, which other tests have.

Nothing of them is copied into the repository or shipped.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from tests.tools import missing, require_tool

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[2] / ".tools"
SPARK = "4.1"
ARTIFACTS = "iceberg-spark-runtime-4.1_2.13,sqlite-jdbc"


def spark_folder() -> Path:
    """A directory for PYTHONPATH with PySpark 4.1; skips (in CI: fails) the test when it cannot be had."""
    folder = TOOLS / f"pyspark-{SPARK}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    _once(folder, [*command, f"pyspark=={SPARK}.*"], "PySpark 4.1")
    return folder


def iceberg_jars() -> list[str]:
    """The paths of the jars, for `spark.jars`; skips (in CI: fails) the test when they cannot be had."""
    require_tool("mvn")
    folder = TOOLS / f"iceberg-spark-{SPARK}"
    command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    command += ["-DexcludeTransitive=true", f"-DincludeArtifactIds={ARTIFACTS}", f"-DoutputDirectory={folder}"]
    _once(folder, command, "Iceberg's runtime")
    return sorted(str(jar) for jar in folder.glob("*.jar"))


def _once(folder: Path, command: list[str], what: str) -> None:
    require_tool("java")
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "iceberg.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                missing(what, f"it cannot be had: {(done.stderr or done.stdout)[-300:]}")
            (folder / "complete").touch()
