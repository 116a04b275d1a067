"""A random walk of administrative requests through brokers of both kinds: after each, all describe the same cluster.

Also of `kbroker.metadata.record_deltas`, `kbroker.cluster.kraft.cluster_metadata`.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kbroker.schemas import wire
from tests.broker_process import answers_api_versions
from tests.cluster.kraft.administrative_steps import (
    TOPICS,
    Steps,
    creation,
)
from tests.cluster.kraft.asking import ask
from tests.cluster.kraft.descriptions import image
from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import Waited, wait_for

STEPS = int(os.environ.get("KBROKER_WALK_STEPS", "60"))
SEED = int(os.environ.get("KBROKER_WALK_SEED", "20261"))
pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300 + 15 * STEPS)]

OURS, THEIRS, COMES_AND_GOES = 1, 2, 3
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
}
QUORUM = wire.DescribeQuorumRequest


def differences(cluster: Cluster, numbers: tuple[int, ...]) -> dict[str, dict[int, Any]]:
    """What brokers describe otherwise than the first of them."""
    images = {number: image(cluster, number) for number in numbers}
    first = images[numbers[0]]
    return {
        what: {
            number: sorted(set(map(repr, each[what])) - set(map(repr, other[what])))
            for number, each in images.items()
            for other in images.values()
            if each[what] != other[what]
        }
        for what in first
        if any(each[what] != first[what] for each in images.values())
    }


def quorum(cluster: Cluster) -> Any:
    topic = QUORUM.TopicData(topic_name="__cluster_metadata", partitions=[QUORUM.PartitionData(partition_index=0)])
    return ask(cluster, THEIRS, QUORUM(topics=[topic]), 2).topics[0].partitions[0]


class Walk:
    """The cluster and what has been asked of it."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._steps = Steps(self._random, self._partitions)
        self.is_whole = True
        self.done: list[str] = []
        self.taken: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def _partitions(self, name: str) -> int:
        request = wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name=name)])
        (topic,) = ask(self._cluster, THEIRS, request, 12).topics
        return len(topic.partitions)

    def _living(self) -> tuple[int, ...]:
        return (OURS, THEIRS, COMES_AND_GOES) if self.is_whole else (OURS, THEIRS)

    def step(self) -> None:
        """One request through one broker, or one broker that goes or comes; then all are compared."""
        drawn = self._random.random()
        if drawn < 0.04:
            self._go_or_come()
        elif drawn < 0.08:
            name = self._random.choice([each for each in TOPICS if self._partitions(each)] or TOPICS)
            self._ask("delete", wire.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
            self._ask("make again", creation(self._random, name), 7)
        else:
            self._ask(*self._steps.draw())
        self.compare()

    def _go_or_come(self) -> None:
        node = self._cluster.nodes[COMES_AND_GOES]
        if not self.is_whole:
            node.start()
        elif self._random.random() < 0.5:
            node.kill()
        else:
            node.stop()
        self.is_whole = not self.is_whole
        self.done.append(f"broker {COMES_AND_GOES} {'comes' if self.is_whole else 'goes'}")

    def _ask(self, what: str, request: Any, version: int) -> None:
        through = self._random.choice(self._living())
        answer = repr(ask(self._cluster, through, request, version))
        codes = {int(each) for each in re.findall(r"error_code=(\d+)", answer)} - {0}
        (self.refused if codes else self.taken)[what] += 1
        self.done.append(f"{what} through {through}: {sorted(codes) or 'taken'} {request!r}")

    def compare(self) -> None:
        """Until the brokers that live are where the active controller was, and describe the same."""
        target = quorum(self._cluster).high_watermark
        living = set(self._living())

        def are_there() -> bool:
            ends = {each.replica_id: each.log_end_offset for each in quorum(self._cluster).observers}
            return all(ends.get(number, -1) >= target for number in living)

        wait_for(are_there, f"brokers {living} to have the log up to {target}", seconds=60)
        last: dict[str, Any] = {}

        def are_equal() -> bool:
            nonlocal last
            last = differences(self._cluster, tuple(sorted(living)))
            return not last

        try:
            wait_for(are_equal, "the same descriptions", seconds=60)
        except Waited as error:
            raise AssertionError(f"seed {SEED}, after {self.done[-5:]}: {last}") from error


def test_brokers_of_both_kinds_describe_the_same_cluster_after_each_administrative_request(tmp_path: Path) -> None:
    """What a client learns of the cluster would depend on the broker that it asks, from some request on, for ever."""
    with running(tmp_path, (Kbroker, Kafka, Kbroker), settings=AUTHORIZER) as cluster:
        # Kafka's broker is registered, and shown to clients, before it takes connections.
        port = cluster.nodes[THEIRS].port
        wait_for(lambda: answers_api_versions(port), "Kafka's broker to answer", seconds=60)
        walk = Walk(cluster, SEED)
        for _ in range(STEPS):
            walk.step()
        if not walk.is_whole:
            cluster.nodes[COMES_AND_GOES].start()
            walk.is_whole = True
            walk.compare()
        # What a start reads from disk is the same, too.
        cluster.nodes[OURS].stop()
        cluster.nodes[OURS].start()
        walk.compare()
        print(f"taken: {dict(walk.taken)}; refused: {dict(walk.refused)}")
        assert walk.taken.total() > walk.refused.total(), (walk.taken, walk.refused)
