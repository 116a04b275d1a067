"""Members of groups of all kinds, in one form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker._fast.wire.codec import DecodeError
from kbroker.administration.groups import classic_assignment
from kbroker.coordinator.classic.consumer_protocol import PROTOCOL_TYPE, SubscriptionError, subscribed_topics
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.share.group import ShareGroup
from kbroker.coordinator.share.group_records import by_topic
from kbroker.coordinator.streams.group import StreamsGroup

if TYPE_CHECKING:
    from kbroker.coordinator.classic.group import Group
    from kbroker.coordinator.classic.messages import DescribedMember
    from kbroker.coordinator.consumer.member import ConsumerMember
    from kbroker.coordinator.share.member import ShareMember
    from kbroker.coordinator.streams.member import StreamsMember
    from kbroker.metadata.cache import MetadataCache


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions of a topic; of a streams group tasks of a subtopology."""

    topic: str
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class Member:
    """One member.  `epoch`: None in the classic protocol.  `note`: what it is on its way to, empty where it is
    settled."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    epoch: int | None
    note: str
    subscribed: Sequence[str]
    assigned: Sequence[Assigned]


def members_of(group: Group, cache: MetadataCache) -> Iterator[Member]:
    """The members of a group of any kind, one by one."""
    kind = group.kind
    if kind is None:
        is_consumer = group.protocol_type == PROTOCOL_TYPE
        yield from (_classic(member, is_consumer=is_consumer) for member in group.described_members())
    elif isinstance(kind, ConsumerGroup):
        yield from (_consumer(member, kind, cache) for member in list(kind.members.values()))
    elif isinstance(kind, ShareGroup):
        yield from (_share(member, cache) for member in list(kind.members.values()))
    elif isinstance(kind, StreamsGroup):
        yield from (_streams(member) for member in list(kind.members.values()))


def _classic(member: DescribedMember, *, is_consumer: bool) -> Member:
    topics: Sequence[str] = ()
    assigned: Sequence[Assigned] = ()
    if is_consumer:
        try:
            topics = sorted(subscribed_topics([member.metadata])) if member.metadata else ()
            assigned = [Assigned(*each) for each in classic_assignment(member.assignment)]
        except (SubscriptionError, DecodeError):
            pass  # Bytes of the client's own, which the broker need not understand.
    return Member(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, None, "", topics, assigned
    )


def _consumer(member: ConsumerMember, group: ConsumerGroup, cache: MetadataCache) -> Member:
    note = "" if member.is_reconciled_to(group.assignment_epoch) else member.state.name.lower().replace("_", " ")
    topics = sorted(member.topic_names)
    if member.topic_regex:
        topics.append(f"/{member.topic_regex}/")
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        "on its way to the new epoch" if note == "stable" else note,
        topics,
        _named(member.assigned, cache),
    )


def _share(member: ShareMember, cache: MetadataCache) -> Member:
    return Member(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        member.member_epoch,
        "",
        sorted(member.topic_names),
        _named(by_topic(member.assigned), cache),
    )


def _streams(member: StreamsMember) -> Member:
    roles = (("", member.assigned.active), (" standby", member.assigned.standby), (" warm-up", member.assigned.warmup))
    assigned = [
        Assigned(f"{name}{role}", sorted(tasks)) for role, each in roles for name, tasks in sorted(each.items())
    ]
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        "" if member.state.name == "STABLE" else member.state.name.lower().replace("_", " "),
        (),
        assigned,
    )


def _named(assignment: Mapping[bytes, Iterable[int]], cache: MetadataCache) -> list[Assigned]:
    found = []
    for topic_id, partitions in assignment.items():
        topic = cache.topic_by_id(topic_id)
        if topic is not None:
            found.append(Assigned(topic.name, sorted(partitions)))
    return sorted(found, key=lambda each: each.topic)
