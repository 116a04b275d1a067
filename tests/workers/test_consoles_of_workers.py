"""The consoles of the workers of a host: each is there, and each changes what another one leads or coordinates.

Also of `kbroker.console.brokers`, `kbroker.console.manage.replicas`, `kbroker.console.partition_source`,
`kbroker.supervision.worker_consoles`, `kbroker.supervision.worker_http`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kbroker.cluster.workers.worker_slot import WorkerSlot
from kbroker.metrics.http_messages import Request
from kbroker.supervision.worker_consoles import WorkerConsoles
from tests.console.viewer import Viewer
from tests.workers.processes import QUIET, Workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 2
USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Two workers, whose consoles may change things."""
    workers = Workers(tmp_path_factory.mktemp("host"), COUNT, {"kbroker.console.manage": "true"}).up()
    yield workers
    workers.stop()


def consoles(host: Workers, user: str = "") -> list[Viewer]:
    """Of each worker."""
    return [Viewer(host.metrics_port, user, f"/console/{number}") for number in range(1, COUNT + 1)]


def test_each_worker_has_a_console(host: Workers) -> None:
    """Of a host with workers nothing could be seen in a browser."""
    assert f"console on http://127.0.0.1:{host.metrics_port}/console/\n" in host.output()
    assert Viewer(host.metrics_port).get("/console/").headers["location"] == "/console/1/"
    assert Viewer(host.metrics_port).get("/console/2").headers["location"] == "/console/2/"
    for number, viewer in enumerate(consoles(host), 1):
        page = viewer.get(f"/console/{number}/")
        assert page.status == 200 and "default-src 'none'" in page.headers["content-security-policy"]
        known = viewer.get(f"/console/{number}/app.js").headers["etag"]
        assert viewer.get(f"/console/{number}/app.js", If_None_Match=known).status == 304
        assert viewer.ask("overview")["node_id"] == number
        told = viewer.ask("brokers")
        assert [(row["node_id"], row["state"], row["is_here"]) for row in told["page"]["rows"]] == [
            (1, "alive", number == 1),
            (2, "alive", number == 2),
        ]
    assert Viewer(host.metrics_port).get("/console/3/").status == 404
    assert Viewer(host.metrics_port).get("/console/x/").status == 404
    first, _ = consoles(host)
    assert first.get("/console/1/api/overview", Host="evil.example").status == 421
    assert first.get("/console/1/api/overview", Origin="http://evil.example").status == 403
    answer = first.post("plan", {"action": "topic.create", "fields": {"name": "x"}}, Origin="http://evil.example")
    assert answer.status == 403


def test_each_console_changes_what_any_worker_leads_or_coordinates(host: Workers) -> None:
    """Half of the records, groups and settings could not be changed from the page that a person looks at."""
    for number, viewer in enumerate(consoles(host), 1):
        name, group = f"of-{number}", f"group of {number}"
        viewer.do("topic.create", name=name, partitions=4)
        led = {row["partition"]: row["leader"] for row in viewer.ask("topic", name=name)["partitions"]}
        assert set(led.values()) == {1, 2}
        records = [{"key": f"k{index}", "value": "x", "partition": index % 4} for index in range(8)]
        assert viewer.do("produce", topic=name, records=records)["sentences"] == ["8 records are written."]
        for reader in consoles(host):
            told = reader.ask("ends", topic=name)
            assert (told["starts"], told["ends"]) == ([0] * 4, [2] * 4)
            for index in range(4):
                for asked in ({"from": "newest"}, {"from": "oldest"}, {"from": "time", "value": 1}):
                    shown = reader.ask("messages", topic=name, partition=index, committed="yes", **asked)
                    keys = [row["key"]["text"] for row in shown["records"]]
                    assert keys == [f"k{index}", f"k{index + 4}"] and shown["end_offset"] == 2
            file = reader.get(f"{reader.root}/api/download?topic={name}&from=oldest&filter=value%3D%22x%22")
            assert len(file.body.splitlines()) == 8 and file.headers["content-disposition"]
        settings = {**QUIET, "bootstrap.servers": host.bootstrap, "group.id": group}
        consumer = Consumer(settings)
        consumer.commit(offsets=[TopicPartition(name, index, 2) for index in range(4)], asynchronous=False)
        consumer.close()
        seen = [reader.get(f"{reader.root}/api/group?id={group.replace(' ', '%20')}") for reader in consoles(host)]
        (told,) = [each.value for each in seen if each.status == 200]
        assert [(row["end"], row["lag"]) for row in told["offsets"]] == [(2, 0)] * 4
        assert "another broker coordinates" in next(each.value["error"] for each in seen if each.status == 404)
        for reader in consoles(host):
            parts = reader.ask("topic", name=name)["partitions"]
            assert [(row["first"], row["end"]) for row in parts] == [(0, 2)] * 4
        plan = viewer.plan("group.reset", id=group, where="earliest")
        assert plan["table"]["rows"] == [[name, index, 2, 0, -2] for index in range(4)]
        assert viewer.perform(plan)["sentences"] == ["4 offsets are committed."]
        viewer.do("topic.truncate", name=name, where="offset", value=1)
        viewer.do("topic.partitions", name=name, count=5)
        viewer.do("topic.configure", name=name, set={"retention.ms": "90000"})
        for node_id in ("1", "2"):
            viewer.do("broker.configure", name=node_id, set={"log.cleaner.threads": "2"})
            viewer.do("broker.configure", name=node_id, unset=["log.cleaner.threads"])
        viewer.do("group.delete", id=group)
        viewer.do("topic.delete", name=name)


