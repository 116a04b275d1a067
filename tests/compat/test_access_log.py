"""A web server's log, line by line through the broker, which is killed midway.

An idempotent producer writes each line, keyed by its client's address; after a third the broker is killed and started
again, and again while three consumers of one group read.  Every line that was acknowledged is there once, byte for
byte, in order within its partition; the group's members between them get each line once per commit.

The log is `access_log` here; the far larger one of the shared traces is taken where it exists.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess
from tests.compat.client import ClientKind, Driver, gather
from tests.compat.kinds import CONFLUENT
from tests.compat.records import Record, by_place, ends
from tests.compat.tooling import ROOT
from tests.compat.waiting import wait_for

PARTITIONS = 6
LOGS = {
    "small": Path(__file__).parent / "access_log",
    "large": ROOT.parent / "shared" / "traces" / "elastic-kafka-logs" / "apache_access_logs",
}


def lines_of(path: Path) -> list[Record]:
    """One record per line, the client's address as its key, spread by key."""
    records = []
    for number, line in enumerate(path.read_bytes().splitlines()):
        key = line.split(b" ", 1)[0]
        records.append(Record(zlib.crc32(key) % PARTITIONS, key, line, (), 1_431_000_000_000 + number))
    return records


@pytest.mark.parametrize("size", LOGS)
def test_each_line_comes_back(
    size: str, broker: BrokerProcess, admin: Admin, drivers: Callable[[ClientKind], Driver]
) -> None:
    """A log shipped through the broker would lose, repeat or garble lines when the broker's process dies."""
    if not LOGS[size].exists():
        pytest.skip(f"{LOGS[size].name} is not on this machine; the small log is tested")
    records = lines_of(LOGS[size])
    topic = admin.create_topic(f"access-{size}", PARTITIONS, {"retention.ms": "-1", "segment.bytes": "1048576"})
    group = unique("access")
    third = len(records) // 3
    producer = drivers(CONFLUENT)
    sent = producer.produce(topic, records[:third], "lz4", idempotent=True)
    broker.kill()
    broker.start()
    sent += producer.produce(topic, records[third : 2 * third], "lz4", idempotent=True)

    members = [drivers(CONFLUENT) for _ in range(3)]
    for member in members:
        member.join(topic, group)
    gather(members, lambda: distinct(members) == len(sent) and all(member.assigned for member in members), "two thirds")
    first_commit = commit(members, admin, group, topic, ends(sent))
    before = [len(member.received) for member in members]

    broker.kill()
    broker.start()
    sent += producer.produce(topic, records[2 * third :], "lz4", idempotent=True)
    gather(members, lambda: distinct(members) == len(sent), "the rest")
    commit(members, admin, group, topic, ends(sent))

    everything = [record for member in members for record in member.received]
    once = by_place({(record.partition, record.offset): record for record in everything}.values())
    assert once == by_place(sent)
    for partition in range(PARTITIONS):
        stored = [record.value for record in once if record.partition == partition]
        assert stored == [record.value for record in records if record.partition == partition]
    late = [record for member, count in zip(members, before, strict=True) for record in member.received[count:]]
    assert [record for record in late if record.offset < first_commit[record.partition]] == []
    assert len(late) == len(sent) - sum(first_commit.values())


def commit(members: list[Driver], admin: Admin, group: str, topic: str, wanted: dict[int, int]) -> dict[int, int]:
    """Have the members commit until the group has committed everything; the committed offsets."""

    def committed() -> dict[int, int]:
        for member in members:
            member.commit()
        found = admin.committed(group, topic, PARTITIONS)
        return found if found == wanted else {}

    return wait_for(committed, "the group to commit everything", every=0.2)


def distinct(members: list[Driver]) -> int:
    """The number of different records that the members have between them."""
    return len({(record.partition, record.offset) for member in members for record in member.received})
