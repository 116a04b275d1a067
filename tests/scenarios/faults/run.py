"""Rounds of faults on three brokers: processes killed, stopped and ended, connections cut and hanging.

    python -m tests.scenarios.faults.run --rounds 200 --seed 7      (make faults ROUNDS=200 SEED=7)

With `--kind kafka` the brokers are Apache Kafka 3.9.1's: what is put down to a client, the same run shows there.
`kraft` is a cluster of kbroker under a controller of Kafka 4.3.1, `kraft-mixed` has a broker of Kafka 4.3.1 among them,
and `kraft-kafka` has no other.

Three producers number what they write with acks=all: librdkafka and Java with idempotence, librdkafka without.  Two
groups read and commit.  Of 32 raw connections with several requests under way every answer is judged (`judged.py`).
Each round has one fault or two at once, which end after some seconds; then every producer must get acknowledgements
again.  In the end all is read, and held against what was acknowledged (`verdict.py`); the logs of the replicas must be
the same, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tests.broker_process import BrokerError
from tests.compat.waiting import Waited, wait_for
from tests.scenarios.faults import cluster as clusters
from tests.scenarios.faults.clients import Counting, JavaProducer, LibrdkafkaProducer, count_of, groups, read_numbers
from tests.scenarios.faults.cluster import BROKERS, KINDS, PARTITIONS, Cluster, Kind
from tests.scenarios.faults.judged import JudgedConnections
from tests.scenarios.faults.keepers import Keeper
from tests.scenarios.faults.proxy import State
from tests.scenarios.faults.verdict import duplicates, fell, judge
from tests.scenarios.soak import history

PROGRESS_SECONDS = 150.0
MORE_RECORDS = 10
SETTLE_EVERY = 10
DRAIN_SECONDS = 90.0
TWO_AT_ONCE = 0.3
ACTIONS = (
    "kill",
    "kill",
    "stop",
    "stop",
    "end",
    "reset",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to one broker, and for how long."""

    action: str
    broker: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.action} {self.broker} {self.seconds:.1f} s"


def actions_of(keeper: Keeper) -> tuple[str, ...]:
    """What may happen in a cluster, the likely ones several times."""
    links = ("clients", "brokers", keeper.link)
    cuts = (f"{state.value} {link}" for state in (State.CUT, State.HANGING) for link in links)
    return (*ACTIONS, *cuts, *keeper.actions)


def plan(rng: random.Random, controller: int, actions: Sequence[str]) -> list[Fault]:
    """The faults of a round; the controller is more often among the brokers than by chance."""
    count = 2 if rng.random() < TWO_AT_ONCE else 1
    choice = [*BROKERS, *([controller] if controller in BROKERS else [])]
    return [Fault(rng.choice(actions), rng.choice(choice), rng.uniform(0.3, 4.5)) for _ in range(count)]


