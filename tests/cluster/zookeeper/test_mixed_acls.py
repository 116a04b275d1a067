"""ACLs of a cluster of kbroker and Apache Kafka 3.9.1 with ZooKeeper: either makes them, and both go by them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.zookeeper.asking import ask, is_open
from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, running
from tests.compat.tooling import old_java_command
from tests.compat.waiting import wait_for
from tests.security.acl.acl_requests import EVERYTHING, rule

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
OTHER_ADDRESS = "127.0.0.2"


def described(cluster: Cluster, number: int) -> set[tuple[Any, ...]]:
    found = ask(cluster, number, "DescribeAcls", 3, **EVERYTHING)
    assert found.error_code == 0
    return {
        (each.resource_type, each.resource_name, each.pattern_type, acl.principal, acl.host, acl.operation)
        for each in found.resources
        for acl in each.acls
    }


def until_both_have(cluster: Cluster, names: set[str]) -> None:
    def agree() -> bool:
        views = [described(cluster, number) for number in cluster.nodes]
        return all(view == views[0] for view in views) and {each[1] for each in views[0]} == names

    wait_for(agree, f"both brokers to have rules about {names}", seconds=30)


def refuses(cluster: Cluster, number: int) -> bool:
    """Whether a broker keeps the client at the other address from topic t."""
    topics = [{"name": "t"}]
    found = ask(cluster, number, "Metadata", 9, OTHER_ADDRESS, topics=topics, allow_auto_topic_creation=False)
    return int(found.topics[0].error_code) == 29


def acl_tool(cluster: Cluster, *args: str) -> str:
    """Kafka 3.9.1's `kafka-acls`, by ZooKeeper."""
    command = old_java_command("kafka.admin.AclCommand")
    where = ["--authorizer-properties", f"zookeeper.connect={cluster.server.address}"]
    done = subprocess.run([*command, *where, *args], capture_output=True, check=False, timeout=120)
    out = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, out
    return out


def test_kbroker_and_kafka_share_acls_in_zookeeper(tmp_path: Path) -> None:
    """A cluster that moves from Kafka to kbroker would go by different rules at each broker."""
    with running(tmp_path, [Kbroker, Kafka], settings=SETTINGS) as cluster:
        cluster.create("t", [[1, 2]])
        wait_for(lambda: is_open(cluster, 2), "Kafka to listen", seconds=30)
        own = {"principal": "User:ANONYMOUS", "operation": 2}
        anywhere = {"host": "127.0.0.1", **own}
        # The second client alone has no right to the topic; all others go on.
        made = ask(cluster, 1, "CreateAcls", 3, creations=[rule(**anywhere), rule(resource_name="of-kbroker")])
        assert [each.error_code for each in made.results] == [0, 0]
        until_both_have(cluster, {"t", "of-kbroker"})
        assert refuses(cluster, 1) and refuses(cluster, 2)
        made = ask(
            cluster,
            2,
            "CreateAcls",
            3,
            creations=[
                rule(**own, host=OTHER_ADDRESS),
                rule(resource_name="of-kafka", resource_pattern_type=4),
                rule(resource_type=5, resource_name="of-kafka"),
            ],
        )
        assert [each.error_code for each in made.results] == [0, 0, 0]
        until_both_have(cluster, {"t", "of-kbroker", "of-kafka"})
        wait_for(lambda: not refuses(cluster, 1), "kbroker to go by Kafka's rule")
        assert not refuses(cluster, 2)
        acl_tool(cluster, "--add", "--deny-principal", "User:ANONYMOUS", "--deny-host", OTHER_ADDRESS, "--topic", "t")
        wait_for(lambda: refuses(cluster, 1) and refuses(cluster, 2), "both to go by the tool's rule")
        listed = acl_tool(cluster, "--list")
        assert "name=of-kbroker" in listed and "name=of-kafka" in listed and "permissionType=DENY" in listed
        everything = [{**EVERYTHING, "resource_name_filter": name} for name in ("t", "of-kafka")]
        deleted = ask(cluster, 1, "DeleteAcls", 3, filters=everything)
        assert [len(each.matching_acls) for each in deleted.filter_results] == [3, 2]
        until_both_have(cluster, {"of-kbroker"})
        assert not refuses(cluster, 1) and not refuses(cluster, 2)
        cluster.nodes[1].stop()
        deleted = ask(cluster, 2, "DeleteAcls", 3, filters=[EVERYTHING])
        assert len(deleted.filter_results[0].matching_acls) == 1
        cluster.nodes[1].start()
        assert described(cluster, 1) == set()
