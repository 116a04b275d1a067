"""Users and delegation tokens of a cluster of kbroker and Apache Kafka 3.9.1 with ZooKeeper: either makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kbroker.security.scram import ScramMechanism, salted_password
from tests.cluster.zookeeper.asking import ask, is_open
from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, running
from tests.compat.tooling import old_java_command
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


def users(cluster: Cluster, number: int) -> dict[str, list[tuple[int, int]]]:
    found = ask(cluster, number, "DescribeUserScramCredentials", 0, users=None)
    return {
        row.user: sorted((each.mechanism, each.iterations) for each in row.credential_infos) for row in found.results
    }


def put(cluster: Cluster, number: int, name: str, iterations: int) -> None:
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, b"pw", b"salt", iterations)
    row = {"name": name, "mechanism": 1, "iterations": iterations, "salt": b"salt", "salted_password": salted}
    (result,) = ask(cluster, number, "AlterUserScramCredentials", 0, deletions=[], upsertions=[row]).results
    assert result.error_code == 0


def configs_tool(cluster: Cluster, *args: str) -> None:
    """Kafka 3.9.1's `kafka-configs`, by ZooKeeper."""
    command = [*old_java_command("kafka.admin.ConfigCommand"), "--zookeeper", cluster.server.address, *args]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_kbroker_and_kafka_share_users_in_zookeeper(tmp_path: Path) -> None:
    """A user could log in at half of the brokers of a cluster that moves from Kafka to kbroker."""
    with running(tmp_path, [Kafka, Kbroker], settings={}) as cluster:
        wait_for(lambda: is_open(cluster, 1), "Kafka to listen", seconds=30)

        def both_have(expected: dict[str, list[tuple[int, int]]]) -> None:
            wait_for(lambda: users(cluster, 1) == expected == users(cluster, 2), f"both to have {expected}", seconds=30)

        put(cluster, 2, "of kbroker", 4096)
        both_have({"of kbroker": [(1, 4096)]})
        put(cluster, 1, "of kafka", 5000)  # the controller; its other brokers take none.
        both_have({"of kbroker": [(1, 4096)], "of kafka": [(1, 5000)]})
        password = "SCRAM-SHA-512=[iterations=6000,password=pw]"
        configs_tool(cluster, "--alter", "--entity-type", "users", "--entity-name", "of tool", "--add-config", password)
        both_have({"of kbroker": [(1, 4096)], "of kafka": [(1, 5000)], "of tool": [(2, 6000)]})
        deletions = [{"name": "of kafka", "mechanism": 1}]
        (result,) = ask(cluster, 2, "AlterUserScramCredentials", 0, deletions=deletions, upsertions=[]).results
        assert result.error_code == 0
        both_have({"of kbroker": [(1, 4096)], "of tool": [(2, 6000)]})
