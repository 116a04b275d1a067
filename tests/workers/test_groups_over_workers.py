"""Groups and transactions whose coordinators, states and partitions are on different workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from tests.compat.waiting import wait_for
from tests.share.java_member import JavaMember
from tests.share.java_members import poll_until, prepare
from tests.workers.processes import QUIET, Deliveries, Workers, read_all

pytestmark = pytest.mark.slow


def test_share_groups_keep_their_state_on_any_worker(tmp_path: Path) -> None:
    """A partition's leader would not reach the state of its group, and hand records out twice or never."""
    settings = {
        "share.coordinator.state.topic.num.partitions": "3",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.min.session.timeout.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "500",
    }
    workers = Workers(tmp_path, 3, settings).up()
    try:
        prepare(workers, "shared", 6)
        deliveries = Deliveries(workers.bootstrap)
        deliveries.send("shared", 60)
        deliveries.finish()
        member = JavaMember(workers.bootstrap, "shared", "shared").started()
        found = poll_until([member], lambda seen: len(seen) >= 60)
        assert sorted(each.value for each in found) == sorted(deliveries.acknowledged)
        # The next poll accepts what the one before gave.
        assert member.poll() == []
        member.close()
        deliveries.send("shared", 30)
        deliveries.finish()
        again = JavaMember(workers.bootstrap, "shared", "shared").started()
        found += poll_until([again], lambda seen: len(seen) >= 30)
        assert sorted(each.value for each in found) == sorted(deliveries.acknowledged)
        again.close()
    finally:
        workers.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_the_worker_that_coordinates_it(tmp_path: Path, protocol: str) -> None:
    """Its members would begin anew, at the beginning or at the end."""
    workers = Workers(tmp_path, 3).up()
    try:
        workers.admin.create_topics([NewTopic("t", 6, 1)])["t"].result(30)
        deliveries = Deliveries(workers.bootstrap)
        deliveries.send("t", 100)
        deliveries.finish()
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": workers.bootstrap,
                "group.id": "g",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        values: list[str] = []

        def read(enough: int) -> bool:
            for message in consumer.consume(100, 0.2):
                value = message.value()
                if message.error() is None and value is not None:
                    values.append(value.decode())
            return len(values) >= enough

        wait_for(lambda: read(100), "the first records", seconds=60)
        consumer.commit(asynchronous=False)
        for number in (1, 2, 3):
            workers.kill_worker(number)
            workers.wait_until_ready()
        deliveries.send("t", 50)
        deliveries.finish()
        wait_for(lambda: read(150), "records after the deaths", seconds=60)
        assert sorted(values) == sorted(deliveries.acknowledged)
        consumer.close()
    finally:
        workers.close()


def test_a_transaction_over_all_workers_is_whole(tmp_path: Path) -> None:
    """Markers would be missing on the workers that do not coordinate it, and consumers would wait for ever."""
    workers = Workers(tmp_path, 3).up()
    try:
        workers.admin.create_topics([NewTopic("t", 6, 1)])["t"].result(30)
        producer = Producer({**QUIET, "bootstrap.servers": workers.bootstrap, "transactional.id": f"x{os.getpid()}"})
        producer.init_transactions(60)
        wanted = set()
        for number in range(6):
            producer.begin_transaction()
            for index in range(6):
                producer.produce("t", f"{number}-{index}", partition=index)
            if number % 2:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
                wanted |= {f"{number}-{index}" for index in range(6)}
        found = read_all(workers.bootstrap, "reader", ["t"], wanted)
        assert sorted(found) == sorted(wanted)
    finally:
        workers.close()
