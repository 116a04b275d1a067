"""Ports, directories and ids of workers: what a user has to know to reach them and to find the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.cluster.workers.worker_slot import (
    ONE_REPLICA,
    WorkerSlot,
    WorkerSlotError,
    check_count,
    worker_count,
    worker_settings,
)
from kbroker.config import BrokerConfig


def host(tmp_path: Path, **values: str) -> BrokerConfig:
    """The settings of a host."""
    named = {key.replace("_", "."): value for key, value in values.items()}
    return BrokerConfig.from_mapping({"log.dirs": f"{tmp_path}/a,{tmp_path}/b", **named})


def hold(directory: Path, *partitions: str) -> None:
    """Directories of partitions in a worker's log directory."""
    for name in (*partitions, "workers-of-old.txt"):
        (directory / name).mkdir(parents=True)


def test_worker_1_is_the_broker_of_the_settings(tmp_path: Path) -> None:
    """A single broker's directory would have to be moved to get a second worker."""
    config = host(tmp_path, node_id="7", listeners="PLAINTEXT://127.0.0.1:9092")
    assert worker_settings(config, 1, 3) == dict.fromkeys(ONE_REPLICA, "1")


def test_other_workers_have_ports_ids_and_directories_that_follow(tmp_path: Path) -> None:
    """Two processes would want one port or one directory, and documentation and firewall would not know the others."""
    config = host(
        tmp_path,
        node_id="7",
        listeners="PLAINTEXT://0.0.0.0:9092,INNER://[::1]:9192",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        advertised_listeners="PLAINTEXT://broker.example:19092,INNER://inner:9192",
    )
    found = worker_settings(config, 3, 4)
    assert found["node.id"] == "9"
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:9094,INNER://[::1]:9194"
    assert found["advertised.listeners"] == "PLAINTEXT://broker.example:19094,INNER://inner:9194"
    assert found["log.dirs"] == f"{tmp_path}/a/workers/3,{tmp_path}/b/workers/3"


def test_port_0_stays_any_port(tmp_path: Path) -> None:
    """Port 1 is not what the system would choose."""
    assert worker_settings(host(tmp_path, listeners="PLAINTEXT://:0"), 2, 2)["listeners"] == "PLAINTEXT://:0"


def test_internal_topics_have_one_replica_unless_more_are_asked_for(tmp_path: Path) -> None:
    """Each commit of an offset would be written three times to the same disk, or a wish for that would be ignored."""
    config = host(tmp_path, offsets_topic_replication_factor="3")
    found = worker_settings(config, 2, 3)
    assert "offsets.topic.replication.factor" not in found
    assert found["transaction.state.log.replication.factor"] == "1"


@pytest.mark.parametrize(
    ("values", "count", "word"),
    [
        ({"listeners": "PLAINTEXT://:65534"}, 3, "port 65536 does not exist"),
        (
            {
                "listeners": "PLAINTEXT://:9092,INNER://:9094",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
            },
            3,
            "both would have 9094",
        ),
        ({"zookeeper_connect": "zk:2181"}, 2, "do not go together"),
        (
            {
                "process_roles": "broker",
                "controller_quorum_voters": "9@c:9093",
                "controller_listener_names": "CONTROLLER",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            2,
            "process.roles=broker do not go together",
        ),
    ],
)
def test_settings_without_room_are_refused(tmp_path: Path, values: dict[str, str], count: int, word: str) -> None:
    """The last worker would fail to start, after the others have begun."""
    with pytest.raises(WorkerSlotError, match=word):
        check_count(host(tmp_path, **values), count)


def test_an_ipv4_and_an_ipv6_address_may_share_their_ports(tmp_path: Path) -> None:
    """A single broker may do so, and could not get a second worker."""
    config = host(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT",
    )
    assert worker_settings(config, 2, 2)["listeners"] == "PLAINTEXT://127.0.0.1:9093,SIX://[::1]:9093"


def test_fewer_workers_are_refused_while_the_others_hold_partitions(tmp_path: Path) -> None:
    """Their partitions would be offline, and the reason would be nowhere to be seen."""
    hold(tmp_path / "a" / "workers" / "2", "orders-0")
    hold(tmp_path / "a" / "workers" / "4", "orders-1", "orders-2")
    hold(tmp_path / "b" / "workers" / "4", "clicks-0")
    config = host(tmp_path)
    check_count(config, 4)
    with pytest.raises(WorkerSlotError, match=r"3 replicas .* worker 4 .*--workers 4"):
        check_count(config, 2)
    with pytest.raises(WorkerSlotError, match=r"4 replicas .* worker 2, 4"):
        check_count(config, 1)


def test_fewer_workers_are_fine_where_the_others_hold_nothing(tmp_path: Path) -> None:
    """A host that was once tried with more workers could never go back."""
    hold(tmp_path / "a" / "workers" / "4")
    check_count(host(tmp_path), 1)


def test_auto_is_one_for_each_processor_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with two processors of 64 would get 64 workers."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {1, 5, 6})
    assert worker_count(host(tmp_path, kbroker_workers="auto")) == 3
    assert worker_count(host(tmp_path)) == 1


def test_a_place_comes_over_a_command_line() -> None:
    """The worker would be another one than its supervisor meant."""
    slot = WorkerSlot(2, 16, "@kbroker-0a:b", 5)
    assert WorkerSlot.parse(slot.text()) == slot
    assert slot.others(node_id=8) == set(range(7, 23)) - {8}
