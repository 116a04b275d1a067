"""A standalone cluster on loopback, one master and two workers: executors in processes of their own, as in production.

The package reaches executors as the documentation says first: the same virtual environment at the same place.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kbroker.replay.spark_python import workers_python
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for
from tests.ports import free_port
from tests.replay.moved_topics import produce
from tests.tools import require_tool

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2


class SparkDaemon:
    """One of Spark's own daemons in a process that ends with the test."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        self.log = folder / f"{name}.log"
        work = folder / name
        work.mkdir(parents=True)
        # Executors find the package in their interpreter's environment alone, not in this directory.
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environ |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_DIR": str(work)}
        environ |= {"PYSPARK_PYTHON": workers_python(), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(work)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *words], cwd=work, env=environ, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def says(self, text: str, times: int = 1) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return self.log.read_text().count(text) >= times

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster with two workers of one core."""
    require_tool("java")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    daemons: list[SparkDaemon] = []
    try:
        words = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        daemons.append(SparkDaemon(tmp_path, "master", f"{package}.master.Master", *words))
        wait_for(partial(daemons[0].says, "New state: ALIVE"), "the master", seconds=120)
        for number in range(WORKERS):
            words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port()))
            name = f"worker-{number}"
            daemons.append(
                SparkDaemon(tmp_path, name, f"{package}.worker.Worker", *words, "-d", str(tmp_path / name), url)
            )
        wait_for(partial(daemons[0].says, "Registering worker", WORKERS), "the workers", seconds=120)
        yield url
    finally:
        for daemon in reversed(daemons):
            daemon.stop()


def test_the_pipeline_runs_on_a_standalone_cluster(master: str, kbroker_broker: BrokerProcess, tmp_path: Path) -> None:
    """What works in one process would fail where executors are others: what cannot travel, paths, the barrier."""
    bootstrap = kbroker_broker.bootstrap
    admin = Admin(bootstrap)
    topic, copy = admin.create_topic("cluster", 2, {"retention.ms": "-1"}), admin.create_topic("cluster-copy", 2)
    produce(bootstrap, topic, 2, 0, 2000)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": workers_python(), "SPARK_LOCAL_IP": "127.0.0.1"}
    words = [sys.executable, "-m", "tests.replay.cluster_job", master, bootstrap, topic, copy, str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["rows"], found["loaded"], found["status"], found["executors"]) == (2000, 2000, "complete", 2)
    assert sum(admin.end_offsets(copy, 2).values()) == 2000
    total = found["total"]
    assert (total["expected"], total["distinct"], total["lost"], total["duplicates"]) == (2000, 2000, 0, 0)
