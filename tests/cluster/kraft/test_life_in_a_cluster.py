"""What happens to a kbroker in a KRaft cluster: it is unregistered, has a twin, is frozen, loses a disk, is shown.

Of `kbroker.cluster.kraft.lifecycle_client`; also of `kbroker.cli.cluster.quorum`,
`kbroker.cli.checks.cluster_checks`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from kbroker.testing.broker import BrokerError
from tests.cluster.kraft.processes import FIRST_CONTROLLER, Cluster, Kafka, Kbroker, running
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def known(cluster: Cluster, through: int) -> set[int]:
    """The living brokers, as one of them tells."""
    try:
        return set(cluster.admin_of(through).list_topics(timeout=10).brokers)
    except KafkaException:
        return set()


def test_a_broker_that_is_unregistered_registers_again(tmp_path: Path) -> None:
    """An administrator's slip would leave it out of the cluster until it is started again."""
    with running(tmp_path, (Kbroker, Kafka)) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.produce("t", ["a"] * 20)
        done = run_java(
            "org.apache.kafka.tools.ClusterTool", "unregister", "--bootstrap-server", cluster.bootstrap, "--id", "1"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(lambda: "registers again" in cluster.nodes[1].output(), "the broker to see it", seconds=60)
        cluster.wait_isr("t", {1, 2})
        cluster.produce("t", ["b"] * 20)
        assert len(cluster.consume("t", 2, 40)) == 40


def test_a_twin_is_refused_while_the_other_one_lives(tmp_path: Path) -> None:
    """Two processes would serve as one broker, and records of one be lost to the other."""
    with running(tmp_path, (Kbroker, Kafka)) as cluster:
        cluster.create("t", [[1, 2]])
        twin = Kbroker(1, tmp_path / "twin", cluster.voters, {"initial.broker.registration.timeout.ms": "4000"})
        with pytest.raises(BrokerError) as ended:
            twin.start()
            wait_for(lambda: not twin.is_running, "the twin to end", seconds=60)
            raise BrokerError(twin.output())
        assert "initial.broker.registration.timeout.ms" in str(ended.value) + twin.output()
        cluster.wait_isr("t", {1, 2})
        cluster.produce("t", ["a"] * 20)


def test_the_id_of_a_controller_is_refused(tmp_path: Path) -> None:
    """The cluster would take one for the other."""
    with running(tmp_path, (Kbroker,)) as cluster:
        other = Kbroker(FIRST_CONTROLLER, tmp_path / "other", cluster.voters, {})
        with pytest.raises(BrokerError):
            other.start()
            wait_for(lambda: not other.is_running, "the broker to end", seconds=60)
            raise BrokerError(other.output())
        assert f"cannot start: node.id {FIRST_CONTROLLER} is that of a controller" in other.output()


def test_a_broker_that_was_frozen_beyond_its_session_comes_back(tmp_path: Path) -> None:
    """It would go on as a leader of partitions that another one leads by then, or never be unfenced."""
    with running(tmp_path, (Kbroker, Kafka, Kbroker)) as cluster:
        cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], {"min.insync.replicas": "2"})
        cluster.produce("t", ["a"] * 60)
        cluster.nodes[1].pause()
        cluster.wait_isr("t", {2, 3}, through=2)
        cluster.nodes[1].resume()
        cluster.wait_isr("t", {1, 2, 3}, through=2)
        cluster.wait_isr("t", {1, 2, 3}, through=1)
        cluster.produce("t", ["b"] * 60)
        assert len(cluster.consume("t", 3, 120)) == 120


def test_a_directory_that_is_lost_while_the_broker_runs_leaves_its_replicas_to_others(tmp_path: Path) -> None:
    """The controllers would have the broker lead what is not there."""
    dirs = [tmp_path / "one", tmp_path / "two"]
    settings = {"log.dirs": ",".join(map(str, dirs))}
    with running(tmp_path, (Kafka,)) as cluster:
        node = cluster.nodes[2] = cluster.make(Kbroker, 2, settings)
        node.start()
        cluster.wait_known({1, 2})
        cluster.create("t", [[2, 1]] * 4)
        cluster.produce("t", ["a"] * 40)
        cluster.wait_isr("t", {1, 2})
        lost = next(each for each in dirs if not (each / "__cluster_metadata-0").exists())
        held = {int(each.name.rpartition("-")[2]) for each in lost.glob("t-?")}
        assert held, "no replica lies in the directory that is to fail"
        shutil.rmtree(lost)

        def others_lead() -> bool:
            try:
                cluster.produce("t", ["b"] * 4)
                leaders = cluster.leaders("t")
            except (AssertionError, KafkaException):
                return False
            return all(leaders[index] == 1 for index in held)

        wait_for(others_lead, "the other broker to lead", seconds=120)
        left = set(range(4)) - held
        assert all(cluster.leaders("t")[index] == 2 for index in left)


def test_status_shows_the_quorum_and_fenced_brokers(tmp_path: Path) -> None:
    """An operator would not see which controller is active, who lags, and which broker is away."""
    with running(tmp_path, (Kbroker, Kbroker)) as cluster:

        def status() -> dict[str, object]:
            command = [sys.executable, "-m", "kbroker.cli", "cluster", "status", "--json"]
            command += ["-b", f"127.0.0.1:{cluster.nodes[1].port}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            found: dict[str, object] = json.loads(done.stdout)
            return found

        found = status()
        quorum = found["quorum"]
        assert isinstance(quorum, dict)
        assert quorum["leader"] == FIRST_CONTROLLER
        assert {each["id"] for each in quorum["observers"]} == {1, 2}
        assert found["fenced"] == []
        cluster.nodes[2].kill()
        wait_for(lambda: known(cluster, 1) == {1}, "the broker to be fenced", seconds=60)
        assert status()["fenced"] == [2]
