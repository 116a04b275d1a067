"""A broker that settings name as its cluster's one controller, as a process: from nothing, and from an earlier store.

Of `kbroker.assembly.own_quorum`, and of `kbroker.cluster.controller.brokers` where a broker of the controller's own
process comes back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kbroker.metadata.local_store import FILE_NAME
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.ports import free_port

pytestmark = pytest.mark.timeout(120)
RECORDS = 200


def quorum_settings(port: int, controller_port: int, node_id: int = 1, at: int | None = None) -> dict[str, str]:
    """Of a node that is broker and controller; `at`: the port of the controller that it knows, its own without it."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": f"localhost:{at or controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
    }


def node(folder: Path) -> BrokerProcess:
    """One that begins with nothing."""
    port = free_port()
    return BrokerProcess(folder, quorum_settings(port, free_port()), port=port)


def fill(port: int) -> None:
    """A topic with a setting and records, a user, and the offsets of a group."""
    bootstrap = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
    admin = AdminClient(bootstrap)
    admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "777777777"})])["t"].result(30)
    user = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", user, b"pw")])["alice"].result(30)
    producer = Producer(bootstrap)
    for number in range(RECORDS):
        producer.produce("t", str(number), partition=number % 2)
    assert producer.flush(30) == 0
    consumer = Consumer({**bootstrap, "group.id": "g"})
    offsets = [TopicPartition("t", 0, 17), TopicPartition("t", 1, 18)]
    consumer.committed(offsets, 30)  # It waits for the coordinator, which a commit does not.
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def check_is_filled(port: int) -> None:
    """All of it is there."""
    bootstrap = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
    admin = AdminClient(bootstrap)
    assert list(admin.describe_user_scram_credentials(["alice"])["alice"].result(30).scram_credential_infos)
    consumer = Consumer({**bootstrap, "group.id": "g", "enable.auto.commit": False})
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert [each.offset for each in consumer.committed(partitions, 30)] == [17, 18]
    assert [consumer.get_watermark_offsets(each, 30) for each in partitions] == [(0, RECORDS // 2)] * 2
    consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
    found: list[int] = []
    wait_for(lambda: _polled(consumer, found) == RECORDS, "all records to be read", seconds=30)
    assert sorted(found) == list(range(RECORDS))
    consumer.close()


def _polled(consumer: Consumer, found: list[int]) -> int:
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        found.append(int(message.value()))
    return len(found)


def test_a_node_of_its_own_begins_with_nothing_and_comes_back_from_a_kill(tmp_path: Path) -> None:
    """A newcomer would have to format directories; after a kill the node would wait for its own session's end."""
    broker = node(tmp_path)
    with broker:
        fill(broker.port)
        broker.kill()
        broker.start()
        assert "DUPLICATE_BROKER_REGISTRATION" not in broker.output()
        check_is_filled(broker.port)
        assert broker.stop() == 0
        broker.start()
        check_is_filled(broker.port)
    assert not (broker.data_dir / FILE_NAME).exists()


@pytest.mark.parametrize("ends_in_order", [True, False], ids=["stopped", "killed"])
def test_an_earlier_kbroker_becomes_a_controller(tmp_path: Path, ends_in_order: bool) -> None:
    """Topics, settings, users, offsets or records would be gone with the settings of a controller."""
    port = free_port()
    earlier = BrokerProcess(tmp_path, {"node.id": "1"}, port=port)
    with earlier:
        fill(port)
        if ends_in_order:
            earlier.stop()
        else:
            earlier.kill()
    broker = BrokerProcess(tmp_path, quorum_settings(port, free_port()), port=port)
    with broker:
        check_is_filled(port)
        assert "has become the metadata log of this node" in broker.output()
        broker.stop()
        broker.start()
        check_is_filled(port)
    assert (broker.data_dir / f"{FILE_NAME}.exported").exists()


def test_a_second_node_joins_a_quorum_of_one(tmp_path: Path) -> None:
    """Who begins with one node could not grow without a new cluster."""
    first = node(tmp_path / "1")
    controller = int(str(first.overrides["controller.quorum.bootstrap.servers"]).rpartition(":")[2])
    port, own = free_port(), free_port()
    settings = {**quorum_settings(port, own, 2, controller), "controller.quorum.auto.join.enable": "true"}
    second = BrokerProcess(tmp_path / "2", settings, port=port)
    with first:
        fill(first.port)
        described = _said("cluster", "quorum", "describe", "-b", f"127.0.0.1:{first.port}")
        cluster_id = described["cluster_id"]
        _said("format", "--cluster-id", cluster_id, "--no-initial-controllers", str(_written(second, settings)))
        with second:
            wait_for(lambda: len(_voters(first.port)) == 2, "the second node to be a voter", seconds=60)
            assert _voters(second.port) == [1, 2]
            check_is_filled(second.port)


def _said(*words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "kbroker.cli", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def _voters(port: int) -> list[int]:
    found = _said("cluster", "quorum", "describe", "-b", f"127.0.0.1:{port}")
    return sorted(each["id"] for each in found["replicas"] if each["role"] != "observer")


def _written(broker: BrokerProcess, settings: dict[str, str]) -> Path:
    path = broker.data_dir.parent / "server.properties"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={each}\n" for key, each in {**settings, "log.dirs": str(broker.data_dir)}.items()))
    return path
