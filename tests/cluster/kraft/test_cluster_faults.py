"""What goes wrong around a kbroker of a KRaft cluster: its controllers, its clock, its directories, its disk.

Also of `kbroker.storage.directories.log_dirs`, `kbroker.cluster.kraft.observer`.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kbroker.schemas import wire
from tests.cluster.kraft.asking import ask
from tests.cluster.kraft.life import can_create, life
from tests.cluster.kraft.processes import FIRST_CONTROLLER, Cluster, Kafka, Kbroker, running
from tests.cluster.kraft.shifted_clock import shift, shifted
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

BOTH = [[1, 2], [2, 1]]
EVERYBODY = {1, 2}
AWAY_SECONDS = 60.0
HOUR = 3600
FAIL_OVERS = 5
FROZEN = 2


@pytest.mark.parametrize("kinds", [(Kbroker, Kbroker), (Kbroker, Kafka)])
def test_clients_go_on_while_all_controllers_are_away_for_a_minute(
    tmp_path: Path, kinds: tuple[type[Kbroker | Kafka], ...]
) -> None:
    """An outage of the controllers would be one of the cluster."""
    with running(tmp_path, kinds) as cluster, life(cluster, "t", BOTH) as clients:
        cluster.controllers[FIRST_CONTROLLER].kill()
        end = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < end:
            clients.goes_on()
        cluster.controllers[FIRST_CONTROLLER].start()
        wait_for(lambda: can_create(cluster, 1, "after"), "administration to go on", seconds=120)
        cluster.wait_isr("t", EVERYBODY, through=1)
        clients.goes_on()
        # What waited for a controller goes on, too: a broker leaves, and comes back.
        cluster.nodes[2].kill()
        cluster.wait_isr("t", {1}, through=1)
        clients.goes_on()
        cluster.nodes[2].start()
        cluster.wait_isr("t", EVERYBODY, through=1)


def active(cluster: Cluster) -> int:
    """The active controller as the kbroker tells, -1 while it knows none."""
    request = wire.DescribeQuorumRequest
    topic = request.TopicData(topic_name="__cluster_metadata", partitions=[request.PartitionData(partition_index=0)])
    try:
        answer = ask(cluster, 1, request(topics=[topic]), 2)
    except OSError:
        return -1
    if answer.error_code or not answer.topics:
        return -1
    (partition,) = answer.topics[0].partitions
    return -1 if partition.error_code else int(partition.leader_id)


def test_controllers_that_take_over_from_each_other_again_and_again_hold_nobody_up(tmp_path: Path) -> None:
    """A broker would be lost behind the third fail-over, or take a topic for made that no controller knows."""
    with running(tmp_path, (Kbroker, Kafka), controllers=3) as cluster, life(cluster, "t", BOTH) as clients:
        for number in range(FAIL_OVERS):
            before = wait_for(lambda: max(0, active(cluster)), "an active controller", seconds=90)
            cluster.controllers[before].stop()
            wait_for(
                lambda before=before: active(cluster) not in (-1, before),  # type: ignore[misc]
                "another one to take over",
                seconds=90,
            )
            wait_for(lambda number=number: can_create(cluster, 1, f"made-{number}"), "a topic", seconds=90)  # type: ignore[misc]
            clients.goes_on()
            cluster.controllers[before].start()
        made = {f"made-{number}" for number in range(FAIL_OVERS)}
        for through in EVERYBODY:
            wait_for(
                lambda through=through: made <= set(cluster.admin_of(through).list_topics(timeout=20).topics),  # type: ignore[misc]
                "all topics",
                seconds=60,
            )
        cluster.wait_isr("t", EVERYBODY, through=1)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_broker_whose_clock_is_off_by_an_hour_serves_as_the_others(tmp_path: Path, seconds: int) -> None:
    """One machine without NTP would fall out of ISRs, expire members, or end transactions of the whole cluster."""
    with running(tmp_path, (Kafka, Kafka)) as cluster:
        cluster.nodes[1].stop()
        ours = cluster.make(Kbroker, 1)
        assert isinstance(ours, Kbroker)
        ours.environ.update(shifted(tmp_path, seconds))
        cluster.nodes[1] = ours
        ours.start()
        cluster.wait_known(EVERYBODY)
        with life(cluster, "t", BOTH) as clients:
            for name in ("__consumer_offsets", "t"):
                cluster.wait_isr(name, EVERYBODY)
            producer = Producer({**cluster.client(), "transactional.id": "x", "transaction.timeout.ms": 20000})
            producer.init_transactions(60)
            for _ in range(3):
                producer.begin_transaction()
                for partition in range(len(BOTH)):
                    producer.produce("t", "of a transaction", partition=partition)
                producer.abort_transaction(60)
            clients.goes_on()
            stamp = ask(cluster, 1, offset_for_time(), 7).topics[0].partitions[0]
            assert stamp.error_code == 0
            cluster.nodes[2].kill()
            cluster.wait_isr("t", {1}, through=1)
            clients.goes_on()
            cluster.nodes[2].start()
            cluster.wait_isr("t", EVERYBODY, through=1)
            assert can_create(cluster, 1, "made")


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_broker_that_was_frozen_through_its_session_and_wakes_with_its_clock_off_comes_back(
    tmp_path: Path, seconds: int
) -> None:
    """A virtual machine that goes on elsewhere would serve as a leader that it is no more, or stay out of the ISRs."""
    spread = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    with running(tmp_path, (Kafka,)) as cluster:
        for number in (2, 3):
            node = cluster.nodes[number] = cluster.make(Kbroker, number)
            assert isinstance(node, Kbroker)
            if number == FROZEN:
                node.environ.update(shifted(tmp_path, 0))
            node.start()
        cluster.wait_known({1, 2, 3})
        with life(cluster, "t", spread, {"min.insync.replicas": "2"}) as clients:
            frozen = cluster.nodes[FROZEN]
            frozen.pause()
            cluster.wait_isr("t", {1, 3}, through=1)
            shift(tmp_path, seconds)
            # What is under way to it waits until the clients give its connections up.
            clients.goes_on(120)
            frozen.resume()
            for through in (1, 2):
                cluster.wait_isr("t", {1, 2, 3}, through=through)
            clients.goes_on()
            # It takes over as any other one.
            cluster.nodes[1].kill()
            cluster.wait_isr("t", {2, 3}, through=FROZEN)
            clients.goes_on()
            cluster.nodes[1].start()
            cluster.wait_isr("t", {1, 2, 3}, through=FROZEN)
            assert can_create(cluster, FROZEN, "made")


def offset_for_time() -> wire.ListOffsetsRequest:
    """The newest record's."""
    request = wire.ListOffsetsRequest
    partition = request.ListOffsetsPartition(partition_index=0, timestamp=-3)
    return request(replica_id=-1, topics=[request.ListOffsetsTopic(name="t", partitions=[partition])])