class Faults:
    """One run."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int, *, is_kafka: bool = False) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.actions = actions_of(cluster.keeper)
        cluster.create(["librdkafka", "java", "plain"])
        bootstrap = cluster.bootstrap
        self.producers: list[Counting] = [
            LibrdkafkaProducer(bootstrap, "librdkafka", folder, is_idempotent=True),
            LibrdkafkaProducer(bootstrap, "plain", folder, is_idempotent=False),
            JavaProducer(bootstrap, "java", folder),
        ]
        self.judged = JudgedConnections(
            {number: node.clients.port for number, node in cluster.nodes.items()}, len(BROKERS), seed, is_kafka=is_kafka
        )
        self.groups = groups(bootstrap, ("librdkafka", "java"), folder)
        self.committed: dict[tuple[str, int], int] = {}
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()
        self.longest_silence = 0.0

    # What happens

    def run(self, rounds: int) -> None:
        """The rounds; stops at the first in which something is wrong."""
        self._progress()
        self.cluster.settle(PROGRESS_SECONDS)
        for number in range(1, rounds + 1):
            begin = time.monotonic()
            faults = plan(self.random, self.cluster.controller(), self.actions)
            self._apply(faults)
            seconds = self._progress()
            if number % SETTLE_EVERY == 0:
                self.cluster.settle(PROGRESS_SECONDS)
            self._look_at_groups()
            records = sum(map(count_of, self.producers))
            print(
                f"round {number}: {'; '.join(map(str, faults))}: all acknowledged again after {seconds:.1f} s, "
                f"{time.monotonic() - begin:.1f} s in all, {records} records",
                flush=True,
            )
            self.wrong += self.judged.wrong
            if self.wrong:
                print("\n".join(self.wrong), flush=True)
                return

    def _apply(self, faults: Sequence[Fault]) -> None:
        """Begin all, and end each when its time is over."""
        begin = time.monotonic()
        for fault in faults:
            self._begin(fault)
            self.done[fault.action] += 1
        for fault in sorted(faults, key=lambda each: each.seconds):
            time.sleep(max(0.0, begin + fault.seconds - time.monotonic()))
            self._end(fault)
        self.cluster.recover()

    def _begin(self, fault: Fault) -> None:
        node = self.cluster.nodes[fault.broker]
        process = node.process
        match fault.action.split():
            case ["kill"] if process.running:
                process.kill()
            case ["stop"] if process.running:
                process.pause()
            case ["end"] if process.running:
                # Resumed by `end` itself, should it be stopped.
                try:
                    process.stop()
                except BrokerError:
                    self.done["ended late"] += 1
            case ["reset"]:
                for link in node.links.values():
                    self.cluster.proxies.reset(link)
            case [_, "controller"]:
                self.cluster.keeper.begin(fault.action)
            case [state, link]:
                self.cluster.proxies.set(node.links[link], State(state))

    def _end(self, fault: Fault) -> None:
        node = self.cluster.nodes[fault.broker]
        process = node.process
        match fault.action.split():
            case ["kill"] | ["end"] if not process.running:
                process.spawn()
            case ["stop"] if process.running:
                process.resume()
            case [_, "controller"]:
                self.cluster.keeper.recover()
            case [_, link]:
                self.cluster.proxies.set(node.links[link], State.OPEN)

    def _progress(self) -> float:
        """Until every producer was told of more records; the seconds that took."""
        begin = time.monotonic()
        for producer in self.producers:
            producer.collect()
        before = [[len(each) for each in producer.acknowledged] for producer in self.producers]

        def all_go_on() -> bool:
            for producer in self.producers:
                producer.collect()
                if producer.failed:
                    self.wrong += producer.failed[:5]
                    return True
            return all(
                len(each) >= least + MORE_RECORDS
                for producer, counts in zip(self.producers, before, strict=True)
                for each, least in zip(producer.acknowledged, counts, strict=True)
            )

        try:
            wait_for(all_go_on, "every producer to be acknowledged", seconds=PROGRESS_SECONDS)
        except Waited:
            for producer, counts in zip(self.producers, before, strict=True):
                print(f"{producer.topic}: {counts} → {[len(each) for each in producer.acknowledged]}", flush=True)
            raise
        seconds = time.monotonic() - begin
        self.longest_silence = max(self.longest_silence, seconds)
        return seconds

    def _look_at_groups(self) -> None:
        """What the members said and what is committed; commits never go back."""
        for group in self.groups:
            group.collect()
            self.wrong += [f"{each} has ended" for each in group.ended()]
        now = self._committed()
        self.wrong += fell(self.committed, now)
        self.committed.update(now)

    def _committed(self) -> dict[tuple[str, int], int]:
        """What each group has committed; a coordinator may be on its way meanwhile."""
        deadline = time.monotonic() + PROGRESS_SECONDS
        while True:
            try:
                return self._ask_for_committed()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def _ask_for_committed(self) -> dict[tuple[str, int], int]:
        admin = self.cluster.admin()
        found = {}
        for group in self.groups:
            asked = ConsumerGroupTopicPartitions(
                group.name, [TopicPartition(group.topic, partition) for partition in range(PARTITIONS)]
            )
            (future,) = admin.list_consumer_group_offsets([asked]).values()
            for each in future.result(30).topic_partitions:
                if each.offset >= 0:
                    found[each.topic, each.partition] = each.offset
        return found

    # The verdict

    def judge(self) -> dict[str, object]:
        """End the producers, let the groups read to the end, and look at everything."""
        for producer in self.producers:
            producer.stop()
            self.wrong += producer.failed[:5]
        self.cluster.settle(PROGRESS_SECONDS)
        self.judged.end()
        self.wrong += [each for each in self.judged.wrong if each not in self.wrong]
        report: dict[str, object] = {"judged answers": self.judged.answers}
        ends: dict[str, dict[int, int]] = {}
        for producer in self.producers:
            repeated = 0
            for partition in range(PARTITIONS):
                place = f"{producer.topic}-{partition}"
                found = read_numbers(self.cluster.bootstrap, producer.topic, partition)
                ends.setdefault(producer.topic, {})[partition] = len(found)
                repeated += duplicates(found)
                self._compare_replicas(producer.topic, partition)
                self.wrong += judge(
                    place, producer.acknowledged[partition], found, is_idempotent=producer.is_idempotent
                )
            report[producer.topic] = {"acknowledged": count_of(producer), "duplicates": repeated}
        self._drain(ends)
        for group in self.groups:
            self.wrong += history.went_back(history.in_order(group.events))
            deliveries = sum(each.total() for each in history.offsets_of(group.events, "got").values())
            report[group.name] = {"deliveries": deliveries, "commits": self._commits(group.events)}
        return {**report, "faults": dict(self.done), "longest_silence_seconds": round(self.longest_silence, 1)}

    @staticmethod
    def _commits(events: Sequence[history.Event]) -> int:
        return sum(event.word == "committed" for event in events)

    def _compare_replicas(self, topic: str, partition: int) -> None:
        def same() -> bool:
            return len({each.records(topic, partition) for each in self.cluster.nodes.values()}) == 1

        try:
            wait_for(same, "the same logs", seconds=20)
        except Waited:
            sizes = {each.number: len(each.records(topic, partition)) for each in self.cluster.nodes.values()}
            self.wrong.append(f"the logs of {topic}-{partition} differ: {sizes} bytes")

    def _drain(self, ends: dict[str, dict[int, int]]) -> None:
        def all_read() -> bool:
            for group in self.groups:
                group.collect()
            return not any(history.missing(group.events, ends[group.topic]) for group in self.groups)

        try:
            wait_for(all_read, "the groups to read all", seconds=DRAIN_SECONDS, every=0.5)
        except Waited:
            for group in self.groups:
                for partition, left in history.missing(group.events, ends[group.topic]).items():
                    self.wrong.append(f"{group.name} never got {len(left)} records of {partition}, from {left[0]} on")

    def end(self) -> None:
        """Nothing is left that runs."""
        for producer in self.producers:
            producer.kill()
        for group in self.groups:
            group.kill()


@contextmanager
def faults(folder: Path, seed: int, kind: Kind = KINDS["kbroker"]) -> Iterator[Faults]:
    """A cluster with its clients; all of it ends."""
    with clusters.running(folder, kind=kind) as cluster:
        run = Faults(cluster, folder, seed, is_kafka=kind.has_kafka)
        try:
            yield run
        except BaseException:
            print(cluster.log_tails(), flush=True)
            raise
        finally:
            run.end()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kind", choices=clusters.KINDS, default="kbroker", help="whose brokers")
    parser.add_argument("--folder", type=Path, default=None, help="where all output stays")
    options = parser.parse_args()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    folder = options.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{options.kind}, seed {seed}, output in {folder}", flush=True)
    with faults(folder, seed, clusters.KINDS[options.kind]) as run:
        run.run(options.rounds)
        report = run.judge()
    print(json.dumps({"seed": seed, **report, "wrong": run.wrong}, indent=2))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
