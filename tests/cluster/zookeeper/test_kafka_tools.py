"""Kafka's own tools, of 3.9.1 and 4.3.1, for what an administrator does with a cluster: see, elect, move, cancel."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.zookeeper.processes import Kbroker, running
from tests.compat.tooling import java_command, old_java_command
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]
TOOLS = "org.apache.kafka.tools"
TOPICS, ELECT = f"{TOOLS}.TopicCommand", f"{TOOLS}.LeaderElectionCommand"
HANGING = f"{TOOLS}.TransactionsCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"


@pytest.mark.parametrize("command", [old_java_command, java_command], ids=["3.9.1", "4.3.1"])
def test_partitions_are_shown_elected_and_moved(tmp_path: Path, command: Callable[..., list[str]]) -> None:
    """Runbooks around Kafka's tools would have to be written anew."""
    with running(tmp_path, [Kbroker] * 3) as cluster:

        def tool(java_class: str, *args: str) -> str:
            line = command(java_class, "--bootstrap-server", cluster.bootstrap, *args)
            done = subprocess.run(line, capture_output=True, text=True, timeout=180, check=False)
            assert done.returncode == 0, f"{args}:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
            return done.stdout

        cluster.create("t", [[1, 2], [2, 3], [3, 1]])
        cluster.wait_isr("t", 1, {1, 2})
        cluster.produce("t", [f"a{each}" for each in range(300)])
        assert "Topic: t" not in tool(TOPICS, "--describe", "--under-replicated-partitions")
        # Each broker follows one partition and leads another: both are asked for their producers.
        for each in cluster.nodes:
            assert tool(HANGING, "find-hanging", "--broker-id", str(each)).count("\n") == 1
        cluster.nodes[3].kill()
        wait_for(lambda: cluster.state("t", 1)["isr"] == [2] and cluster.state("t", 2)["isr"] == [1], "smaller ISRs")
        shown = tool(TOPICS, "--describe", "--under-replicated-partitions")
        assert [f"Partition: {each}" in shown for each in range(3)] == [False, True, True]
        cluster.wait_registered({1, 2})
        cluster.nodes[3].start()
        wait_for(lambda: set(cluster.state("t", 2)["isr"]) == {1, 3}, "3 to be in sync", seconds=60)
        assert cluster.state("t", 2)["leader"] == 1
        tool(ELECT, "--election-type", "preferred", "--topic", "t", "--partition", "2")
        assert cluster.state("t", 2)["leader"] == 3
        tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")

        moves = [{"topic": "t", "partition": 0, "replicas": [3, 2]}, {"topic": "t", "partition": 1, "replicas": [1, 3]}]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        file = ("--reassignment-json-file", str(plan))
        generate = tmp_path / "topics.json"
        generate.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
        proposed = tool(REASSIGN, "--generate", "--topics-to-move-json-file", str(generate), "--broker-list", "1,2,3")
        assert "Proposed partition reassignment configuration" in proposed
        tool(REASSIGN, "--execute", *file, "--throttle", "50000000")

        def completed() -> bool:
            return tool(REASSIGN, "--verify", *file, "--preserve-throttles").count("is completed") == 2

        wait_for(completed, "the moves to be completed", seconds=120)
        assert cluster.json("/brokers/topics/t")["partitions"] == {"0": [3, 2], "1": [1, 3], "2": [3, 1]}
        # The last look takes the throttles away.
        tool(REASSIGN, "--verify", *file)
        assert "throttled" not in json.dumps(cluster.json("/config/topics/t"))
        assert "No partition reassignments found" in tool(REASSIGN, "--list")

        # A move that its throttle lets take many minutes is shown, and cancelled.
        cluster.produce("t", ["x" * 100_000] * 80, partition=2)
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 2, "replicas": [2, 1]}]}))
        tool(REASSIGN, "--execute", *file, "--throttle", "5000")
        assert "t-2" in tool(REASSIGN, "--list")
        tool(REASSIGN, "--cancel", *file)
        # As in Kafka, the old replicas are those of the move without the added ones, in its order.
        assert cluster.json("/brokers/topics/t")["partitions"]["2"] == [1, 3]
        assert "throttled" not in json.dumps(cluster.json("/config/topics/t"))
        assert len(cluster.consume("t", 3, 380)) == 380
