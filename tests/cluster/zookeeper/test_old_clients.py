"""Kafka 0.8.2.2's clients and tools against a cluster of kbroker: groups in ZooKeeper, and their way out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kazoo.exceptions import NoNodeError

from kbroker.cli.main import run
from kbroker.client.connection import Connection
from kbroker.schemas import wire
from tests.broker_process import BrokerProcess
from tests.cluster.zookeeper.old_tools import (
    HighLevelConsumer,
    OldProcess,
    consumer_settings,
    tool,
    write_properties,
)
from tests.cluster.zookeeper.processes import Cluster, Kbroker, running
from tests.compat.old_clients import SIMPLE
from tests.compat.old_clients import run as run_client
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]
SETTINGS = {"offsets.topic.num.partitions": "1"}
ASSIGNMENT = [[1, 2], [2, 1], [1, 2], [2, 1]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path, [Kbroker] * 2, SETTINGS) as found:
        yield found


def values(prefix: str, count: int = 200) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def owners(cluster: Cluster, group: str, topic: str) -> dict[int, str]:
    """The member that owns each partition, without its thread."""
    path, client = f"/consumers/{group}/owners/{topic}", cluster.zookeeper
    found: dict[int, str] = {}
    # Consumers that share anew delete and make them meanwhile.
    with suppress(NoNodeError):
        for index in client.get_children(path):
            with suppress(NoNodeError):
                found[int(index)] = client.get(f"{path}/{index}")[0].decode().rpartition("-")[0]
    return found


def kept(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    """The offsets that a group has in ZooKeeper."""
    path, client = f"/consumers/{group}/offsets/{topic}", cluster.zookeeper
    try:
        return {int(index): int(client.get(f"{path}/{index}")[0]) for index in client.get_children(path)}
    except NoNodeError:
        return {}


def test_the_high_level_consumer_shares_rebalances_survives_a_broker_and_moves_to_brokers(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Consumers that nobody can rebuild would lose records, or could only leave ZooKeeper by reading all again."""
    zookeeper = cluster.server.address
    cluster.create("t", ASSIGNMENT)
    cluster.wait_isr("t", 4, {1, 2})
    cluster.produce("t", values("a"))
    with ExitStack() as ended:
        first = HighLevelConsumer(tmp_path, "first", zookeeper, "g", "t", beginning=True)
        ended.callback(first.kill)
        first.wait_lines(200)
        wait_for(lambda: len(set(owners(cluster, "g", "t"))) == 4, "the first to own all partitions")
        second = HighLevelConsumer(tmp_path, "second", zookeeper, "g", "t", beginning=False)
        ended.callback(second.kill)

        def shared() -> bool:
            found = owners(cluster, "g", "t")
            return len(found) == 4 and sorted(list(found.values()).count(each) for each in set(found.values())) == [
                2,
                2,
            ]

        wait_for(shared, "both to own two partitions each", seconds=60)
        for partition in range(4):
            cluster.produce("t", values("b")[partition::4], partition)
        wait_for(lambda: read(first, second) >= {*values("a"), *values("b")}, "all records of b", seconds=60)
        assert set(second.lines()) & set(values("b"))

        # A broker dies: the consumers find the new leaders by the other one.
        cluster.nodes[2].kill()
        cluster.wait_isr("t", 4, {1})
        cluster.produce("t", values("c"))
        wait_for(lambda: read(first, second) >= set(values("c")), "all records of c", seconds=60)
        cluster.nodes[2].start()
        cluster.wait_isr("t", 4, {1, 2})

        # A consumer dies: its partitions go to the other one when its session ends.
        second.kill()
        wait_for(lambda: len(set(owners(cluster, "g", "t").values())) == 1, "the partitions to come back", seconds=60)
        wait_for(lambda: len(owners(cluster, "g", "t")) == 4, "the first to own all partitions", seconds=60)
        cluster.produce("t", values("d"))
        wait_for(lambda: read(first) >= set(values("d")), "all records of d", seconds=60)
        assert "t" in tool(
            "kafka.tools.ConsumerOffsetChecker", "--zookeeper", zookeeper, "--group", "g", "--topic", "t"
        )

        def ask(*arguments: str) -> tuple[int, str, str]:
            status = run(["groups", *arguments, "--zookeeper", zookeeper])
            return status, *capsys.readouterr()

        brokers = ("-b", cluster.bootstrap, "--json")
        assert json.loads(ask("list", "--json")[1]) == [{"group": "g", "members": 1, "offsets": 4, "alive": True}]
        wait_for(lambda: sum(kept(cluster, "g", "t").values()) == 800, "all offsets to be committed")
        described = json.loads(ask("describe", "g", *brokers)[1])[0]
        assert [each["lag"] for each in described["partitions"]] == [0] * 4
        assert len(described["members"]) == 1
        assert described["members"][0]["threads"] == {"t": 1}
        assert {each["owner"].rpartition("-")[0] for each in described["partitions"]} == {
            each["member"] for each in described["members"]
        }
        status, _, error = ask("move-offsets", "g", "--execute", *brokers)
        assert status == 1
        assert "consumers of the group run" in error
        first.stop()
    cluster.produce("t", values("e"))
    described = json.loads(ask("describe", "g", *brokers)[1])[0]
    assert sum(each["lag"] for each in described["partitions"]) == 200
    assert described["members"] == []
    moved = json.loads(ask("move-offsets", "g", *brokers)[1])[0]
    assert not moved["executed"]
    assert sum(each["new_offset"] for each in moved["partitions"]) == 800
    assert ask("move-offsets", "g", "--execute", *brokers)[0] == 0
    assert [each["stays"] for each in json.loads(ask("move-offsets", "g", *brokers)[1])[0]["partitions"]] == [
        "committed already"
    ] * 4
    assert sorted(read_on(cluster, "g", "t", 200)) == sorted(values("e"))


