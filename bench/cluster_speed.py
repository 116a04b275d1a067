"""Three brokers of kbroker beside three of Apache Kafka's: needs Java 17 and Maven.

All have ZooKeeper, and Kafka is 3.9.1; with --kraft all are under a controller of Kafka 4.3.1, as its brokers are.

    python -m bench.cluster_speed                          # every cell, both sides
    python -m bench.cluster_speed --cells 'produce-*' --only kbroker --rounds 3

produce-1k, produce-100   librdkafka, acks=all, three partitions with three replicas: records/s, CPU of all by GB
e2e-1000, e2e-100         records/s to one partition with three replicas, acks=all: p50, p99
catch-up                  a follower was away while 1 GB was written: bytes/s from its first append until it is in sync
leader-killed             kill -9: seconds without an acknowledgement beyond the session time-out
shutdown                  a broker that leads 1,000 partitions stops in order: seconds, and what a producer was refused
fail-over                 the controller of 10,000 partitions is killed: seconds until its session ends, and from there,
                          those not counted, until all brokers know the new one and every partition's leader
restart                   a broker with 1,000 partitions starts after a clean stop: seconds until its port answers,
                          others tell clients of it, and a sample of its replicas is in sync
idle                      1,000 partitions with three replicas: memory and CPU of each broker
leaders                   10,000 partitions with two replicas; the leader of 3,000 is killed: memory of a broker without
                          any of them, seconds from where one first tells of the change until all tell of all, the
                          longest that one of them took for an answer meanwhile, and that a kbroker's loop was held
                          (`bench.held_loop`)

Each cell has a cluster of its own.  One JSON object for each cell and side, and a table in the end.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Producer

from bench import frames, held_loop, raw
from bench.cluster_brokers import BROKERS, SESSION_SECONDS, Cluster, running
from bench.cluster_metadata import Survivor
from bench.hot_memory import HotMemory
from bench.librdkafka import library
from bench.native_build import librdkafka_client

Result = dict[str, Any]
SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
# Kafka's compiler needs that long.
WARM_SECONDS = 10.0
PRODUCE_BYTES = 1 << 30
CATCH_UP_BYTES = 1 << 30
SHUTDOWN_PARTITIONS = 1_000
FAIL_OVER_PARTITIONS = 10_000
PER_TOPIC = 1_000
CHANGING_TOPICS = 3
IDLE_SECONDS = 30.0


def _load(cluster: Cluster, topic: str, size: int, seconds: float, *settings: str, most: int = PRODUCE_BYTES) -> Result:
    """The C program on librdkafka: as many records as it takes."""
    argv = [str(librdkafka_client()), "produce", "--library", str(library()), "--pid", str(cluster.brokers[1].pid)]
    argv += ["--bootstrap", cluster.bootstrap.partition(",")[0], "--topic", topic, "--size", str(size), "--warm", "0"]
    argv += ["--seconds", str(seconds), "--messages", str(most // size)]
    for setting in ("acks=all", *settings):
        argv += ["--set", setting]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise SystemExit(done.stderr[-500:])
    found: Result = json.loads(done.stdout)
    return found


def produce(cluster: Cluster, size: int) -> Result:
    """See the module."""
    cluster.create("speed", SPREAD)
    _load(cluster, "speed", size, WARM_SECONDS)
    before = cluster.cpu_seconds()
    found = _load(cluster, "speed", size, 5.0)
    moved = found["records"] * size
    return {
        "records_per_s": round(found["records"] / found["seconds"]),
        "mb_per_s": round(moved / found["seconds"] / 1e6, 1),
        "cpu_s_per_gb": round((cluster.cpu_seconds() - before) / moved * 1e9, 2),
    }


def end_to_end(cluster: Cluster, rate: int) -> Result:
    """See the module."""
    cluster.create("speed", SPREAD[:1])
    broker = cluster.brokers[1]
    batch = frames.batch(1, 100)
    layout = frames.fetch_layout("speed", 1)
    requests = [frames.produce("speed", 0, batch, -1), frames.fetch_many("speed", {0: 0}, 1 << 20)]
    options = {"offset_at": layout.offset_at, "rows_at": layout.rows_at, "row_bytes": layout.row_bytes}
    with raw._frames_file(requests) as file:
        argv = raw._generator("e2e", broker, file, rate=rate, warm=WARM_SECONDS, seconds=10, **options)
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: Result = json.loads(done.stdout)
    return {key: value for key, value in found.items() if key.startswith("p") or key == "records"}


def catch_up(cluster: Cluster) -> Result:
    """See the module."""
    cluster.create("speed", [[1, 2, 3]])
    cluster.brokers[3].end()
    cluster.wait(lambda: cluster.in_sync("speed", [0], 2), "an ISR of two")
    written = 0
    while written < CATCH_UP_BYTES:
        written += _load(cluster, "speed", 1024, 30.0, most=CATCH_UP_BYTES - written)["records"] * 1024
    before = {each: cluster.brokers[each].cpu_seconds() for each in (1, 2)}
    data = cluster._folder / "broker-3" / "data" / "speed-0"
    begun = _size(data)
    with HotMemory() as memory, memory.lent(generous=True):
        cluster.start(3)
        cluster.wait(lambda: _size(data) > begun, "the follower to begin", every=0.001)
        begin = time.monotonic()
        started_with = _size(data)
        cluster.wait(lambda: cluster.in_sync("speed", [0], 3), "the follower in sync", seconds=300)
        seconds = time.monotonic() - begin
    copied = _size(data) - started_with
    return {
        "gb_per_s": round(copied / seconds / 1e9, 2),
        "follower_cpu_s_per_gb": round(cluster.brokers[3].cpu_seconds() / copied * 1e9, 2),
        "leader_cpu_s_per_gb": round((cluster.brokers[1].cpu_seconds() - before[1]) / copied * 1e9, 2),
    }


def _size(folder: Any) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


class Pulse:
    """A producer that writes all the time, and when it was told of each record."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self.told: list[float] = []
        self.failed: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )

    def _done(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.told.append(time.monotonic())
        else:
            self.failed.append(str(error))

    def run(self, until: Callable[[], bool], seconds: float = 90.0) -> None:
        """Write until something is so."""
        deadline = time.monotonic() + seconds
        while not until() and time.monotonic() < deadline:
            self._producer.produce(self._topic, b"x", partition=self._number % self._partitions, on_delivery=self._done)
            self._number += 1
            self._producer.poll(0.002)

    def flush(self) -> None:
        """Wait for the rest."""
        self._producer.flush(60)


def leader_killed(cluster: Cluster) -> Result:
    """See the module."""
    cluster.create("speed", [[1, 2, 3]] if cluster.controller() != 1 else [[2, 3, 1]])
    leader = cluster.state("speed", 0)["leader"]
    pulse = Pulse(cluster, "speed", 1)
    pulse.run(lambda: len(pulse.told) > 500)
    cluster.brokers[leader].kill()
    killed = time.monotonic()
    pulse.run(lambda: bool(pulse.told) and pulse.told[-1] > killed + 0.5)
    pulse.flush()
    first = min(each for each in pulse.told if each > killed + 0.5)
    return {
        "seconds_without": round(first - killed, 2),
        "beyond_session_s": round(first - killed - SESSION_SECONDS, 2),
        "failed": len(pulse.failed),
    }


def shutdown(cluster: Cluster) -> Result:
    """See the module."""
    leader = 1 if cluster.controller() != 1 else 2
    others = [each for each in BROKERS if each != leader]
    cluster.create("speed", [[leader, *others]] * SHUTDOWN_PARTITIONS)
    pulse = Pulse(cluster, "speed", 20)
    pulse.run(lambda: len(pulse.told) > 500)
    process = cluster.brokers[leader].process
    assert process is not None
    begin = time.monotonic()
    process.terminate()
    ended: list[float] = []

    def is_over() -> bool:
        if not ended and process.poll() is not None:
            ended.append(time.monotonic())
        return bool(ended) and time.monotonic() > ended[0] + 1.0

    pulse.run(is_over)
    pulse.flush()
    gaps = [later - earlier for earlier, later in zip(pulse.told, pulse.told[1:], strict=False)]
    return {
        "seconds": round(ended[0] - begin, 2),
        "longest_silence_s": round(max(gaps), 2),
        "failed": len(pulse.failed),
    }


def fail_over(cluster: Cluster) -> Result:
    """See the module."""
    controller = cluster.controller()
    others = [each for each in BROKERS if each != controller]
    topics = [f"many-{index}" for index in range(FAIL_OVER_PARTITIONS // PER_TOPIC)]
    for topic in topics:
        cluster.create(topic, [BROKERS[each % 3 :] + BROKERS[: each % 3] for each in range(PER_TOPIC)])
    survivors = [Survivor(cluster.brokers[each], controller, topics, PER_TOPIC) for each in others]
    cluster.brokers[controller].kill()
    killed = time.monotonic()
    cluster.wait(lambda: cluster.controller() != controller, "the end of the session", every=0.005)
    begin = time.monotonic()
    cluster.wait(lambda: cluster.controller() in others, "a new controller", every=0.005)
    elected = time.monotonic()
    cluster.wait(lambda: all(each.knows() for each in survivors), "the metadata", seconds=300)
    done = time.monotonic()
    for each in survivors:
        each.close()
    return {
        "detected_s": round(begin - killed, 2),
        "elected_s": round(elected - begin, 2),
        "metadata_on_all_s": round(done - begin, 2),
    }


def idle(cluster: Cluster) -> Result:
    """See the module."""
    cluster.create("speed", [BROKERS[each % 3 :] + BROKERS[: each % 3] for each in range(SHUTDOWN_PARTITIONS)])
    time.sleep(5.0)
    before = {each: broker.cpu_seconds() for each, broker in cluster.brokers.items()}
    time.sleep(IDLE_SECONDS)
    brokers = cluster.brokers.items()
    return {
        "cpu_percent": [
            round((each.cpu_seconds() - before[number]) / IDLE_SECONDS * 100, 2) for number, each in brokers
        ],
        "mb": [round(each.resident_bytes() / 1e6) for _, each in brokers],
        "controller": cluster.controller(),
    }


def restart(cluster: Cluster) -> Result:
    """See the module."""
    cluster.create("speed", [BROKERS[each % 3 :] + BROKERS[: each % 3] for each in range(SHUTDOWN_PARTITIONS)])
    # A broker makes the logs of a new topic while it serves.
    cluster.wait(lambda: cluster.log_count(3) >= SHUTDOWN_PARTITIONS, "the logs to be there")
    cluster.brokers[3].end()
    cluster.wait(lambda: cluster.registered() == {1, 2}, "the broker to be gone")
    # A controller takes no broker of that id before the session of its earlier life is over.
    time.sleep(2 * SESSION_SECONDS)
    begin = time.monotonic()
    cluster.start(3)
    answers = time.monotonic()
    cluster.wait(lambda: 3 in cluster.registered(), "the broker to be unfenced")
    unfenced = time.monotonic()
    cluster.wait(lambda: cluster.in_sync("speed", range(0, SHUTDOWN_PARTITIONS, 50), 3), "the replicas in sync")
    return {
        "answers_s": round(answers - begin, 2),
        "unfenced_s": round(unfenced - begin, 2),
        "in_sync_s": round(time.monotonic() - begin, 2),
    }


def leaders(cluster: Cluster) -> Result:
    """See the module."""
    topics = [f"many-{index}" for index in range(FAIL_OVER_PARTITIONS // PER_TOPIC)]
    for number, topic in enumerate(topics):
        pair = [1, 2] if number < CHANGING_TOPICS else [2, 1]
        cluster.create(topic, [pair] * PER_TOPIC)
    time.sleep(2.0)
    image_mb = round(cluster.brokers[3].resident_bytes() / 1e6)
    changing = topics[:CHANGING_TOPICS]
    survivors = [Survivor(cluster.brokers[each], 1, changing, PER_TOPIC) for each in (2, 3)]
    killed = time.monotonic()
    cluster.brokers[1].kill()
    longest, first = 0.0, 0.0
    while not all(each.is_through for each in survivors):
        for each in survivors:
            begin = time.monotonic()
            has_changed = each.has_new_leader(changing[0])
            ended = time.monotonic()
            longest = max(longest, ended - begin)
            if has_changed:
                first = first or begin
                each.knows_leaders()
    done = time.monotonic()
    for each in survivors:
        each.close()
    result = {"image_mb": image_mb, "all_tell_s": round(done - first, 3), "longest_answer_ms": round(longest * 1e3, 1)}
    if cluster.watches_loops:
        time.sleep(2.0)  # Followers and directories come behind what is told.
        result["held_ms"] = max(held_loop.longest(cluster.output(each), killed) for each in (2, 3))
    return result


CELLS: dict[str, tuple[Callable[[Cluster], Result], dict[str, str]]] = {
    "produce-1k": (lambda cluster: produce(cluster, 1024), {}),
    "produce-100": (lambda cluster: produce(cluster, 100), {}),
    "e2e-1000": (lambda cluster: end_to_end(cluster, 1_000), {}),
    "e2e-100": (lambda cluster: end_to_end(cluster, 100), {}),
    "catch-up": (catch_up, {}),
    "leader-killed": (leader_killed, {}),
    "shutdown": (shutdown, {}),
    "fail-over": (fail_over, {}),
    "idle": (idle, {}),
    "restart": (restart, {}),
    "leaders": (leaders, {}),
}


def _median(results: list[Result]) -> Result:
    return {
        key: statistics.median([each[key] for each in results]) if isinstance(value, int | float) else value
        for key, value in results[0].items()
    }


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", default="*", help="patterns, with commas")
    parser.add_argument("--only", choices=("kbroker", "kafka"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kraft", action="store_true", help="under a controller instead of ZooKeeper")
    options = parser.parse_args()
    sides = [options.only] if options.only else ["kbroker", "kafka"]
    for name, (run, settings) in CELLS.items():
        if not any(fnmatch.fnmatch(name, pattern) for pattern in options.cells.split(",")):
            continue
        rounds: dict[str, list[Result]] = {side: [] for side in sides}
        for number in range(options.rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                watches = side == "kbroker" and run is leaders
                with running(side, settings, is_kraft=options.kraft, watches_loops=watches) as cluster:
                    rounds[side].append(run(cluster))
                os.sync()
        for side in sides:
            print(json.dumps({"cell": name, "side": side, **_median(rounds[side])}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
