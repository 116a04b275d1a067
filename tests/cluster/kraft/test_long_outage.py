"""All controllers are away for long: brokers serve what they lead, refuse what they cannot do, and do not grow.

    KBROKER_AWAY_SECONDS=3600 pytest -m slow tests/cluster/kraft/test_long_outage.py -s

Of `kbroker.cluster.kraft.forwarding`, `kbroker.cluster.kraft.lifecycle_client`; also of
`kbroker.cluster.kraft.observer`, `kbroker.cluster.kraft.outage`.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kbroker.errors import ErrorCode
from tests.cluster.kraft.asking import ask, shown
from tests.cluster.kraft.life import Life, can_create, life
from tests.cluster.kraft.outage_requests import REFUSED, SERVED, Asked
from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import wait_for

AWAY_SECONDS = float(os.environ.get("KBROKER_AWAY_SECONDS", "150"))
pytestmark = [
    pytest.mark.compat,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(round(AWAY_SECONDS) + 900),
]

EVERYBODY = {1, 2, 3}
OURS, THEIRS, FOLLOWER = 1, 3, 2
LED = [[OURS, FOLLOWER, THEIRS], [THEIRS, FOLLOWER, OURS]]
RECORD_EVERY_SECONDS = 0.1
HANGING_SECONDS = 12.0
COORDINATORS = 4
"""So many transactional ids are of all coordinators."""
SETTLED_SHARE = 0.2
"""The part of the outage after which brokers are held to what they have by then."""
MOST_MORE_BYTES = 8 << 20
MOST_MORE_DESCRIPTORS = 16
MOST_LINES_A_MINUTE = 5
"""Apache Kafka's broker 4.3.1 writes some 3,000 a minute, and this project's some 5 in each five minutes."""
OF_THE_MOMENT = re.compile(r"(throttle_time_ms|controller_id)=-?\d+")


@dataclass(frozen=True, slots=True)
class Use:
    """What a process has of the machine."""

    anonymous_bytes: int
    descriptors: int
    threads: int
    cpu_seconds: float
    output_lines: int

    @staticmethod
    def of(node: Kbroker) -> Use:
        """By now."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{node.pid}/status").read_text().splitlines())
        fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
        return Use(
            int(status["RssAnon"].split()[0]) * 1024,
            len(list(Path(f"/proc/{node.pid}/fd").iterdir())),
            int(status["Threads"]),
            (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            node.output().count("\n"),
        )


class Asking:
    """One round of requests after the other to a kbroker and to Kafka, both at once; their answers have to be equal."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number = 0
        self.seen: Counter[str] = Counter()
        self.seconds: dict[int, float] = {OURS: 0.0, THEIRS: 0.0}

    def round(self, pool: ThreadPoolExecutor) -> None:
        """Of each kind of request one; returns when all are answered, after a minute or so."""
        self._number += 1
        asked = {
            (each, broker): pool.submit(self._ask, each, broker)
            for each in (*REFUSED, *SERVED)
            for broker in (OURS, THEIRS)
        }
        answers = {where: found.result() for where, found in asked.items()}
        unequal = [each for each in (*REFUSED, *SERVED) if answers[each, OURS] != answers[each, THEIRS]]
        assert not unequal, [(answers[each, OURS], answers[each, THEIRS]) for each in unequal]
        for each in (*REFUSED, *SERVED):
            ours = answers[each, OURS]
            self.seen[f"{each.__name__}: {ours}"] += 1
            if each in REFUSED:
                code = ErrorCode.REQUEST_TIMED_OUT.value
                assert f"error_code={code}" in " ".join(ours) or "REQUEST_TIMED_OUT" in " ".join(ours), ours

    def _ask(self, each: Asked, broker: int) -> list[str]:
        request, version = each(self._number)
        begin = time.monotonic()
        answer = ask(self._cluster, broker, request, version)
        self.seconds[broker] = max(self.seconds[broker], time.monotonic() - begin)
        return [OF_THE_MOMENT.sub(r"\1=*", line) for line in shown(answer)]


def transact(cluster: Cluster, number: int) -> None:
    """A new transactional producer, which a coordinator gives an id from what its broker has in store."""
    producer = Producer({**cluster.client(), "transactional.id": f"x-{number}", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(len(LED)):
        producer.produce("t", "of a transaction", partition=partition)
    producer.abort_transaction(60)


def follower_hangs(cluster: Cluster, clients: Life) -> None:
    """The ISR cannot shrink, so that nothing is acknowledged without the one that hangs; then all goes on."""
    cluster.nodes[FOLLOWER].pause()
    try:
        # What was on its way is through.
        deadline = time.monotonic() + HANGING_SECONDS
        before = len(clients.acknowledged)
        counts: list[int] = []

        def is_over() -> bool:
            counts.append(len(clients.acknowledged))
            return time.monotonic() > deadline

        wait_for(is_over, "the follower to be behind", seconds=60, every=1.0)
        assert counts[-1] <= before + 2 / RECORD_EVERY_SECONDS, counts
        assert counts[-1] == counts[2], counts
    finally:
        cluster.nodes[FOLLOWER].resume()
    clients.goes_on(90)


def test_brokers_serve_what_they_lead_while_all_controllers_are_away_for_long(tmp_path: Path) -> None:
    """An outage of the controllers would become one of the cluster by and by: by memory, descriptors, ids or lies."""
    kinds = (Kbroker, Kbroker, Kafka)
    with (
        running(tmp_path, kinds, controllers=3) as cluster,
        life(cluster, "t", LED, {"min.insync.replicas": "2"}, RECORD_EVERY_SECONDS) as clients,
        ThreadPoolExecutor(2 * len(REFUSED + SERVED) + 1) as pool,
    ):
        ours = [node for node in cluster.nodes.values() if isinstance(node, Kbroker)]
        # A broker without producer ids in store gets some with the first that it gives away, Kafka as well.
        for number in range(-COORDINATORS, 0):
            transact(cluster, number)
        for node in cluster.controllers.values():
            node.kill()
        begin = time.monotonic()
        asking = Asking(cluster)
        has_hung = False
        settled: list[Use] = []
        settled_at = 0
        number = 0
        while (gone := time.monotonic() - begin) < AWAY_SECONDS:
            number += 1
            asking.round(pool)
            clients.goes_on()
            transact(cluster, number)
            if not settled and gone > AWAY_SECONDS * SETTLED_SHARE:
                settled, settled_at = [Use.of(node) for node in ours], round(gone)
            if not has_hung and gone > AWAY_SECONDS / 2:
                has_hung = True
                follower_hangs(cluster, clients)
            print(f"{gone:.0f} s: {[Use.of(node) for node in ours]}, {len(clients.acknowledged)} records", flush=True)
        ended = [Use.of(node) for node in ours]
        minutes = (time.monotonic() - begin - settled_at) / 60
        print(*asking.seen.items(), asking.seconds, sep="\n", flush=True)
        for node in cluster.controllers.values():
            node.start()
        wait_for(lambda: can_create(cluster, OURS, "after"), "administration to go on", seconds=180)
        wait_for(lambda: can_create(cluster, THEIRS, "after-2"), "administration to go on", seconds=180)
        cluster.wait_known(EVERYBODY)
        for through in (OURS, FOLLOWER):
            cluster.wait_isr("t", EVERYBODY, through=through)
        clients.goes_on()
        topics = set(cluster.admin_of(OURS).list_topics(timeout=20).topics)
        assert not [each for each in topics if each.startswith("never-")]
        for node in ours:
            assert "the controllers answer again, after" in node.output()
        # What waited for a controller goes on, too: a leader dies and comes back.
        cluster.nodes[OURS].kill()
        cluster.wait_isr("t", EVERYBODY - {OURS}, through=FOLLOWER)
        clients.goes_on()
        cluster.nodes[OURS].start()
        cluster.wait_isr("t", EVERYBODY, through=OURS)
        for before, after in zip(settled, ended, strict=True):
            assert after.anonymous_bytes <= before.anonymous_bytes + MOST_MORE_BYTES, (before, after)
            assert after.descriptors <= before.descriptors + MOST_MORE_DESCRIPTORS, (before, after)
            assert after.threads <= before.threads + 2, (before, after)
            assert after.output_lines <= before.output_lines + MOST_LINES_A_MINUTE * (minutes + 1), (before, after)
