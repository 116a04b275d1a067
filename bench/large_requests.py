"""The longest wait of a well-behaved client beside one large, legal request: kbroker and Kafka.

    python -m bench.large_requests [--brokers kbroker,kafka] [--rounds 3] [--only TEXT]

Each round starts a broker on an empty directory, lets `bench.calm_client` produce one record at a time, and sends the
large requests of `bench.large_frames` one after the other, each on a connection of its own.  Prints a table: the
longest wait of the calm client from the first byte of the request to its answer (or half a second later), how long the
request itself took, and by how much the broker's resident memory grew meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from bench import brokers
from bench.admin import Admin, AdminError
from bench.large_frames import BIG_TOPIC, LARGE_REQUESTS, WIDE_PARTITIONS, WIDE_TOPIC, LargeRequest

CALM_TOPIC = "calm"
SETTLE_SECONDS = 0.5
ANSWER_SECONDS = 120.0
SAMPLE_SECONDS = 0.005


@dataclass(slots=True)
class Round:
    """What one large request did in one round."""

    begin: float
    end: float
    grown_bytes: int
    wait: float = 0.0
    failed: str = ""

    @property
    def until(self) -> float:
        return self.end + SETTLE_SECONDS


@dataclass(slots=True)
class Row:
    """A large request over all rounds."""

    rounds: list[Round] = field(default_factory=list)

    def text(self) -> str:
        failed = next((each.failed for each in self.rounds if each.failed), "")
        waits = [each.wait * 1000 for each in self.rounds]
        took = statistics.median(each.end - each.begin for each in self.rounds)
        grown = max(each.grown_bytes for each in self.rounds) / 1e6
        wait = f"{statistics.median(waits):8.1f} ms ({max(waits):.1f})"
        return f"{wait:<24}{took:8.2f} s {grown:8.0f} MB  {failed}"


class _Memory(threading.Thread):
    """Watches how much resident memory a broker has at most."""

    def __init__(self, broker: brokers.Broker) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._done = threading.Event()
        self._before = self._most = broker.resident_bytes()

    def run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self._most = max(self._most, self._broker.resident_bytes())

    def stop(self) -> int:
        self._done.set()
        self.join()
        return self._most - self._before


def _send(broker: brokers.Broker, large: LargeRequest) -> Round:
    frame = large.frame()
    memory = _Memory(broker)
    memory.start()
    failed = ""
    begin = time.monotonic()
    try:
        with Admin(broker.host, broker.port) as admin:
            begin = time.monotonic()
            admin.ask(frame)
    except (OSError, AdminError) as error:
        failed = str(error)
    end = time.monotonic()
    done = Round(begin, end, memory.stop(), failed=failed)
    time.sleep(SETTLE_SECONDS)
    return done


def measure(name: str, wanted: list[LargeRequest]) -> dict[str, Round]:
    """One round with a fresh broker."""
    broker = brokers.start(name, "")
    try:
        with Admin(broker.host, broker.port) as admin:
            admin.create_topic(CALM_TOPIC, 1)
            admin.create_topic(WIDE_TOPIC, WIDE_PARTITIONS)
            admin.create_topic(BIG_TOPIC, 1, {"max.message.bytes": "100000000"})
        calm = subprocess.Popen(
            [sys.executable, "-m", "bench.calm_client", broker.host, str(broker.port), CALM_TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(1.0 if name == "kbroker" else 5.0)
        found = {large.name: _send(broker, large) for large in wanted}
        samples = [tuple(map(float, line.split())) for line in calm.communicate()[0].splitlines()]
        for each in found.values():
            each.wait = max(
                (took for begin, took in samples if begin < each.until and begin + took > each.begin), default=-1.0
            )
        return found
    finally:
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="kbroker,kafka", help="which, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="requests whose name holds this text (what they need is made first)")
    options = parser.parse_args()
    wanted = [large for large in LARGE_REQUESTS if options.only in large.name]
    names = options.brokers.split(",")
    rows: dict[str, dict[str, Row]] = {name: {large.name: Row() for large in wanted} for name in names}
    for _ in range(options.rounds):
        for name in names:
            for large, done in measure(name, wanted).items():
                rows[name][large].rounds.append(done)
    for name in names:
        print(f"{name}: longest wait, median (most) of {options.rounds} rounds; the request; memory grown")
        for large_name, row in rows[name].items():
            print(f"  {large_name:<42}{row.text()}")


if __name__ == "__main__":
    main()