def test_directories_that_were_exchanged_between_brokers_are_refused(tmp_path: Path) -> None:
    """Each would serve the other's replicas as its own, and the controllers take both for in sync."""
    with running(tmp_path, (Kafka,)) as cluster:
        for number in (2, 3):
            dirs = f"{tmp_path}/one-{number},{tmp_path}/two-{number}"
            cluster.nodes[number] = cluster.make(Kbroker, number, {"log.dirs": dirs})
            cluster.nodes[number].start()
        cluster.wait_known({1, 2, 3})
        cluster.create("t", [[2, 3], [3, 2]] * 2)
        cluster.produce("t", ["a"] * 80)
        for number in (2, 3):
            cluster.nodes[number].stop()
        exchange(tmp_path / "two-2", tmp_path / "two-3")
        for number, other in ((2, 3), (3, 2)):
            node = cluster.nodes[number]
            assert isinstance(node, Kbroker)
            assert f"{tmp_path}/two-{number} belongs to node {other}, but this node is {number}" in node.refused()
        exchange(tmp_path / "two-2", tmp_path / "two-3")
        for number in (2, 3):
            cluster.nodes[number].start()
        assert len(cluster.consume("t", 4, 80)) == 80


def exchange(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize("which", ["one", "both"])
def test_directories_of_another_cluster_are_refused(tmp_path: Path, which: str) -> None:
    """A broker would bring its replicas of one cluster into another one, or the controllers have them deleted."""
    with running(tmp_path, (Kafka,)) as cluster:
        dirs = [tmp_path / "one", tmp_path / "two"]
        node = cluster.make(Kbroker, 2, {"log.dirs": ",".join(map(str, dirs))})
        assert isinstance(node, Kbroker)
        cluster.nodes[2] = node
        node.start()
        cluster.wait_known({1, 2})
        cluster.create("t", [[2]] * 4)
        cluster.produce("t", ["a"] * 40)
        node.stop()
        there = {path for each in dirs for path in each.rglob("t-*")}
        other = "AAAAAAAAAAAAAAAAAAAAAA"
        kept = {path / "meta.properties": (path / "meta.properties").read_text() for path in dirs}
        for path, text in list(kept.items())[: 1 if which == "one" else 2]:
            path.write_text(re.sub(r"cluster\.id=\S+", f"cluster.id={other}", text))
        said = node.refused()
        assert ("different clusters" if which == "one" else "another cluster") in said, said
        assert other in said
        for path, text in kept.items():
            path.write_text(text)
        assert {path for each in dirs for path in each.rglob("t-*")} == there
        node.start()
        assert len(cluster.consume("t", 4, 40)) == 40


@contextmanager
def memory(path: Path, size: str) -> Iterator[Path]:
    """A small file system."""
    path.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_of_the_metadata_log_ends_the_broker_with_a_word_and_loses_nothing(tmp_path: Path) -> None:
    """It would go on with metadata that stand still, as a leader that the controllers have replaced."""
    with running(tmp_path, (Kafka,)) as cluster, memory(tmp_path / "small", "4m") as small:
        node = cluster.make(Kbroker, 2, {"metadata.log.dir": str(small / "metadata")})
        assert isinstance(node, Kbroker)
        cluster.nodes[2] = node
        node.start()
        cluster.wait_known({1, 2})
        cluster.create("t", BOTH)
        cluster.wait_isr("t", EVERYBODY)
        cluster.produce("t", ["a"] * 40)
        with (small / "foreign").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        number = iter(range(1000))

        def is_ended() -> bool:
            can_create(cluster, 1, f"more-{next(number)}")
            return not node.is_running

        wait_for(is_ended, "the broker to end", seconds=60)
        assert "the disk of the metadata log has failed" in node.output()
        assert "No space left" in node.output()
        cluster.wait_isr("t", {1}, through=1)
        cluster.produce("t", ["b"] * 40)
        (small / "foreign").unlink()
        node.start()
        cluster.wait_isr("t", EVERYBODY, through=2)
        assert len(cluster.consume("t", len(BOTH), 80)) == 80
