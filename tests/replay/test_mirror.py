"""`kbroker mirror` on Spark, between two brokers: once, and following what comes, with a kill in between.

Also of `kbroker.cli.spark.mirror`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kbroker.cli.main import run
from kbroker.client.cluster import Cluster
from kbroker.client.errors import ClientError
from kbroker.client.list_offsets import list_offsets
from kbroker.types import LATEST
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for
from tests.replay.conftest import SPARK_SETTINGS
from tests.replay.moved_topics import assert_same, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
KEEP = {"retention.ms": "-1"}


def count(broker: BrokerProcess, topic: str) -> int:
    with Cluster(broker.bootstrap) as cluster:
        try:
            found = list_offsets(cluster, {(topic, number): LATEST for number in range(2)})
        except ClientError:
            return 0
    return sum(place.offset for place in found.values())


def reached(broker: BrokerProcess, topic: str, goal: int, process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None or count(broker, topic) >= goal


def test_topics_are_mirrored_with_all_that_they_hold(
    spark: SparkSession,
    kbroker_broker: BrokerProcess,
    target: BrokerProcess,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A second cluster would hold other records than the first, and a second run would double them."""
    del spark  # The command uses the session that is there.
    topic = Admin(kbroker_broker.bootstrap).create_topic("mirrored", 2, KEEP)
    produce(kbroker_broker.bootstrap, topic, 2, 0, 400)
    words = ["mirror", "--pattern", topic, "--from", kbroker_broker.bootstrap, "--to", target.bootstrap]
    words += ["--state", str(tmp_path), "--rename", "copy.{topic}", "--slice", "70", "--json"]
    assert run(words) == 0
    assert [row["written"] for row in json.loads(capfd.readouterr().out)] == [200, 200]
    produce(kbroker_broker.bootstrap, topic, 2, 400, 100)
    assert run(words) == 0
    assert [row["written"] for row in json.loads(capfd.readouterr().out)] == [50, 50]
    assert_same((kbroker_broker.bootstrap, topic), (target.bootstrap, f"copy.{topic}"), 2)
    assert run([*words[:-1], "--rename", "other.{topic}"]) == 1
    assert "give each job a state directory of its own" in capfd.readouterr().err


@pytest.mark.timeout(600)
def test_a_mirror_that_follows_goes_on_after_a_kill(
    kbroker_broker: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    """What came while the mirror was dead would be missing in the second cluster, or be there twice."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("followed", 2, KEEP)
    produce(kbroker_broker.bootstrap, topic, 2, 0, 300)
    words = [sys.executable, "-m", "kbroker.cli", "mirror", topic, "--from", kbroker_broker.bootstrap]
    words += ["--to", target.bootstrap, "--state", str(tmp_path / "state"), "--follow", "--trigger", "0.3"]
    words += ["--master", "local[2]", "--slice", "50", "--conf", f"spark.local.dir={tmp_path / 'local'}"]
    words += ["--conf", f"spark.driver.extraJavaOptions={SPARK_SETTINGS['spark.driver.extraJavaOptions']}"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    written = 300
    for turn in range(2):
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(words, cwd=ROOT, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(partial(reached, target, topic, written, process), "catching up", seconds=250)
            produce(kbroker_broker.bootstrap, topic, 2, written, 500)
            written += 500
            # The first run is killed in the middle, the second brings everything.
            goal = written - 400 if turn == 0 else written
            wait_for(partial(reached, target, topic, goal, process), "following", seconds=250)
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
    assert_same((kbroker_broker.bootstrap, topic), (target.bootstrap, topic), 2)
