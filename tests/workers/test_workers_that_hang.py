"""Real workers that stop running without ending."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.compat.waiting import wait_for
from tests.workers.processes import Deliveries, Workers, read_all

# A worker that gets no processor for so long is taken for one that hangs.
SESSION_SECONDS = 8
NUMBERS = (1, 2, 3)
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_SECONDS * 1000),
    "broker.heartbeat.interval.ms": "200",
    # What hangs with its disk is not to be waited for by followers.
    "replica.socket.timeout.ms": "2000",
}


def restarts(workers: Workers) -> dict[int, int]:
    """How often each worker was started again."""
    found = re.findall(r'kbroker_worker_restarts\{worker="(\d+)"\} (\d+)', workers.metrics())
    return {int(number): int(count) for number, count in found}


@pytest.mark.parametrize("number", [2, 1], ids=["a worker", "the controller"])
def test_a_worker_that_hangs_is_killed_and_started_again(tmp_path: Path, number: int) -> None:
    """What it leads would be away until a person notices; meanwhile others lead what has other replicas."""
    workers = Workers(tmp_path, 3, SETTINGS).up()
    try:
        for made in workers.admin.create_topics([NewTopic("one", 6, 1), NewTopic("three", 6, 3)]).values():
            made.result(30)
        deliveries = Deliveries(workers.bootstrap)
        deliveries.send("one", 200)
        deliveries.send("three", 200)
        wait_for(lambda: deliveries.poll() > 100, "the first records", seconds=60)
        hung = workers.worker_pid(number)
        os.kill(hung, signal.SIGSTOP)
        deliveries.send("one", 200)
        deliveries.send("three", 200)
        wait_for(lambda: f"worker {number} has ended (killed by SIGKILL)" in workers.output(), "its end", seconds=60)
        assert f"worker {number} has not answered for {SESSION_SECONDS}.0 s: it is killed" in workers.output()
        deliveries.finish()
        assert deliveries.failed == []
        workers.wait_until_ready()
        assert workers.worker_pid(number) != hung
        assert restarts(workers) == {each: int(each == number) for each in NUMBERS}
        found = read_all(workers.bootstrap, "group", ["one", "three"], set(deliveries.acknowledged))
        assert len(set(found)) == 800
    finally:
        workers.close()


def test_time_in_which_the_supervisor_did_not_run_kills_no_worker(tmp_path: Path) -> None:
    """After a machine was suspended, or its processes were frozen, all workers would be killed at once."""
    workers = Workers(tmp_path, 3, SETTINGS).up()
    try:
        assert workers.process is not None
        supervisor = workers.process.pid
        pids = [workers.worker_pid(number) for number in NUMBERS]
        for others in ([], pids):
            frozen = [supervisor, *others]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            over = time.clock_gettime(time.CLOCK_BOOTTIME) + 1.5 * SESSION_SECONDS
            wait_for(lambda over=over: time.clock_gettime(time.CLOCK_BOOTTIME) > over, "the session's end", seconds=60)
            # The supervisor is the first to wake up.
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
            workers.wait_until_ready()
            assert restarts(workers) == dict.fromkeys(NUMBERS, 0)
        assert [workers.worker_pid(number) for number in NUMBERS] == pids
        assert "it is killed" not in workers.output()
    finally:
        workers.close()
