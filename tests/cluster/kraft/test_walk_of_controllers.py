"""A random walk of administrative requests on two clusters, one under kbroker's controller, one under Apache Kafka's.

Of `kbroker.cluster.controller`.  Brokers are kbrokers in both, so that what differs is the controllers'.
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
from tests.cluster.kraft.administrative_steps import BROKERS, TOPICS, Steps, creation
from tests.cluster.kraft.asking import ask, shown
from tests.cluster.kraft.descriptions import image
from tests.cluster.kraft.processes import Cluster, Kbroker, running
from tests.compat.waiting import Waited, wait_for

STEPS = int(os.environ.get("KBROKER_WALK_STEPS", "200"))
SEED = int(os.environ.get("KBROKER_WALK_SEED", "20263"))
pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600 + 15 * STEPS)]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
}
TEXT = r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\d+"""
OF_A_CLUSTER = re.compile(rf"\b(topic_id|cluster_id|port|throttle_time_ms)=(?:{TEXT})")
"""What is each cluster's own: ids, addresses, times."""


def compared(row: Any) -> str:
    """Without what is each cluster's own."""
    text = row if isinstance(row, str) else repr(row)
    return OF_A_CLUSTER.sub(r"\1=*", text)


class Twins:
    """The two clusters and what has been asked of both."""

    def __init__(self, clusters: tuple[Cluster, Cluster], seed: int) -> None:
        self._clusters = clusters
        self._random = random.Random(seed)
        self._steps = Steps(self._random, self._partitions)
        self.done: list[str] = []
        self.taken: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def _partitions(self, name: str) -> int:
        request = wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name=name)])
        (topic,) = ask(self._clusters[0], 1, request, 12).topics
        return len(topic.partitions)

    def step(self) -> None:
        """One request to both; then their answers and what they describe are compared."""
        if self._random.random() < 0.04:
            name = self._random.choice(TOPICS)
            self._ask("delete", wire.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
            self._same()
            self._ask("make again", creation(self._random, name), 7)
        else:
            self._ask(*self._steps.draw())
        self._same()

    def _ask(self, what: str, request: Any, version: int) -> None:
        self._place(request)
        through = self._random.choice(BROKERS)
        answers = [ask(each, through, request, version) for each in self._clusters]
        codes = {int(each) for each in re.findall(r"error_code=(-?\d+)", repr(answers[1]))} - {0}
        (self.refused if codes else self.taken)[what] += 1
        self.done.append(f"{what}: {sorted(codes) or 'taken'} {request!r}")
        ours, theirs = (shown(each, compared) for each in answers)
        assert ours == theirs, (
            f"seed {SEED}, step {len(self.done)}, {self.done[-1]}: "
            f"{sorted(set(ours) - set(theirs))} where Kafka answers {sorted(set(theirs) - set(ours))}"
        )

    def _place(self, request: Any) -> None:
        """Where replicas are to be, which each controller draws by itself."""
        if isinstance(request, wire.CreateTopicsRequest):
            for topic in request.topics:
                if not topic.assignments:
                    row = request.CreatableReplicaAssignment
                    topic.assignments = [
                        row(partition_index=index, broker_ids=self._random.sample(BROKERS, topic.replication_factor))
                        for index in range(topic.num_partitions)
                    ]
                    topic.num_partitions = topic.replication_factor = -1
        if isinstance(request, wire.CreatePartitionsRequest):
            for each in request.topics:
                made = request.CreatePartitionsAssignment
                # Where partitions have not as many replicas as each other, Kafka goes by whichever its table has first.
                factors = self._factors(each.name)
                if len(factors) != 1:
                    each.count = self._partitions(each.name)
                    continue
                count = max(0, each.count - self._partitions(each.name))
                (factor,) = factors
                each.assignments = [made(broker_ids=self._random.sample(BROKERS, factor)) for _ in range(count)]

    def _factors(self, name: str) -> set[int]:
        request = wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name=name)])
        (topic,) = ask(self._clusters[0], 1, request, 12).topics
        return {len(each.replica_nodes) for each in topic.partitions}

    def _same(self) -> None:
        last: dict[str, Any] = {}

        def are_equal() -> bool:
            nonlocal last
            ours, theirs = (image(each, 1, orders_members=False, mask=compared) for each in self._clusters)
            # Partitions that move are where they are to be first: how far they are is the brokers' time.
            last = {} if "OngoingTopic" not in repr((ours["moves"], theirs["moves"])) else {"moves": ()}
            for what, rows in ours.items():
                one, other = (Counter(map(compared, each)) for each in (rows, theirs[what]))
                if one != other:
                    last[what] = [*(one - other).elements()], [*(other - one).elements()]
            return not last

        try:
            wait_for(are_equal, "the same descriptions", seconds=40)
        except Waited as error:
            raise AssertionError(f"seed {SEED}, step {len(self.done)}, after {self.done[-4:]}: {last}") from error


def test_controllers_of_both_kinds_make_the_same_of_administrative_requests(tmp_path: Path) -> None:
    """A cluster that is moved from one kind to the other would behave otherwise from then on."""
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for folder in folders:
        folder.mkdir()
    kinds = (Kbroker, Kbroker, Kbroker)
    with (
        running(folders[0], kinds, settings=SETTINGS, kbrokers=1) as ours,
        running(folders[1], kinds, settings=SETTINGS, kbrokers=0) as theirs,
    ):
        twins = Twins((ours, theirs), SEED)
        for _ in range(STEPS):
            twins.step()
        print(f"taken: {dict(twins.taken)}; refused: {dict(twins.refused)}")
        assert twins.taken.total() > twins.refused.total(), (twins.taken, twins.refused)
