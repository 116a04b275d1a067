"""A controller that stands still amid a swap of all replicas: one program and one judge for kbroker and Apache Kafka.

    python -m tests.scenarios.faults.swap --kind kbroker      (`--kind kafka`: Apache Kafka 3.9.1; both with ZooKeeper)

Three brokers, 25 partitions of two replicas, a producer with acks=all.  AlterPartitionReassignments moves every
partition: one half loses its leader, the other its follower.  The controller is stopped (SIGSTOP) as soon as ZooKeeper
shows the wanted `Moment`, for longer than any request or session lasts, and goes on.  From then on is seen:

    isr asks     AlterPartition of this broker with a leader epoch that is over
    orders       requests of this broker to others with its old controller epoch
    led          partitions that a broker answers for as their leader and that another leads
    extra        directories of partitions on brokers that are not among their replicas
    moved        all partitions have their new replicas, and all of these in the ISR

and in the end, with the producer at rest, whether what was acknowledged is there, and whether the replicas are equal.
The bounds are the same for both.  Two things are judged of kbroker alone, as Apache Kafka's brokers do neither: they
have to leave partitions to their new leaders, and to set aside the directories of replicas of which no StopReplica
came, as they stood still, or as the controller did that was to send it.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from tests.cluster.one_request import ask_port
from tests.cluster.zookeeper.load import AcknowledgedProducer, read_partition
from tests.compat.waiting import Waited, wait_for
from tests.scenarios.faults import cluster as clusters
from tests.scenarios.faults.cluster import BROKERS, KINDS, Cluster, Kind, Node
from tests.scenarios.faults.keepers import ZooKeeperKeeper
from tests.scenarios.faults.recorder import Exchange, Recorder

TOPIC, PARTITIONS = "swapped", 25
FROZEN_SECONDS = 75.0
RECORDS_BEFORE = 2_000
MOVED_SECONDS = 60.0
WATCHED_SECONDS = 30.0
ISR_SECONDS = 20.0
"""How long it may ask as the leader that it was.  Apache Kafka 3.9.1 does so for 6.5 s, and is answered 74, or 77
until it has a new epoch."""
ASIDE_SECONDS = 240.0
"""Strays are looked for once a minute, and set aside when they were there twice."""
SAME_SECONDS = 20.0
LIST_OFFSETS = 5
ORDERS = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
Assignment = list[list[int]]


class Moment(enum.Enum):
    """When the controller stops."""

    BEGUN = "the first partition is on its way"
    ANNOUNCED = "the first partition has a new leader epoch"
    ENDING = "the first partition has arrived"


@dataclass(slots=True)
class Story:
    """What was seen of one round; times in seconds after the controller went on, None: not within WATCHED_SECONDS."""

    moment: str
    frozen: int
    moved: float | None = None
    isr_asks: int = 0
    last_isr_ask: float = 0.0
    isr_codes: list[int] = field(default_factory=list)
    orders: int = 0
    last_order: float = 0.0
    order_codes: list[int] = field(default_factory=list)
    led: int = 0
    last_led: float = 0.0
    led_left: list[str] = field(default_factory=list)
    extra: int = 0
    no_extra: float | None = None
    extra_left: list[str] = field(default_factory=list)


class Swap:
    """One cluster, over several rounds."""

    def __init__(self, cluster: Cluster, *, is_kafka: bool) -> None:
        self.cluster = cluster
        self._is_kafka = is_kafka
        assert isinstance(cluster.keeper, ZooKeeperKeeper)
        self.zookeeper = cluster.keeper
        self.recorder = Recorder({ApiKey.ALTER_PARTITION, *ORDERS})
        for node in cluster.nodes.values():
            node.brokers.taps = self._taps_of(node)
            cluster.proxies.reset(node.brokers)
        self.wrong: list[str] = []
        self.replicas: Assignment = [[BROKERS[at % 3], BROKERS[(at + 1) % 3]] for at in range(PARTITIONS)]
        new = NewTopic(TOPIC, PARTITIONS, replica_assignment=self.replicas, config={"min.insync.replicas": "1"})
        admin = cluster.admin()
        admin.create_topics([new])[TOPIC].result(30)
        wait_for(lambda: self._arrived(self.replicas), "the topic to be there", seconds=60)
        self.producer = AcknowledgedProducer(cluster.bootstrap, TOPIC, PARTITIONS)

    def _taps_of(self, node: Node) -> Any:
        return lambda: self.recorder.taps(node.number)

    # What is asked of the cluster

    def _assignment(self) -> dict[str, Any]:
        return self.zookeeper.json(f"/brokers/topics/{TOPIC}")

    def _states(self) -> list[dict[str, Any]]:
        path = f"/brokers/topics/{TOPIC}/partitions"
        waiting = [self.zookeeper.client.get_async(f"{path}/{each}/state") for each in range(PARTITIONS)]
        return [json.loads(each.get(30)[0]) for each in waiting]

    def _arrived(self, targets: Assignment) -> bool:
        found = self._assignment()
        if found["adding_replicas"] or found["removing_replicas"]:
            return False
        if [found["partitions"][str(each)] for each in range(PARTITIONS)] != targets:
            return False
        return all(
            state["leader"] in target and sorted(state["isr"]) == sorted(target)
            for state, target in zip(self._states(), targets, strict=True)
        )

    def _is_moment(self, moment: Moment, targets: Assignment) -> bool:
        if moment is Moment.ANNOUNCED:
            return [each["leader_epoch"] for each in self._states()] != self.epochs
        found = self._assignment()
        if moment is Moment.BEGUN:
            return bool(found["adding_replicas"])
        return any(found["partitions"][str(each)] == targets[each] for each in range(PARTITIONS))

    def _noted(self) -> Assignment:
        """The replicas that partitions are to have, as ZooKeeper has it: the rest of the request is lost."""
        found = self._assignment()
        removing = found["removing_replicas"]
        return [
            [each for each in found["partitions"][str(at)] if each not in removing.get(str(at), ())]
            for at in range(PARTITIONS)
        ]

    def _extra(self) -> list[str]:
        """Directories of partitions on brokers that are not their replicas, as `broker/directory`."""
        found = self._assignment()["partitions"]
        return [
            f"{number}/{TOPIC}-{each}"
            for number, node in self.cluster.nodes.items()
            for each in range(PARTITIONS)
            if number not in found[str(each)] and (node.process.data_dir / f"{TOPIC}-{each}").exists()
        ]

    def _led(self, number: int, states: Sequence[Mapping[str, Any]]) -> list[int]:
        """Partitions that a broker answers for as their leader, and that others lead in a later epoch."""
        rows = [{"partition_index": each, "timestamp": -1} for each in range(PARTITIONS)]
        request = wire.ListOffsetsRequest
        topic = request.ListOffsetsTopic(name=TOPIC, partitions=[request.ListOffsetsPartition(**row) for row in rows])
        answer = ask_port(self.cluster.nodes[number].process.port, request(replica_id=-1, topics=[topic]), LIST_OFFSETS)
        return [
            row.partition_index
            for row in answer.topics[0].partitions
            if row.error_code == 0 and states[row.partition_index]["leader"] not in (number, -1)
        ]

    def _begin(self, controller: int, targets: Assignment) -> threading.Thread:
        """Ask for the swap; the answer may never come."""
        request = wire.AlterPartitionReassignmentsRequest
        rows = [request.ReassignablePartition(partition_index=at, replicas=each) for at, each in enumerate(targets)]
        body = request(topics=[request.ReassignableTopic(name=TOPIC, partitions=rows)], timeout_ms=30_000)
        port = self.cluster.nodes[controller].process.port

        def ask() -> None:
            with contextlib.suppress(OSError):
                ask_port(port, body, 0, timeout=2 * FROZEN_SECONDS)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread

    # A round

    def round(self, moment: Moment) -> Story:
        """Swap, freeze, go on, and watch."""
        controller = self.cluster.controller()
        targets = [_swapped(each, at) for at, each in enumerate(self.replicas)]
        wanted = self.producer.count + RECORDS_BEFORE
        wait_for(lambda: self.producer.count >= wanted, "records", seconds=120)
        node = self.cluster.nodes[controller]
        self.epochs = [each["leader_epoch"] for each in self._states()]
        asking = self._begin(controller, targets)
        wait_for(lambda: self._is_moment(moment, targets), moment.value, seconds=60, every=0.0)
        node.process.pause()
        try:
            until = time.monotonic() + FROZEN_SECONDS
            wait_for(lambda: time.monotonic() > until, "the time of a long stop", seconds=2 * FROZEN_SECONDS)
            epoch = self._epoch()
            states = self._states()
            targets = self._noted()
        finally:
            thawed = time.monotonic()
            node.process.resume()
        self.replicas = targets
        story = self._watch(Story(moment.value, controller), thawed, targets)
        asking.join()
        self._tell(story, thawed, states, epoch)
        self._judge_round(story)
        return story

    def _judge_round(self, story: Story) -> None:
        if story.moved is None:
            self.wrong.append(f"{story.moment}: the partitions have not moved: {self._assignment()} {self._states()}")
        if story.last_isr_ask > ISR_SECONDS:
            self.wrong.append(f"{story.moment}: it asks for ISRs for {story.last_isr_ask:.1f} s")
        if story.led_left and not self._is_kafka:
            self.wrong.append(f"{story.moment}: brokers go on as leaders: {story.led_left}")

    def _epoch(self) -> int:
        return int(self.zookeeper.client.get("/controller_epoch")[0])

    def _watch(self, story: Story, thawed: float, targets: Assignment) -> Story:
        """Until everything has ended, or for WATCHED_SECONDS."""
        before = self._states()
        while True:
            now = time.monotonic() - thawed
            states = self._states()
            self._compare(before, states)
            before = states
            if story.moved is None and self._arrived(targets):
                story.moved = now
            led = [f"{number}/{TOPIC}-{each}" for number in BROKERS for each in self._led(number, states)]
            extra = self._extra()
            story.led, story.extra = max(story.led, len(led)), max(story.extra, len(extra))
            story.last_led = now if led else story.last_led
            if story.moved is not None and not extra and story.no_extra is None:
                story.no_extra = now
            if now > WATCHED_SECONDS or (story.moved is not None and not extra and not led and now > story.moved + 10):
                story.extra_left = extra
                story.led_left = led
                return story

    def _compare(self, before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> None:
        """No epoch in ZooKeeper goes back: that is a write of a leader or a controller that is deposed."""
        for at, (old, new) in enumerate(zip(before, now, strict=True)):
            if new["leader_epoch"] < old["leader_epoch"] or new["controller_epoch"] < old["controller_epoch"]:
                self.wrong.append(f"{TOPIC}-{at}: {old} → {new}")

    def _tell(self, story: Story, thawed: float, states: Sequence[Mapping[str, Any]], epoch: int) -> None:
        for each in self.recorder.since(thawed):
            if isinstance(each.request, wire.AlterPartitionRequest):
                codes = _stale_isrs(each, story.frozen, states, self._topic_id())
                if codes is not None:
                    story.isr_asks += 1
                    story.last_isr_ask = each.at - thawed
                    story.isr_codes = sorted({*story.isr_codes, *codes})
                    if 0 in codes:
                        self.wrong.append(f"an ISR of a deposed leader was granted: {each}")
            elif each.request.controller_id == story.frozen and each.request.controller_epoch < epoch:
                story.orders += 1
                story.last_order = each.at - thawed
                if each.answer is not None:
                    story.order_codes = sorted({*story.order_codes, each.answer.error_code})
                    if each.to != story.frozen and not each.answer.error_code:
                        self.wrong.append(f"broker {each.to} obeyed a deposed controller: {each.request}")

    def _topic_id(self) -> str:
        return str(self._assignment()["topic_id"])

    # The verdict

    def judge(self) -> dict[str, object]:
        """With the producer at rest: what was acknowledged is there, and replicas are equal."""
        self.producer.stop()
        self.wrong += self.producer.failed[:5]
        begin = time.monotonic()
        try:
            wait_for(lambda: not self._different(), "equal replicas", seconds=SAME_SECONDS)
        except Waited:
            self.wrong += self._different()
        same = time.monotonic() - begin
        if not self._is_kafka:
            try:
                wait_for(lambda: not self._extra(), "strays to be set aside", seconds=ASIDE_SECONDS, every=1.0)
            except Waited:
                self.wrong += [f"{each} is not set aside" for each in self._extra()]
        aside = time.monotonic() - begin
        for each in range(PARTITIONS):
            found = read_partition(self.cluster.bootstrap, TOPIC, each)
            told = self.producer.acknowledged[each]
            if found != told:
                lost = set(told).difference(found)
                self.wrong.append(f"{TOPIC}-{each}: {len(told)} acknowledged, {len(found)} read, {len(lost)} lost")
        return {
            "acknowledged": self.producer.count,
            "longest_pause": round(self.producer.longest_pause, 1),
            "same": round(same, 2),
            "extra": len(self._extra()),
            "aside": round(aside, 1),
        }

    def _different(self) -> list[str]:
        return [
            f"{TOPIC}-{at}: the replicas differ"
            for at, replicas in enumerate(self.replicas)
            if len({self.cluster.nodes[each].records(TOPIC, at) for each in replicas}) != 1
        ]


def _swapped(replicas: Sequence[int], at: int) -> list[int]:
    """One half loses its leader, the other its follower."""
    leader, follower = replicas
    (third,) = set(BROKERS) - {leader, follower}
    return [third, leader] if at % 2 else [follower, third]


def _stale_isrs(each: Exchange, number: int, states: Sequence[Mapping[str, Any]], _id: str) -> list[int] | None:
    """The codes of those partitions of a broker's AlterPartition whose leader epoch was over; None where none was."""
    if each.request.broker_id != number:
        return None
    stale = [
        row.partition_index
        for topic in each.request.topics
        for row in topic.partitions
        if row.partition_index < PARTITIONS and row.leader_epoch < states[row.partition_index]["leader_epoch"]
    ]
    if not stale:
        return None
    if each.answer is None:
        return []
    rows = [row for topic in each.answer.topics for row in topic.partitions]
    return [each.answer.error_code] * bool(each.answer.error_code) + [
        row.error_code for row in rows if row.partition_index in stale
    ]


@contextmanager
def swap(folder: Path, kind: Kind) -> Iterator[Swap]:
    """A cluster with its producer; all of it ends."""
    with clusters.running(folder, kind=kind) as cluster:
        run = Swap(cluster, is_kafka=kind.has_kafka)
        try:
            yield run
        except BaseException:
            print(cluster.log_tails(), flush=True)
            raise
        finally:
            run.producer.stop()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=("kbroker", "kafka"), default="kbroker", help="whose brokers")
    parser.add_argument("--folder", type=Path, default=None, help="where all output stays")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="swap-"))
    folder.mkdir(parents=True, exist_ok=True)
    with swap(folder, KINDS[options.kind]) as run:
        for moment in Moment:
            print(json.dumps(asdict(run.round(moment)), indent=2), flush=True)
        report = run.judge()
    print(json.dumps({**report, "wrong": run.wrong}, indent=2))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