def test_replicas_are_moved_and_preferred_leaders_elected(host: Workers) -> None:
    """A person would have to write a file of JSON for a command to move one partition."""
    first, second = consoles(host)
    second.do("topic.create", name="moved", partitions=2, replicas=1)
    plan = second.plan("topic.reassign", name="moved", partition=0, brokers="2,1", replicas=2)
    (row,) = plan["table"]["rows"]
    assert (row[0], row[2]) == (0, "2, 1") and "copied whole" in plan["sentences"][1]
    assert second.perform(plan)["sentences"] == ["1 move is begun."]

    def is_there(told: Any) -> bool:
        part = told["partitions"][0]
        return part["replicas"] == [2, 1] and set(part["isr"]) == {1, 2} and not part["is_moving"]

    told = first.wait("topic", is_there, name="moved")
    if told["partitions"][0]["leader"] != 2:
        assert first.do("topic.elect", name="moved")["sentences"] == ["1 leader is elected."]
    first.wait("topic", lambda told: told["partitions"][0]["leader"] == 2, name="moved")
    assert "nothing would change" in first.cannot("topic.elect", name="moved", partition=0)[2]
    assert "nothing would change" in first.cannot("topic.reassign", name="moved", partition=0, brokers="2,1")[2]
    assert "there is no broker 9" in first.cannot("topic.reassign", name="moved", brokers="9", replicas=1)[2]
    assert "each once" in first.cannot("topic.reassign", name="moved", brokers="1,1")[2]
    assert "no replica" in first.cannot("topic.reassign.cancel", name="moved")[2]
    first.do("topic.delete", name="moved")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Two workers with ACLs and a listener with SASL."""
    directory = tmp_path_factory.mktemp("secured")
    workers = Workers(directory, COUNT, {})
    listener = "listener.name.sasl_plaintext"
    login = f'{USERS} username="admin" password="admin-secret" user_admin="admin-secret";'
    workers.overrides |= {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{workers.port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{listener}.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "kbroker.metrics.authentication": "basic,bearer",
        "kbroker.metrics.bearer.token": "token",
        "kbroker.metrics.bearer.principal": "User:admin",
        "kbroker.console.manage": "true",
    }
    yield workers.up()
    workers.stop()


def test_a_viewer_logs_in_at_the_other_worker_as_itself(secured: Workers) -> None:
    """What another worker leads would be changed with the broker's rights, or not at all."""
    first, second = consoles(secured)
    for viewer in (first, second):
        viewer.proof = {"Authorization": "Bearer token"}
    first.do("user.password", name="bob", mechanism="SCRAM-SHA-256", secret="builder")
    for acl in (("TOPIC", "ALL"), ("GROUP", "ALL")):
        second.do("acl.add", kind=acl[0], operation=acl[1], name="app-", pattern="PREFIXED", principal="User:bob")
    first.do("topic.create", name="app-1", partitions=4)
    first.do("topic.create", name="other", partitions=4)
    bobs = consoles(secured, "bob:builder")
    for viewer in bobs:
        records = [{"value": "x", "partition": index} for index in range(4)]
        assert viewer.do("produce", topic="app-1", records=records)["sentences"] == ["4 records are written."]
        assert viewer.cannot("produce", topic="other", records=records)[0] == 404
    for viewer in consoles(secured, "admin:admin-secret"):
        viewer.do("produce", topic="other", records=records)
    # A token is no name and password: it works where it was shown, and says so elsewhere.
    led = {row["partition"]: row["leader"] for row in first.ask("topic", name="app-1")["partitions"]}
    (here, *_), (there, *_) = ([index for index, node in led.items() if node == number] for number in (1, 2))
    first.do("produce", topic="app-1", records=[{"value": "x", "partition": here}])
    plan = first.plan("produce", topic="app-1", records=[{"value": "x", "partition": there}])
    (failure,) = first.perform(plan)["failures"]
    assert "use the console of that broker" in failure


def test_a_worker_that_does_not_answer_is_told() -> None:
    """The page of a worker that starts would be an error of Python, or wait for good."""

    async def scenario() -> None:
        site = WorkerConsoles({1: WorkerSlot(1, 1, "@nobody-listens-there")}, {})
        answer = await site(Request("GET", "/console/1/api/overview", "", "", False, True))
        assert answer.status == 503 and b"worker 1 does not answer" in answer.body

    asyncio.run(scenario())
