"""`kbroker cluster` while replicas are on the move."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.cluster.zookeeper.processes import Cluster, Kbroker, running
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(600)]
RECORDS = 60
THROTTLED = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}


def command(cluster: Cluster, *words: str) -> tuple[int, str]:
    """The exit status of `kbroker cluster …`, and what it says."""
    line = [sys.executable, "-m", "kbroker.cli", "cluster", *words, "--bootstrap-server", cluster.bootstrap]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def throttle(cluster: Cluster, bytes_per_second: int) -> None:
    admin = cluster.admin()
    for node_id in cluster.nodes:
        entries = [
            ConfigEntry(
                f"{side}.replication.throttled.rate",
                str(bytes_per_second),
                incremental_operation=AlterConfigOpType.SET,
            )
            for side in ("leader", "follower")
        ]
        resource = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(30)


def test_what_moves_is_no_fault_and_goes_to_one_place_only(tmp_path: Path) -> None:
    """A move would look like a failure without a size; a broker that is drained twice would leave more replicas behind
    than there were."""
    with running(tmp_path, [Kbroker] * 4) as cluster:
        cluster.create("t", [[1, 2]], THROTTLED)
        cluster.wait_isr("t", 1, {1, 2})
        cluster.produce("t", ["x" * 100_000] * RECORDS)
        throttle(cluster, 10_000)
        assert command(cluster, "reassign", "t-0", "--replicas", "3,2") == (0, "t-0: on its way to 3, 2\n")

        def rows() -> list[dict[str, Any]]:
            status, text = command(cluster, "status", "--json")
            found = json.loads(text)
            assert (status, found["under_replicated"]) == (0, [])
            return [each for each in found["out_of_isr"] if each["lag"]]

        (row,) = wait_for(rows, "the new replica to be shown with its lag", seconds=60)
        assert (row["partition"], row["broker"], row["reason"]) == ("t-0", 3, "a reassignment adds it")
        assert RECORDS // 2 < row["lag"] <= RECORDS

        assert command(cluster, "drain", "1") == (
            0,
            "1 partitions are on their way from broker 1; see `kbroker cluster reassign`\n",
        )
        plan = json.loads(command(cluster, "drain", "2", "--dry-run", "--json")[1])["partitions"]
        assert [(each["replicas"], each["target"]) for each in plan] == [([3, 2], [3, 1])]

        throttle(cluster, 1 << 30)
        wait_for(lambda: cluster.json("/brokers/topics/t")["partitions"] == {"0": [3, 2]}, "the move", seconds=60)
        cluster.wait_isr("t", 1, {2, 3})
        assert json.loads(command(cluster, "status", "--json")[1])["out_of_isr"] == []


def test_a_drain_that_leaves_fewer_replicas_says_so(tmp_path: Path) -> None:
    """A person would find out at the next failure, when nothing can be written any more."""
    with running(tmp_path, [Kbroker] * 2) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        status, text = command(cluster, "drain", "1", "--dry-run")
        assert status == 0
        assert "2 partitions will have fewer replicas than now: they are on all other brokers already" in text
        assert command(cluster, "drain", "12") == (0, "broker 12 has no replicas, and is not registered\n")
