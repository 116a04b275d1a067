"""Clusters on real ZooKeeper 3.9 behind TLS and SASL, in a part of its tree, and on an ensemble that loses a member."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from kbroker.cli.main import run
from tests.broker_process import BrokerError
from tests.cluster.zookeeper.processes import Cluster, Kbroker, running
from tests.compat.waiting import wait_for
from tests.zookeeper_server import Security, ZooKeeperServer, zookeeper_ensemble, zookeeper_server

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]
CHROOT = "/secured/one"
OPEN, READABLE, SECRET = (
    {("world", "anyone", 31)},
    {("sasl", "kafka", 31), ("world", "anyone", 1)},
    {("sasl", "kafka", 31)},
)


def client(server: ZooKeeperServer, security: Security, *, named: bool) -> KazooClient:
    """A client of ZooKeeper with a certificate, and with or without the brokers' name."""
    sasl = {"mechanism": "DIGEST-MD5", "username": security.user, "password": security.password}
    return KazooClient(
        server.address + CHROOT,
        use_ssl=True,
        certfile=str(security.client),
        keyfile=str(security.client),
        ca=str(security.authority),
        sasl_options=sasl if named else None,
    )


@contextmanager
def secured(directory: Path) -> Iterator[tuple[Security, ZooKeeperServer, Cluster]]:
    """A cluster of two behind TLS and SASL, in a part of the tree."""
    security = Security.made(directory / "certificates")
    with (
        zookeeper_server(directory / "zookeeper", security) as server,
        running(
            directory, [Kbroker] * 2, security.of_broker(), [server], CHROOT, client(server, security, named=True)
        ) as cluster,
    ):
        yield security, server, cluster


def test_a_cluster_over_tls_and_sasl_lets_brokers_alone_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Passwords and the cluster's state would cross the network in clear, or any client of ZooKeeper change them."""
    with secured(tmp_path) as (security, server, cluster):
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.produce("t", [f"a{each}" for each in range(100)])
        first = cluster.controller()
        cluster.nodes[first].kill()
        cluster.wait_isr("t", 2, {3 - first})
        cluster.nodes[first].start()
        cluster.wait_isr("t", 2, {1, 2})
        assert len(cluster.consume("t", 2, 100)) == 100
        cluster.zookeeper.create("/consumers/g/offsets/t/0", b"7", makepath=True)

        def access(path: str) -> set[tuple[str, str, int]]:
            return {(each.id.scheme, each.id.id, each.perms) for each in cluster.zookeeper.get_acls(path)[0]}

        readable = ["/brokers/ids/1", "/brokers/topics/t", "/brokers/topics/t/partitions/0/state", "/controller"]
        readable += ["/controller_epoch", "/cluster/id", "/config/topics/t", "/config/changes", "/admin/delete_topics"]
        assert {path: access(path) for path in readable} == dict.fromkeys(readable, READABLE)
        secret = ["/config/users", "/config/brokers"]
        assert {path: access(path) for path in secret} == dict.fromkeys(secret, SECRET)
        assert access("/consumers") == OPEN

        stranger = client(server, security, named=False)
        stranger.start()
        try:
            assert stranger.get_children("/brokers/ids") == ["1", "2"]
            for forbidden in (
                lambda: stranger.set("/brokers/topics/t", b"{}"),
                lambda: stranger.delete("/controller"),
                lambda: stranger.create("/brokers/topics/u", b"{}"),
                lambda: stranger.get_children("/config/users"),
            ):
                with pytest.raises(NoAuthError):
                    forbidden()
            stranger.create("/consumers/h", b"")
        finally:
            stranger.stop()
            stranger.close()

        file = tmp_path / "zookeeper.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in security.of_broker().items()))
        command = ["groups", "list", "--json", "--zookeeper", cluster.connect, "--zookeeper-config", str(file)]
        assert run(command) == 0
        assert [each["group"] for each in json.loads(capsys.readouterr().out)] == ["g", "h"]

        wrong: list[tuple[Mapping[str, str], str]] = [
            ({"kbroker.zookeeper.sasl.password": "wrong"}, "cannot start: .* refuses kbroker.zookeeper.sasl.username"),
            ({"zookeeper.ssl.keystore.location": ""}, "cannot start: .* are the zookeeper.ssl settings"),
            ({"zookeeper.ssl.truststore.location": str(security.client)}, "are the zookeeper.ssl settings"),
        ]
        for number, (settings, text) in enumerate(wrong, 7):
            quick = {**security.of_broker(), "zookeeper.connection.timeout.ms": "2000", **settings}
            with pytest.raises(BrokerError, match=text):
                Kbroker(number, tmp_path / f"wrong-{number}", cluster.connect, quick).start()
        assert cluster.registered() == {1, 2}


