"""Who may commit and fetch the offsets of a streams group (`modern.fencing`).

A commit with an older epoch is accepted for source topics of active tasks that the member has owned since that epoch;
for other tasks it may come from an earlier owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.classic.group_kind import CommitCheck
from kbroker.coordinator.modern import fencing
from kbroker.coordinator.streams.member import StreamsMember
from kbroker.coordinator.streams.topology import Topology
from kbroker.errors import ErrorCode, KafkaError

Members = Mapping[str, StreamsMember]


def check_commit(
    members: Members,
    topology: Topology | None,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    api_version: int,
    *,
    is_transactional: bool,
) -> CommitCheck | None:
    """Raise KafkaError unless the member may commit; the check for each partition, None where there is none."""
    member = fencing.late_member(
        members,
        member_id,
        instance_id,
        epoch,
        api_version,
        is_transactional=is_transactional,
        protocol="streams",
        stale=_stale,
    )
    if member is None:
        return None
    if topology is None:
        raise _stale(member, "Topology is not available for offset commit validation.")

    def check(topic: str, _topic_id: bytes, partition: int) -> None:
        subtopology = topology.subtopology_of(topic)
        if subtopology is None:
            raise _stale(member, f"Topic {topic} is not in the topology.")
        since = member.epoch_of(subtopology, partition)
        fencing.check_since(member, epoch, since, "Task", f"{subtopology}-{partition}", _stale)

    return check


def check_fetch(members: Members, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError unless the member may fetch; a request without a member id may."""
    fencing.check_fetch(members, member_id, epoch, _stale)


def _stale(_member: StreamsMember, reason: str) -> KafkaError:
    return KafkaError.of(ErrorCode.STALE_MEMBER_EPOCH, reason)