def read(*consumers: OldProcess) -> set[str]:
    return {line for each in consumers for line in each.lines()}


def read_on(cluster: Cluster, group: str, topic: str, count: int) -> list[str]:
    """What a new consumer of the group finds from its committed offsets on."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "error"})
    consumer.subscribe([topic])
    found: list[str] = []

    def enough() -> bool:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())
        return len(found) >= count

    wait_for(enough, f"{count} records of {topic}", seconds=60)
    consumer.close()
    return found


def find_a_coordinator(cluster: Cluster) -> None:
    """The request has the topic of the groups' state made."""
    request = wire.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    with Connection("127.0.0.1", cluster.nodes[1].port) as connection:
        wait_for(lambda: connection.send(request).coordinators[0].error_code == 0, "a coordinator", seconds=60)


def test_the_simple_consumer_commits_to_zookeeper_in_version_0_and_to_brokers_in_version_1(cluster: Cluster) -> None:
    """A program around the simple consumer would start again from another place than it left off."""
    find_a_coordinator(cluster)
    leader = int(cluster.state("__consumer_offsets", 0)["leader"])
    other = 3 - leader
    cluster.create("s", [[leader, other]] * 2)
    cluster.wait_isr("s", 2, {1, 2})
    address = f"127.0.0.1:{cluster.nodes[leader].port}"
    for codec in ("none", "gzip", "snappy"):
        run_client(SIMPLE("produce", cluster.bootstrap, "s", "60", codec))
    lines = run_client(SIMPLE("consume", address, "s", "180", "simple"))
    reached = {int(line[2]): int(line[3]) for line in lines if line[:2] == ["committed", "0"]}
    assert sum(reached.values()) == 180
    assert kept(cluster, "simple0", "s") == reached
    assert kept(cluster, "simple1", "s") == {}
    assert {int(line[2]): int(line[3]) for line in lines if line[:2] == ["committed", "1"]} == reached


