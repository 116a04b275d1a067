"""What tools ask of a broker with many topics: how long the answers take, and how long others wait meanwhile.

    python -m bench.admin_speed [--brokers kbroker,kafka] [--topics 10000] [--rounds 5]

Each broker gets the topics, a tenth of them with settings of their own, and is then asked, alone and beside a client
that produces a record at a time (`bench.calm_client`): the list of all topics, as consoles ask for it, and all settings
of all topics.  Prints the median time of an answer in both cases, its size, and the calm client's longest wait beside
each (median and most over the rounds): the longest piece that the loop was held for, and what the machine adds.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable

from bench import brokers
from bench.admin import Admin
from bench.frames import request, string
from bench.large_frames import DESCRIBE_CONFIGS, METADATA, TOPIC_RESOURCE, create_topics, many_names

CALM_TOPIC = "calm"
PER_REQUEST = 1_000
PAUSE_SECONDS = 0.1
#: Of a topic in ten.
OWN = (("retention.ms", "86400000"), ("cleanup.policy", "compact"))
CREATE_TOPICS = 19


def create_with_settings(names: list[str]) -> bytes:
    own = struct.pack(">i", len(OWN)) + b"".join(string(key) + string(value) for key, value in OWN)
    topics = b"".join(string(name) + struct.pack(">ihi", 1, 1, 0) + own for name in names)
    return request(
        CREATE_TOPICS, 4, struct.pack(">i", len(names)) + topics + struct.pack(">ib", 60_000, 0), flexible=False
    )


def list_topics(_names: list[str]) -> bytes:
    return request(METADATA, 8, struct.pack(">i", -1) + b"\0\0\0", flexible=False)


def describe_configs(names: list[str]) -> bytes:
    rows = b"".join(struct.pack(">b", TOPIC_RESOURCE) + string(name) + struct.pack(">i", -1) for name in names)
    return request(DESCRIBE_CONFIGS, 1, struct.pack(">i", len(names)) + rows + b"\0", flexible=False)


QUESTIONS: dict[str, Callable[[list[str]], bytes]] = {
    "all topics": list_topics,
    "settings of all topics": describe_configs,
}


def ask(broker: brokers.Broker, frame: bytes, rounds: int) -> tuple[list[tuple[float, float]], int]:
    """(begin and end of each answer, its size)"""
    times = []
    size = 0
    with Admin(broker.host, broker.port) as admin:
        for _ in range(rounds):
            begin = time.monotonic()
            size = len(admin.ask(frame))
            times.append((begin, time.monotonic()))
            time.sleep(PAUSE_SECONDS)
    return times, size


def beside_a_calm_client(
    broker: brokers.Broker, frames: dict[str, bytes], rounds: int
) -> tuple[dict[str, list[tuple[float, float]]], list[tuple[float, float]]]:
    """(the answers by question, begin and length of the calm client's waits)"""
    calm = subprocess.Popen(
        [sys.executable, "-m", "bench.calm_client", broker.host, str(broker.port), CALM_TOPIC],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.0)
    found = {question: ask(broker, frame, rounds)[0] for question, frame in frames.items()}
    waits = []
    for line in calm.communicate()[0].splitlines():
        begin, took = map(float, line.split())
        waits.append((begin, took))
    return found, waits


def measure(name: str, topics: int, rounds: int) -> None:
    broker = brokers.start(name, "")
    try:
        names = many_names("topic", topics)
        own = names[::10]
        plain = [each for each in names if each not in frozenset(own)]
        with Admin(broker.host, broker.port) as admin:
            admin.create_topic(CALM_TOPIC, 1)
            for make, wanted in ((create_topics, plain), (create_with_settings, own)):
                for at in range(0, len(wanted), PER_REQUEST):
                    admin.ask(make(wanted[at : at + PER_REQUEST]))
        time.sleep(1.0)
        frames = {question: make(names) for question, make in QUESTIONS.items()}
        alone = {question: ask(broker, frame, rounds) for question, frame in frames.items()}
        beside, waits = beside_a_calm_client(broker, frames, rounds)
        print(f"{name}, {topics} topics: alone, beside others, size, longest wait of others (median, most)")
        for question, (times, size) in alone.items():
            longest = [
                max((took for at, took in waits if at < end and at + took > begin), default=-1.0) * 1000
                for begin, end in beside[question]
            ]
            print(
                f"  {question:<26}{_median(times):8.1f} ms {_median(beside[question]):8.1f} ms {size / 1e6:8.2f} MB"
                f"   {statistics.median(longest):7.1f} ms {max(longest):7.1f} ms"
            )
    finally:
        broker.stop()


def _median(times: list[tuple[float, float]]) -> float:
    return statistics.median(end - begin for begin, end in times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="kbroker", help="which, with commas")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for name in options.brokers.split(","):
        measure(name, options.topics, options.rounds)


if __name__ == "__main__":
    main()
