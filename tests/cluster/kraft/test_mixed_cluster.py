"""kbroker and Apache Kafka 4.3.1 as brokers of one KRaft cluster: either leads, follows, and comes back.

Of `kbroker.cluster.kraft.member`, `kbroker.assembly.membership.kraft`; also of `kbroker.cluster.kraft.kraft_controller`
and `kbroker.cluster.creation_complaints`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.kraft.processes import FIRST_CONTROLLER, Cluster, Kafka, Kbroker, running
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
EVERYBODY = {1, 2, 3}
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def serve(cluster: Cluster, topic: str, prefix: str, count: int = 200) -> None:
    cluster.produce(topic, [f"{prefix}{each}" for each in range(count)])


def go_and_come(cluster: Cluster, topic: str, number: int, *, kill: bool) -> None:
    """A broker ends, the others serve, and it comes back."""
    node = cluster.nodes[number]
    node.kill() if kill else node.stop()
    cluster.wait_isr(topic, EVERYBODY - {number})
    serve(cluster, topic, f"without-{number}-{kill}-")
    node.start()
    cluster.wait_isr(topic, EVERYBODY)


def reassign(cluster: Cluster, topic: str, targets: Sequence[list[int]]) -> None:
    """By Kafka's own tool."""
    rows = [{"topic": topic, "partition": index, "replicas": each} for index, each in enumerate(targets)]
    plan = cluster.folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    done = run_java(
        REASSIGN, "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan), "--execute"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kinds", [(Kbroker, Kafka, Kafka), (Kbroker, Kbroker, Kafka), (Kbroker, Kbroker, Kbroker)])
def test_each_broker_ends_and_comes_back(tmp_path: Path, kinds: tuple[type[Kbroker | Kafka], ...]) -> None:
    """A cluster could not be moved from Kafka to kbroker one broker after the other, or a crash would lose records."""
    with running(tmp_path, kinds) as cluster:
        cluster.create("t", SPREAD)
        cluster.wait_isr("t", EVERYBODY)
        serve(cluster, "t", "a")
        for number in EVERYBODY:
            go_and_come(cluster, "t", number, kill=False)
        for number in EVERYBODY:
            go_and_come(cluster, "t", number, kill=True)
        serve(cluster, "t", "b")
        assert len(cluster.consume("t", 3, 8 * 200)) == 8 * 200


def test_controllers_come_and_go_under_a_kbroker(tmp_path: Path) -> None:
    """Leaders would not move any more after the first failure of a controller."""
    with running(tmp_path, (Kbroker, Kbroker, Kafka), controllers=3) as cluster:
        cluster.create("t", SPREAD)
        cluster.wait_isr("t", EVERYBODY)
        serve(cluster, "t", "a")
        for number in range(FIRST_CONTROLLER, FIRST_CONTROLLER + 3):
            cluster.controllers[number].kill()
            serve(cluster, "t", f"without-{number}-")
            go_and_come(cluster, "t", 1, kill=False)
            cluster.controllers[number].start()
        assert len(cluster.consume("t", 3, 7 * 200)) == 7 * 200


def test_a_cluster_moves_from_kafka_to_kbroker_and_back_on_its_own_directories(tmp_path: Path) -> None:
    """A migration would copy every byte again, or there would be no way back from it."""
    with running(tmp_path, (Kafka, Kafka)) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        serve(cluster, "t", "a")
        kafkas = dict(cluster.nodes)
        for number in kafkas:
            cluster.nodes[number].stop()
            cluster.nodes[number] = cluster.make(Kbroker, number)
            cluster.nodes[number].start()
            cluster.wait_isr("t", {1, 2})
            serve(cluster, "t", f"kbroker-{number}-")
        for number, kafka in kafkas.items():
            cluster.nodes[number].stop()
            cluster.nodes[number] = kafka
            kafka.start()
            cluster.wait_isr("t", {1, 2})
            serve(cluster, "t", f"kafka-{number}-")
        assert len(cluster.consume("t", 2, 1000)) == 1000


def test_replicas_move_to_a_kbroker_and_away_and_topics_go(tmp_path: Path) -> None:
    """Records would be lost on the way, or their directories stay for ever."""
    with running(
        tmp_path, (Kbroker, Kafka), settings={"log.dirs": f"{tmp_path}/one-{{id}},{tmp_path}/two-{{id}}"}
    ) as cluster:
        cluster.create("t", [[2], [2], [2], [2]])
        cluster.create("gone", [[1, 2], [2, 1]])
        serve(cluster, "t", "a")
        serve(cluster, "gone", "a")
        reassign(cluster, "t", [[1]] * 4)
        cluster.wait_isr("t", {1})
        wait_for(lambda: cluster.leaders("t") == [1] * 4, "the kbroker to lead")
        serve(cluster, "t", "b")
        reassign(cluster, "t", [[2], [1, 2], [1], [2]])
        wait_for(lambda: cluster.isr("t") == [{2}, {1, 2}, {1}, {2}], "the replicas to have moved")
        serve(cluster, "t", "c")
        assert len(cluster.consume("t", 4, 600)) == 600
        admin = cluster.admin()
        admin.delete_topics(["gone"])["gone"].result(30)
        here = [tmp_path / name for name in ("one-1", "two-1")]
        wait_for(
            lambda: not [each for path in here for each in path.glob("gone-*") if not each.name.endswith("-delete")],
            "the deleted topic's directories to go",
        )


def test_controllers_of_kafka_3_9_have_kbrokers(tmp_path: Path) -> None:
    """Brokers could move to kbroker only once the controllers are of Kafka 4."""
    with running(tmp_path, (Kbroker, Kbroker), old_controllers=True) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.wait_isr("t", {1, 2})
        serve(cluster, "t", "a")
        cluster.nodes[1].stop()
        cluster.wait_isr("t", {2})
        serve(cluster, "t", "b")
        cluster.nodes[1].start()
        cluster.wait_isr("t", {1, 2})
        assert len(cluster.consume("t", 2, 400)) == 400
