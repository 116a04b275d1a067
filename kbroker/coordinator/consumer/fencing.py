"""Who may commit and fetch the offsets of a consumer group: members in the epoch that they should have.

A commit that comes late, in an epoch before the member's own, still counts for partitions that the member has had since
that epoch or longer; for others it might be the word of an earlier owner.  Members that speak the classic protocol have
their epoch as generation, and get ILLEGAL_GENERATION where the others get STALE_MEMBER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.classic.group_kind import CommitCheck
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.errors import ErrorCode, KafkaError, UnknownMemberIdError, UnsupportedVersionError

Members = Mapping[str, ConsumerMember]

# Earlier versions of OffsetCommit do not know STALE_MEMBER_EPOCH.
KNOWS_EPOCHS = 9
NO_EPOCH = -1


def check_commit(
    members: Members,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    api_version: int,
    *,
    is_transactional: bool = False,
) -> CommitCheck | None:
    """Raise KafkaError unless who says so may commit; what to ask for each partition, None for nothing."""
    if epoch < 0 and not members:
        return None
    if is_transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
        return None
    member = _member(members, member_id)
    if not is_transactional and member.classic is None and api_version < KNOWS_EPOCHS:
        raise UnsupportedVersionError(
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
        )
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch:
        raise _stale(member, f"{epoch} is newer than the current {member.member_epoch}")

    def check(_topic: str, topic_id: bytes, partition: int) -> None:
        since = member.epoch_of(topic_id, partition)
        if since is None:
            raise _stale(member, "the partition is neither assigned nor pending revocation")
        if epoch < since:
            raise _stale(member, f"{epoch} is older than the assignment epoch {since}")

    return check


def check_fetch(members: Members, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError unless who says so may fetch; without a member id anybody may."""
    if member_id is None and epoch < 0:
        return
    member = _member(members, member_id or "")
    if epoch != member.member_epoch:
        raise _stale(member, f"{epoch} is not the expected {member.member_epoch}")


def _member(members: Members, member_id: str) -> ConsumerMember:
    member = members.get(member_id)
    if member is None:
        raise UnknownMemberIdError(f"Member {member_id} is not a member of the group.")
    return member


def _stale(member: ConsumerMember, reason: str) -> KafkaError:
    code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    return KafkaError.of(code, f"Member epoch {reason}.")