def test_mirror_maker_copies_from_a_cluster_of_kbroker(cluster: Cluster, tmp_path: Path) -> None:
    """Copies between data centers that have run for years would stop."""
    zookeeper = cluster.server.address
    cluster.create("m", ASSIGNMENT)
    cluster.wait_isr("m", 4, {1, 2})
    with ExitStack() as ended:
        target = BrokerProcess(tmp_path / "target", {"num.partitions": "2", "auto.create.topics.enable": "true"})
        target.start()
        ended.callback(target.kill)
        reader = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"})
        ended.callback(reader.close)
        expected: set[str] = set()
        for kind, extra in (("old", ()), ("new", ("--new.producer",))):
            source = write_properties(
                tmp_path / f"{kind}-source.properties", consumer_settings(zookeeper, f"mirror-{kind}")
            )
            names = {"old": "metadata.broker.list", "new": "bootstrap.servers"}
            sink = write_properties(
                tmp_path / f"{kind}-sink.properties",
                {names[kind]: target.bootstrap, "request.required.acks": "-1", "acks": "all", "producer.type": "sync"},
            )
            mirror = OldProcess(
                tmp_path,
                f"mirror-{kind}",
                "kafka.tools.MirrorMaker",
                *("--consumer.config", str(source), "--producer.config", str(sink), "--whitelist", "m", *extra),
            )
            ended.callback(mirror.kill)
            wait_for(
                lambda group=f"mirror-{kind}": len(owners(cluster, group, "m")) == 4, "the mirror to start", seconds=60
            )
            fresh = values(kind)
            cluster.produce("m", fresh)
            expected |= set(fresh)
            if kind == "old":
                reader.subscribe(["m"])
            found: set[str] = set()

            def all_there(wanted: frozenset[str] = frozenset(fresh), found: set[str] = found) -> bool:
                for message in reader.consume(100, 0.5):
                    if message.error() is None:
                        found.add((message.value() or b"").decode())
                return found >= wanted

            wait_for(all_there, f"the copies of the {kind} producer", seconds=90)
            mirror.stop()


def test_topics_are_made_shown_and_deleted_by_the_tool_that_writes_zookeeper(cluster: Cluster) -> None:
    """Scripts of the time before brokers took such requests would make topics that no broker serves."""
    zookeeper = cluster.server.address
    topics = ("kafka.admin.TopicCommand", "--zookeeper", zookeeper)
    tool(*topics, "--create", "--topic", "o", "--partitions", "2", "--replication-factor", "2")
    wait_for(lambda: cluster.zookeeper.exists("/brokers/topics/o/partitions/1/state"), "the controller to take it up")
    cluster.wait_isr("o", 2, {1, 2})
    wait_for(lambda: "topic_id" in cluster.json("/brokers/topics/o"), "the controller to give it an id")
    lines = "".join(f"line {each}\n" for each in range(20))
    tool("kafka.tools.ConsoleProducer", "--broker-list", cluster.bootstrap, "--topic", "o", stdin=lines)
    assert sorted(cluster.consume("o", 2, 20)) == sorted(lines.splitlines())
    assert "Leader: " in tool(*topics, "--describe", "--topic", "o")
    tool(*topics, "--alter", "--topic", "o", "--partitions", "3")
    wait_for(lambda: cluster.zookeeper.exists("/brokers/topics/o/partitions/2/state"), "the third partition")
    # A producer of that time writes to one partition for ten minutes, whichever that is.
    shown = [
        tool(
            "kafka.tools.SimpleConsumerShell",
            *("--broker-list", cluster.bootstrap, "--topic", "o", "--partition", partition, "--no-wait-at-logend"),
        )
        for partition in "01"
    ]
    assert set(lines.splitlines()) <= set("".join(shown).splitlines())
    tool(*topics, "--delete", "--topic", "o")
    wait_for(lambda: not cluster.zookeeper.exists("/brokers/topics/o"), "the topic to go")
