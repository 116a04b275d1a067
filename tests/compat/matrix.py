"""What every client must be able to do, whatever its language.

Each function is one user's story, told with the verbs of `client.Driver`; the `test_*` modules run them for one
client each, so that a failure names the client.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess
from tests.compat.client import SHORT_SESSION_MS, ClientKind, Driver, gather
from tests.compat.records import Record, by_place, ends, odd_records, plain_records, stored_codecs
from tests.compat.waiting import wait_for

StartDriver = Callable[[ClientKind], Driver]
PARTITIONS = 6


def check_codec(kind: ClientKind, codec: str, broker: BrokerProcess, admin: Admin, start: StartDriver) -> None:
    """Odd records go out in one codec and come back the same, and lie on disk in that codec."""
    topic = admin.create_topic(f"codec-{kind.name}-{codec}", 3)
    records = odd_records(3, null_headers=kind.null_headers, repeated_headers=kind.repeated_headers)
    driver = start(kind)
    sent = driver.produce(topic, records, codec)
    for partition in range(3):
        offsets = [record.offset for record in sent if record.partition == partition]
        assert offsets == list(range(len(offsets))), f"partition {partition} was given offsets {offsets}"
    found = driver.read(topic, ends(sent))
    assert by_place(found) == by_place(sent)
    # librdkafka stores a batch plain when the codec does not make it smaller; all of them plain means it was ignored.
    stored = stored_codecs(broker.data, topic)
    assert codec in stored
    assert stored <= {codec, "none"}


def check_idempotent(kind: ClientKind, admin: Admin, start: StartDriver) -> None:
    """An idempotent producer gets a producer id and its records come back once, in order."""
    topic = admin.create_topic(f"idempotent-{kind.name}", 2)
    driver = start(kind)
    sent = driver.produce(topic, plain_records("i", 200, 2), "none", idempotent=True)
    sent += driver.produce(topic, plain_records("j", 200, 2), "none", idempotent=True)
    assert by_place(driver.read(topic, ends(sent))) == by_place(sent)


def check_group(kind: ClientKind, broker: BrokerProcess, admin: Admin, start: StartDriver, **options: str) -> None:
    """Members join (with `options`), leave and die, the broker restarts: each record reaches the group once and none is
    missing."""
    topic = admin.create_topic(f"group-{kind.name}", PARTITIONS)
    group = unique(f"group-{kind.name}")
    producer = start(kind)
    story = _Story(topic, producer)
    everything = list(range(PARTITIONS))

    first = start(kind)
    story.add("before", 60)
    first.join(topic, group, **options)
    story.expect([first], "the first member alone to read everything")
    assert first.assigned == everything
    first.commit()

    second = start(kind)
    second.join(topic, group, **options)
    gather([first, second], lambda: shared([first, second]), "two members to share the partitions")
    story.add("shared", 60)
    story.expect([first, second], "both members to read on")
    first.commit()
    second.commit()

    second.leave()
    gather([first], lambda: first.assigned == everything, "the partitions of a member that left to come back")
    third = start(kind)
    third.join(topic, group, session_ms=SHORT_SESSION_MS, **options)
    gather([first, third], lambda: shared([first, third]), "a third member to take its share")
    third.die()
    gather([first], lambda: first.assigned == everything, "the partitions of a dead member to come back")
    story.add("after death", 60)
    story.expect([first, second, third], "the survivor to read everything")
    first.commit()

    story.committed = admin.committed(group, topic, PARTITIONS)
    assert story.committed == ends(story.sent)
    broker.restart()
    story.add("after restart", 60)
    story.expect([first, second, third], "the member to read on after the broker's restart")

    def commit() -> bool:
        first.commit()
        return admin.committed(group, topic, PARTITIONS) == ends(story.sent)

    wait_for(commit, "the member to commit after the broker's restart", every=0.2)
    first.leave()
    wait_for(lambda: admin.group_state(group) == "EMPTY", "the group to be empty")

    last = start(kind)
    story.add("for the last", 6)
    last.join(topic, group, **options)
    story.expect([first, second, third, last], "a new member to go on from the committed offsets")
    last.leave()
    assert by_place(producer.read(topic, ends(story.sent))) == by_place(story.sent)


def shared(members: list[Driver]) -> bool:
    """Whether the members own all partitions between them, each at least one, none twice."""
    owned = [partition for member in members for partition in member.assigned or []]
    return sorted(owned) == list(range(PARTITIONS)) and all(member.assigned for member in members)


class _Story:
    """What was written so far, against what the members received."""

    def __init__(self, topic: str, producer: Driver) -> None:
        self.topic = topic
        self.producer = producer
        self.sent: list[Record] = []
        # From the broker's restart on, a client that loses its place may read again what was not committed before it.
        self.committed: dict[int, int] | None = None

    def add(self, prefix: str, count: int) -> None:
        """Write more; idempotently, as a client may send again what the restarting broker had taken."""
        self.sent += self.producer.produce(self.topic, plain_records(prefix, count, PARTITIONS), idempotent=True)

    def expect(self, members: list[Driver], what: str) -> None:
        """Wait until all members of the story together have received everything, each record once."""
        listening = [member for member in members if member.process.poll() is None]
        gather(listening, lambda: len(self._once(members)) >= len(self.sent), what)
        assert by_place(self._once(members).values()) == by_place(self.sent)
        final = [[record for record in member.received if self._final(record)] for member in members]
        assert by_place(record for part in final for record in part) == [
            record for record in by_place(self.sent) if self._final(record)
        ]
        for part in final:
            for partition in range(PARTITIONS):
                offsets = [record.offset for record in part if record.partition == partition]
                assert offsets == sorted(offsets), f"partition {partition} came out of order: {offsets}"

    def _final(self, record: Record) -> bool:
        """Whether this record may reach the group once only."""
        return self.committed is None or record.offset < self.committed[record.partition]

    @staticmethod
    def _once(members: list[Driver]) -> dict[tuple[int, int], Record]:
        return {(record.partition, record.offset): record for member in members for record in member.received}
