"""One group whose members are written in different languages, as happens while a service moves from one to another."""

from __future__ import annotations

from functools import partial

from tests.compat.admin import Admin, unique
from tests.compat.client import gather
from tests.compat.kinds import CONFLUENT, JAVA, KAFKA_PYTHON
from tests.compat.matrix import PARTITIONS, StartDriver, shared
from tests.compat.records import by_place, ends, plain_records


def test_members_of_three_libraries_share(admin: Admin, drivers: StartDriver) -> None:
    """Clients of different libraries in one group would not agree on a protocol, or would miss or repeat records."""
    topic = admin.create_topic("mixed", PARTITIONS)
    group = unique("mixed")
    members = [drivers(kind) for kind in (CONFLUENT, KAFKA_PYTHON, JAVA)]
    for count, member in enumerate(members, start=1):
        member.join(topic, group)
        gather(members[:count], partial(shared, members[:count]), f"{count} members to share")
    sent = drivers(CONFLUENT).produce(topic, plain_records("r", 120, PARTITIONS), "zstd")
    gather(members, lambda: sum(len(member.received) for member in members) >= len(sent), "all records")
    assert by_place([record for member in members for record in member.received]) == by_place(sent)
    assert all(len(member.received) == 40 for member in members)
    for member in members:
        member.commit()
    assert admin.committed(group, topic, PARTITIONS) == ends(sent)
    members[0].leave()
    gather(members[1:], lambda: shared(members[1:]), "the two that stay to share")
