"""kcat against the broker, as people use it in shell scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compat import kcat
from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess
from tests.compat.client import SESSION_MS, SHORT_SESSION_MS
from tests.compat.matrix import PARTITIONS
from tests.compat.records import CODECS, Record, by_place, ends, plain_records, stored_codecs
from tests.compat.waiting import wait_for

Members = list[kcat.KcatMember]


@pytest.fixture
def members() -> Iterator[Members]:
    """Members of the test; all are ended after it."""
    started: Members = []
    yield started
    for member in started:
        member.close()


def bare(records: list[Record]) -> list[Record]:
    """What kcat shows of records: time is its own, headers are not asked for."""
    return sorted((replace(record, timestamp=0, headers=()) for record in records), key=lambda one: one.key or b"")


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_comes_back_as_sent(codec: str, broker: BrokerProcess, admin: Admin) -> None:
    """Scripts that pipe through kcat would lose or garble lines, or store them uncompressed without a word."""
    topic = admin.create_topic(f"kcat-{codec}", 2)
    records = plain_records("line", 40, 2)
    records += [Record(1, b"big", b"abcdefgh" * 5000, (("h", b"1"),)), Record(0, b"no value", None)]
    kcat.produce(broker.bootstrap, topic, records, codec)
    found = kcat.read(broker.bootstrap, topic)
    assert bare([replace(record, offset=-1) for record in found]) == bare(records)
    for partition in range(2):
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == list(range(len(offsets)))
    stored = stored_codecs(broker.data, topic)
    assert codec in stored
    assert stored <= {codec, "none"}


def test_group_survives_members_and_restart(
    broker: BrokerProcess, admin: Admin, members: Members, tmp_path: Path
) -> None:
    """kcat members of a group would miss or repeat lines as members or the broker come and go."""
    topic = admin.create_topic("kcat-group", PARTITIONS)
    group = unique("kcat-group")
    everything = list(range(PARTITIONS))

    def join(session_ms: int = SESSION_MS) -> kcat.KcatMember:
        output = tmp_path / f"member-{len(members)}"
        members.append(kcat.KcatMember(broker.bootstrap, group, topic, output, session_ms))
        return members[-1]

    def add(prefix: str) -> None:
        kcat.produce(broker.bootstrap, topic, plain_records(prefix, 60, PARTITIONS), "none")

    def settled() -> bool:
        written = by_place(kcat.read(broker.bootstrap, topic))
        found = by_place([record for member in members for record in member.received])
        return found == written and admin.committed(group, topic, PARTITIONS) == ends(written)

    add("before")
    first = join()
    wait_for(settled, "the first member to read and commit everything", every=0.1)
    assert first.assigned == everything
    second = join()
    wait_for(lambda: sorted(first.assigned + second.assigned) == everything and second.assigned, "two to share")
    add("shared")
    wait_for(settled, "both to read and commit on", every=0.1)
    second.leave()
    wait_for(lambda: first.assigned == everything, "the partitions of a member that left to come back")
    third = join(SHORT_SESSION_MS)
    wait_for(lambda: sorted(first.assigned + third.assigned) == everything and third.assigned, "a third to share")
    third.die()
    wait_for(lambda: first.assigned == everything, "the partitions of a dead member to come back")
    add("after death")
    wait_for(settled, "the survivor to read and commit everything", every=0.1)
    broker.restart()
    add("after restart")
    wait_for(settled, "the member to read and commit on after the broker's restart", every=0.1)
    first.leave()
    add("for the last")
    join()
    wait_for(settled, "a new member to go on from the committed offsets", every=0.1)
