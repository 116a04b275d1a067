"""The console of a broker that is one of several: with ZooKeeper, and under Apache Kafka's controllers with TLS, SASL
and ACLs, beside a broker of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kbroker.testing.security import ADMIN, PASSWORD, Security
from tests.cluster.kraft import processes as kraft
from tests.cluster.zookeeper import processes as zookeeper
from tests.console.viewer import Viewer
from tests.ports import free_port

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]


def metrics_ports() -> tuple[dict[str, str], int]:
    """A setting by which broker N has the metrics listener at a port and N more, and that port."""
    first = (free_port(20) + 9) // 10 * 10
    return {"metrics.listener": f"http://127.0.0.1:{first // 10}{{id}}"}, first


def change_everything(viewer: Viewer, leaders: set[int], settings: dict[str, str], bootstrap: str, name: str) -> None:
    """What the console can do to topics, records and groups whose leaders and coordinators are anywhere."""
    viewer.do("topic.create", name=name, partitions=6, replicas=2, settings={"retention.ms": "3600000"})
    told = viewer.wait("topic", lambda told: all(row["leader"] >= 0 for row in told["partitions"]), name=name)
    assert {row["leader"] for row in told["partitions"]} == leaders
    records = [{"key": f"k{index}", "value": "x", "partition": index % 6} for index in range(12)]
    assert viewer.do("produce", topic=name, records=records)["failures"] == []
    viewer.wait("ends", lambda told: told["ends"] == [2] * 6, topic=name)
    for index in range(6):
        shown = viewer.ask("messages", topic=name, partition=index, **{"from": "oldest"})
        assert [row["key"]["text"] for row in shown["records"]] == [f"k{index}", f"k{index + 6}"]
    consumer = Consumer({**settings, "bootstrap.servers": bootstrap, "group.id": f"group of {name}", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(name, index, 1) for index in range(6)], asynchronous=False)
    consumer.close()
    plan = viewer.plan("group.reset", id=f"group of {name}", where="latest")
    assert plan["table"]["rows"] == [[name, index, 1, 2, 1] for index in range(6)]
    assert viewer.perform(plan)["sentences"] == ["6 offsets are committed."]
    assert viewer.do("topic.truncate", name=name, where="offset", value=1)["failures"] == []
    viewer.do("topic.partitions", name=name, count=7)
    viewer.do("topic.configure", name=name, set={"retention.ms": "7200000"})
    for node_id in sorted(leaders):
        viewer.do("broker.configure", name=str(node_id), set={"log.cleaner.threads": "2"})
    viewer.do("broker.configure", set={"log.cleaner.backoff.ms": "16000"})
    viewer.do("quota.change", entity=[{"type": "client-id", "name": name}], producer_byte_rate=1e9)
    assert viewer.ask("quotas", q=name)["rows"]
    viewer.do("group.delete", id=f"group of {name}")
    viewer.do("topic.delete", name=name)


def test_any_broker_of_a_cluster_with_zookeeper_changes_all_of_it(tmp_path: Path) -> None:
    """A person would have to find the controller, the leader and the coordinator first."""
    listener, first = metrics_ports()
    settings = {**listener, "kbroker.console.manage": "true"}
    with zookeeper.running(tmp_path, [zookeeper.Kbroker] * 2, settings) as cluster:
        for number in (1, 2):
            viewer = Viewer(first + number)
            told = viewer.wait("brokers", lambda told: len(told["page"]["rows"]) == 2)
            assert [row["is_here"] for row in told["page"]["rows"]] == [number == 1, number == 2]
            assert sum(row["is_controller"] for row in told["page"]["rows"]) == 1
            change_everything(viewer, {1, 2}, {}, f"127.0.0.1:{cluster.nodes[1].port}", f"t{number}")


@pytest.mark.kafka
def test_a_broker_under_kafkas_controllers_changes_all_of_the_cluster_as_its_viewer(tmp_path: Path) -> None:
    """Through a secured cluster nothing could be changed from the console, or all of it by everybody."""
    listener, first = metrics_ports()
    security = Security("SASL_SSL", directory=tmp_path / "tls")
    own = {"kbroker.console.manage": "true", "kbroker.metrics.authentication": "basic"}
    settings = {**listener, **own}
    with kraft.running(tmp_path, (kraft.Kbroker, kraft.Kafka), settings=settings, security=security) as cluster:
        viewer = Viewer(first + 1, f"{ADMIN}:{PASSWORD}")
        told = viewer.wait("brokers", lambda told: len(told["page"]["rows"]) == 2)
        assert len(told["controllers"]) == 1
        clients = security.client_settings(tmp_path / "tls", ADMIN)
        change_everything(viewer, {1, 2}, clients, f"127.0.0.1:{cluster.nodes[2].port}", "t")
        viewer.do("user.password", name="bob", secret="builder")
        bob = Viewer(first + 1, "bob:builder")
        assert bob.ask("me")["principal"] == "User:bob"
        assert bob.cannot("topic.create", name="app-1", replicas=1)[:2] == (403, "TOPIC_AUTHORIZATION_FAILED")
        viewer.do("acl.add", kind="TOPIC", name="app-", pattern="PREFIXED", principal="User:bob", operation="ALL")
        assert viewer.ask("acls", q="bob")["page"]["rows"]
        bob.do("topic.create", name="app-1", replicas=1)
        assert bob.cannot("topic.create", name="other", replicas=1)[0] == 403
