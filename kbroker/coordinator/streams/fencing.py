"""Who may commit and fetch the offsets of a streams group: members in the epoch that they should have.

A commit that comes late, in an epoch before the member's own, still counts for active tasks that the member has had
since that epoch or longer; for others it might be the word of an earlier owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.classic.group_kind import CommitCheck
from kbroker.coordinator.streams.member import StreamsMember
from kbroker.coordinator.streams.topology import Topology
from kbroker.errors import ErrorCode, KafkaError, UnknownMemberIdError, UnsupportedVersionError

Members = Mapping[str, StreamsMember]

# Earlier versions of OffsetCommit do not know STALE_MEMBER_EPOCH.
KNOWS_EPOCHS = 9
NO_EPOCH = -1


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
    """Raise KafkaError unless who says so may commit; what to ask for each partition, None for nothing."""
    if epoch < 0 and not members:
        return None
    if is_transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
        return None
    member = _member(members, member_id)
    if not is_transactional and api_version < KNOWS_EPOCHS:
        raise UnsupportedVersionError(
            "OffsetCommit version 9 or above must be used by members using the streams group protocol"
        )
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch:
        raise _stale(f"Received member epoch {epoch} is newer than current member epoch {member.member_epoch}.")
    if topology is None:
        raise _stale("Topology is not available for offset commit validation.")

    def check(topic: str, _topic_id: bytes, partition: int) -> None:
        subtopology = topology.subtopology_of(topic)
        if subtopology is None:
            raise _stale(f"Topic {topic} is not in the topology.")
        since = member.epoch_of(subtopology, partition)
        if since is None:
            raise _stale(f"Task {subtopology}-{partition} is not assigned or pending revocation for member.")
        if epoch < since:
            raise _stale(
                f"Received member epoch {epoch} is older than assignment epoch {since} for task "
                f"{subtopology}-{partition}."
            )

    return check


def check_fetch(members: Members, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError unless who says so may fetch; without a member id anybody may."""
    if member_id is None and epoch < 0:
        return
    member = _member(members, member_id or "")
    if epoch != member.member_epoch:
        raise _stale(
            f"The received member epoch {epoch} does not match the expected member epoch {member.member_epoch}."
        )


def _member(members: Members, member_id: str) -> StreamsMember:
    member = members.get(member_id)
    if member is None:
        raise UnknownMemberIdError(f"Member {member_id} is not a member of the group.")
    return member


def _stale(reason: str) -> KafkaError:
    return KafkaError.of(ErrorCode.STALE_MEMBER_EPOCH, reason)
