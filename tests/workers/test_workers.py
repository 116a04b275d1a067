"""Real workers under real clients: one cluster, whichever of its processes dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.compat.waiting import wait_for
from tests.workers.processes import Deliveries, Workers, committed, is_running, read_all

NUMBERS = (1, 2, 3)
KBROKER = (sys.executable, "-m", "kbroker.cli")


def make(workers: Workers, topics: dict[str, int]) -> None:
    """Topics of six partitions, with their replication factors."""
    wanted = [NewTopic(name, 6, replicas) for name, replicas in topics.items()]
    for made in workers.admin.create_topics(wanted).values():
        made.result(30)


def partitions_of(directory: Path) -> list[str]:
    """The partitions that lie there."""
    return [each.name for each in directory.iterdir() if each.is_dir() and each.name.rpartition("-")[2].isdigit()]


def test_three_workers_are_one_cluster_that_survives_its_processes(tmp_path: Path) -> None:
    """Nothing that was acknowledged may be lost with a worker, nor its partitions stay away; after a stop everything
    is there again, and no process is left behind by a supervisor that was killed."""
    workers = Workers(tmp_path, 3).up()
    try:
        known = workers.admin.list_topics(timeout=30).brokers
        assert {node: broker.port for node, broker in known.items()} == {
            number: workers.port + number - 1 for number in NUMBERS
        }
        make(workers, {"one": 1, "three": 3})
        leaders = [
            each.leader for each in workers.admin.list_topics("one", timeout=30).topics["one"].partitions.values()
        ]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]

        deliveries = Deliveries(workers.bootstrap)
        for topic in ("one", "three"):
            deliveries.send(topic, 200)
        wait_for(lambda: deliveries.poll() > 100, "the first records", seconds=60)
        killed = workers.kill_worker(2)
        for topic in ("one", "three"):
            deliveries.send(topic, 200)
        deliveries.finish()
        assert deliveries.failed == []
        workers.wait_until_ready()
        assert workers.worker_pid(2) != killed
        acknowledged = set(deliveries.acknowledged)
        assert len(acknowledged) == 800
        found = read_all(workers.bootstrap, "group", ["one", "three"], acknowledged)
        assert sorted(found) == sorted(acknowledged)

        page = workers.metrics()
        assert 'kbroker_worker_up{worker="2"} 1.0' in page
        assert 'kbroker_worker_restarts{worker="2"} 1.0' in page
        assert all(f'kbroker_partition_log_end_offset{{worker="{number}"' in page for number in NUMBERS)
        page = workers.metrics("/metrics/kafka")
        shown = re.findall(r'kafka_topic_partition_leader\{worker="(\d)",partition="\d",topic="one"\} (\d)', page)
        assert sorted(shown) == [(str(leader), str(leader)) for leader in sorted(leaders)]

        pids = [workers.worker_pid(number) for number in NUMBERS]
        assert workers.stop() == 0
        assert not any(map(is_running, pids))
        workers.up()
        assert committed(workers.bootstrap, "group", "one", 6) == 400
        pids = [workers.worker_pid(number) for number in NUMBERS]
        workers.kill()
        wait_for(lambda: not any(map(is_running, pids)), "the workers' end", seconds=60)
        assert all((workers.worker_directory(number) / ".kafka_cleanshutdown").exists() for number in NUMBERS)
    finally:
        workers.close()
    workers.count = 2
    refused = subprocess.run(workers.command(), capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "are in the directories of worker 3" in refused.stderr


@pytest.mark.slow
def test_each_worker_and_the_controller_may_die_under_load(tmp_path: Path) -> None:
    """Among them the one that decides who leads, and two in turn that follow each other closely."""
    workers = Workers(tmp_path, 3).up()
    try:
        make(workers, {"one": 1, "three": 3})
        deliveries = Deliveries(workers.bootstrap)
        for number in (2, 1, 3, 1, 2):
            target = deliveries.poll() + 400
            for topic in ("one", "three"):
                deliveries.send(topic, 300)
            wait_for(lambda target=target: deliveries.poll() >= target, "records between two deaths", seconds=60)
            workers.kill_worker(number)
            deliveries.send("three", 100)
        deliveries.finish()
        assert deliveries.failed == []
        workers.wait_until_ready()
        found = read_all(workers.bootstrap, "group", ["one", "three"], set(deliveries.acknowledged))
        assert len(found) == len(set(found))
        command = [*KBROKER, "cluster", "status", "--bootstrap-server", workers.bootstrap]

        def status() -> str:
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

        wait_for(lambda: "0 under-replicated, 0 offline" in status(), "all replicas to be in sync again", seconds=60)
    finally:
        workers.close()


@pytest.mark.slow
def test_a_single_brokers_directory_is_that_of_worker_1_and_back(tmp_path: Path) -> None:
    """To use a second core would cost a move of all data, and the way back would be closed."""
    workers = Workers(tmp_path, 1)
    workers.start()
    try:
        make(workers, {"old": 1})
        deliveries = Deliveries(workers.bootstrap)
        deliveries.send("old", 100)
        deliveries.finish()
        workers.stop()
        workers.count = 2
        workers.up()
        make(workers, {"new": 1, "copied": 2})
        for topic in ("new", "copied"):
            deliveries.send(topic, 100)
        deliveries.finish()
        read_all(workers.bootstrap, "group", ["old", "new", "copied"], set(deliveries.acknowledged))
        assert partitions_of(workers.worker_directory(2))
        command = [*KBROKER, "cluster", "drain", "2", "--bootstrap-server", workers.bootstrap]
        drained = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert drained.returncode == 0, drained
        wait_for(lambda: not partitions_of(workers.worker_directory(2)), "worker 2 to be empty", seconds=60)
        workers.stop()
        workers.count = 1
        workers.start()
        found = read_all(workers.bootstrap, "other", ["old", "new", "copied"], set(deliveries.acknowledged))
        assert len(found) == 300
    finally:
        workers.close()


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_the_start_of_all(tmp_path: Path) -> None:
    """The service manager would wait for a host that never becomes ready, with the others left over."""
    workers = Workers(tmp_path, 2)
    (tmp_path / "data" / "workers").mkdir(parents=True)
    (tmp_path / "data" / "workers" / "2").write_text("a file where the directory should be")
    workers.spawn()
    assert workers.wait(60) == 1
    # Worker 1 looks at the directories of all, so either may say so first.
    assert re.search(r"cannot start: .*/workers/2'", workers.output())
    assert re.search(r"worker [12] could not start", workers.output())


@pytest.mark.slow
def test_an_impatient_second_signal_ends_everything(tmp_path: Path) -> None:
    """A stop that hangs could only be ended process by process."""
    workers = Workers(tmp_path, 2).up()
    pids = [workers.worker_pid(number) for number in (1, 2)]
    os.kill(pids[1], signal.SIGSTOP)
    assert workers.process is not None
    workers.process.terminate()
    wait_for(lambda: not is_running(pids[0]), "the end of worker 1", seconds=60)
    assert workers.running
    workers.kill()
    os.kill(pids[1], signal.SIGCONT)
    wait_for(lambda: not is_running(pids[1]), "the end of worker 2", seconds=60)