def test_a_broker_that_zookeeper_refuses_for_a_while_comes_back(tmp_path: Path) -> None:
    """A broker whose handshake fails once, as a server dies in it, would stay out of the cluster for good."""
    with secured(tmp_path) as (security, server, cluster):
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.zookeeper.stop()
        cluster.zookeeper.close()
        server.stop()
        server.security = replace(security, password="another")
        server.launch()
        server.wait()
        wait_for(
            lambda: all("has refused the broker" in each.output() for each in cluster.nodes.values()),
            "the brokers to be refused",
            seconds=60,
        )
        cluster.produce("t", [f"a{each}" for each in range(100)])
        server.stop()
        server.security = security
        server.launch()
        server.wait()
        cluster.zookeeper = client(server, security, named=True)
        cluster.zookeeper.start()
        cluster.wait_registered({1, 2})
        wait_for(lambda: cluster.controller() > 0, "a controller", seconds=30)
        cluster.nodes[1].kill()
        cluster.wait_isr("t", 2, {2})
        assert len(cluster.consume("t", 2, 100)) == 100


def test_a_cluster_in_a_part_of_the_tree_outlives_the_ensembles_leader(tmp_path: Path) -> None:
    """The death of one ZooKeeper server of three would cost brokers their place, or the cluster its changes."""
    with (
        zookeeper_ensemble(tmp_path / "zookeeper") as servers,
        running(tmp_path, [Kbroker] * 3, servers=servers, chroot="/clusters/one") as cluster,
        running(tmp_path / "two", [Kbroker], servers=servers, chroot="/clusters/two") as other,
    ):
        cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        other.create("u", [[1]])
        assert cluster.zookeeper.get_children("/brokers/topics") == ["t"]
        assert other.zookeeper.get_children("/brokers/topics") == ["u"]
        assert cluster.zookeeper.get("/cluster/id") != other.zookeeper.get("/cluster/id")
        epochs = {each: cluster.zookeeper.exists(f"/brokers/ids/{each}").czxid for each in cluster.nodes}
        controller = cluster.controller()
        for server in servers:
            server.wait()
        leader = next(each for each in servers if each.mode == "leader")
        leader.stop()
        # Nothing that is under way waits for ZooKeeper.
        cluster.produce("t", [f"a{each}" for each in range(300)])

        def made() -> bool:
            try:
                cluster.create("v", [[3, 2, 1]])
            except KafkaException as error:
                assert "exist" not in str(error)
                return False
            return True

        wait_for(made, "a topic to be made", seconds=60)
        cluster.produce("v", ["b"])
        assert {each: cluster.zookeeper.exists(f"/brokers/ids/{each}").czxid for each in cluster.nodes} == epochs
        assert cluster.controller() == controller
        leader.launch()
        leader.wait()
        # The others are away for longer than any session, as only one of three is left.
        frozen = [each for each in servers if each is not leader]
        for each in frozen:
            each.send(signal.SIGSTOP)
        cluster.produce("t", [f"c{each}" for each in range(300)])
        for each in frozen:
            each.send(signal.SIGCONT)
        cluster.wait_registered({1, 2, 3})
        cluster.nodes[controller].kill()
        cluster.wait_isr("t", 3, {1, 2, 3} - {controller})
        cluster.produce("t", [f"d{each}" for each in range(300)])
        assert len(cluster.consume("t", 3, 900)) == 900
