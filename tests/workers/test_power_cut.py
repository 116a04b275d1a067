"""All workers die at once, and the disks have not got all that was written."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from confluent_kafka.admin import NewTopic

from tests.compat.waiting import wait_for
from tests.workers.processes import Deliveries, Workers, is_running, read_all

NUMBERS = (1, 2, 3)
PARTITIONS = 6


def die(workers: Workers) -> None:
    """Kill all at once; the supervisor must not see one of them go first."""
    assert workers.process is not None
    pids = [workers.worker_pid(number) for number in NUMBERS]
    os.kill(workers.process.pid, signal.SIGSTOP)
    for pid in (*pids, workers.process.pid):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, pids)), "the workers' end", seconds=60)
    workers.wait(60)


def lose(workers: Workers, name: str, number: int) -> int:
    """The unsynced end of a log is gone, in the middle of a batch; how many bytes are left."""
    (segment,) = (workers.worker_directory(number) / name).glob("*.log")
    size = segment.stat().st_size
    os.truncate(segment, size * 2 // 5)
    return size * 2 // 5


def is_complete(workers: Workers, topic: str) -> bool:
    """Whether every replica of a topic is in sync."""
    partitions = workers.admin.list_topics(topic, timeout=30).topics[topic].partitions
    return all(len(each.isrs) == 3 for each in partitions.values())


def test_a_power_cut_that_hits_leaders_worse_loses_nothing_that_others_have(tmp_path: Path) -> None:
    """Followers that hold every committed record would truncate them, to be level with a leader that lost them.  A
    partition with one replica serves what is left of it."""
    workers = Workers(tmp_path, 3).up()
    try:
        topics = [NewTopic("one", PARTITIONS, 1), NewTopic("three", PARTITIONS, 3)]
        for made in workers.admin.create_topics(topics).values():
            made.result(30)
        deliveries = Deliveries(workers.bootstrap, **{"batch.num.messages": 5})
        deliveries.send("three", 600)
        deliveries.send("one", 600)
        deliveries.finish()
        assert deliveries.failed == []
        wait_for(lambda: is_complete(workers, "three"), "all replicas to be in sync", seconds=60)
        known = workers.admin.list_topics(timeout=30).topics
        die(workers)
        for topic in ("one", "three"):
            for index, each in known[topic].partitions.items():
                assert lose(workers, f"{topic}-{index}", each.leader)
        workers.up()
        wanted = {value for value in deliveries.acknowledged if value.startswith("three")}
        found = read_all(workers.bootstrap, "group", ["three"], wanted)
        assert sorted(found) == sorted(wanted)
        after = workers.admin.list_topics(timeout=30).topics
        for index, each in after["three"].partitions.items():
            assert each.leader != known["three"].partitions[index].leader
        more = Deliveries(workers.bootstrap)
        more.send("one", 100)
        more.send("three", 100)
        more.finish()
        assert more.failed == []
        wait_for(lambda: is_complete(workers, "three"), "all replicas to be in sync again", seconds=60)
    finally:
        workers.close()
