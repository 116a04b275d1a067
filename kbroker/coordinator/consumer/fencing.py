"""Who may commit and fetch the offsets of a consumer group (`modern.fencing`).

A commit in an earlier epoch is accepted for partitions that the member has owned since that epoch; for any other
partition it could be the commit of an earlier owner.  Members that speak the classic protocol have their epoch as
generation, and get ILLEGAL_GENERATION where the others get STALE_MEMBER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.classic.group_kind import CommitCheck
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.coordinator.modern import fencing
from kbroker.errors import ErrorCode, KafkaError

Members = Mapping[str, ConsumerMember]


def check_commit(
    members: Members,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    api_version: int,
    *,
    is_transactional: bool = False,
) -> CommitCheck | None:
    """Raise KafkaError unless the member may commit; the check for each partition, None where there is none."""
    member = fencing.late_member(
        members,
        member_id,
        instance_id,
        epoch,
        api_version,
        is_transactional=is_transactional,
        protocol="consumer",
        stale=_stale,
        speaks_classic=_speaks_classic,
    )
    if member is None:
        return None

    def check(_topic: str, topic_id: bytes, partition: int) -> None:
        since = member.epoch_of(topic_id, partition)
        fencing.check_since(member, epoch, since, "Partition", str(partition), _stale)

    return check


def check_fetch(members: Members, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError unless the member may fetch; a request without a member id may."""
    fencing.check_fetch(members, member_id, epoch, _stale)


def _speaks_classic(member: ConsumerMember) -> bool:
    return member.classic is not None


def _stale(member: ConsumerMember, reason: str) -> KafkaError:
    code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    return KafkaError.of(code, reason)
