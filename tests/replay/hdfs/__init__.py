"""A name node and a data node in one Java process on loopback, from Hadoop's own classes for tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compat.waiting import wait_for
from tests.replay.fetched import fetched_jars

POM = Path(__file__).with_name("pom.xml")


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """The address, `hdfs://127.0.0.1:port`; skips (in CI: fails) the test where Maven cannot provide it."""
    jars = fetched_jars("hdfs-3.4.2", "HDFS", POM)
    details = folder / "details.json"
    command = [
        "java",
        "-Xmx256m",
        f"-Djava.io.tmpdir={folder}",
        "-cp",
        ":".join(jars),
        "org.apache.hadoop.test.MiniDFSClusterManager",
    ]
    command += ["-format", "-datanodes", "1", "-nnport", "0", "-writeDetails", str(details)]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        wait_for(
            lambda: (details.exists() and details.read_text().endswith("}")) or process.poll() is not None,
            "HDFS", seconds=240,
        )  # fmt: skip
        assert process.poll() is None, (folder / "output").read_text()
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.kill()
        process.wait(30)
