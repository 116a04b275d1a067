"""All workers die after one of them was frozen: what clients are told of leaders afterwards, beside who serves.

A worker whose partition's coordinator answers has to be shown as its leader by all workers, within seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.waiting import wait_for
from tests.workers.processes import QUIET, Workers, is_running

NUMBERS = (1, 2, 3)
OFFSETS = "__consumer_offsets"
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "12",
    "replica.lag.time.max.ms": "2000",
}


def commit(workers: Workers, group: str) -> bool:
    """Whether a group's coordinator takes an offset."""
    consumer = Consumer({**QUIET, "bootstrap.servers": workers.bootstrap, "group.id": group, "socket.timeout.ms": 2000})
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


def leaderless(workers: Workers, number: int) -> dict[int, list[int]]:
    """The partitions of the groups' topic that a worker shows without a leader, with their ISRs."""
    port = workers.port + number - 1
    admin = AdminClient({**QUIET, "bootstrap.servers": f"127.0.0.1:{port}"})
    rows = admin.list_topics(OFFSETS, timeout=10).topics[OFFSETS].partitions
    return {index: list(each.isrs) for index, each in rows.items() if each.leader == -1}


def die(workers: Workers) -> None:
    """Kill all at once, the frozen one as well; the supervisor does not see one of them go first."""
    assert workers.process is not None
    os.kill(workers.process.pid, signal.SIGSTOP)
    pids = [workers.worker_pid(number) for number in NUMBERS]
    for pid in (*pids, workers.process.pid):
        # The supervisor may have killed the one that hung, and not started another one yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, pids)), "the workers' end", seconds=60)
    workers.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("frozen", NUMBERS)
def test_those_who_serve_are_shown_as_leaders_once_all_are_back(tmp_path: Path, frozen: int) -> None:
    """An administrator would see partitions without a leader whose coordinators work."""
    workers = Workers(tmp_path, 3, SETTINGS).up()
    try:
        (made,) = workers.admin.create_topics([NewTopic("t", 6, 3)]).values()
        made.result(30)
        groups = [f"group-{number}" for number in range(24)]
        for group in groups:
            wait_for(lambda group=group: commit(workers, group), f"{group} commits", seconds=60)  # type: ignore[misc]
        os.kill(workers.worker_pid(frozen), signal.SIGSTOP)

        def isr_has_shrunk() -> bool:
            rows = workers.admin.list_topics(OFFSETS, timeout=10).topics[OFFSETS].partitions.values()
            return any(len(each.isrs) == 2 for each in rows)

        if frozen != 1:
            wait_for(isr_has_shrunk, "the frozen one to leave an ISR", seconds=60)
        die(workers)
        workers.up()
        for group in groups:
            wait_for(lambda group=group: commit(workers, group), f"{group} commits again", seconds=60)  # type: ignore[misc]
        for number in NUMBERS:
            wait_for(lambda number=number: not leaderless(workers, number), "all leaders to be shown", seconds=20)  # type: ignore[misc]
    finally:
        workers.stop()
