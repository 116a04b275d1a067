"""Who may commit and fetch the offsets of a group of a newer kind: members in the epoch that they should have.

A late commit, in an epoch before the member's own, is still accepted for partitions that the member has owned since
that epoch or longer; the kind of group then checks each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from kbroker.coordinator.modern.group import ModernMember
from kbroker.errors import KafkaError, UnknownMemberIdError, UnsupportedVersionError

# Earlier versions of OffsetCommit do not know STALE_MEMBER_EPOCH.
KNOWS_EPOCHS = 9
NO_EPOCH = -1


class CommittingMember(ModernMember, Protocol):
    """A member that may commit."""

    @property
    def member_epoch(self) -> int:
        """The epoch that it is in."""


M = TypeVar("M", bound=CommittingMember)
# The error of a member that names another epoch than its own, with Kafka's reason.
Stale = Callable[[M, str], KafkaError]


def late_member(
    members: Mapping[str, M],
    member_id: str,
    instance_id: str | None,
    epoch: int,
    api_version: int,
    *,
    is_transactional: bool,
    protocol: str,
    stale: Stale[M],
    speaks_classic: Callable[[M], bool] = lambda _: False,
) -> M | None:
    """The member that commits in an epoch before its own; its partitions have then to be checked one by one.  None for
    a commit in the member's epoch; KafkaError for one that is refused."""
    if epoch < 0 and not members:
        return None
    if is_transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
        return None
    member = _member(members, member_id)
    if not is_transactional and api_version < KNOWS_EPOCHS and not speaks_classic(member):
        raise UnsupportedVersionError(
            f"OffsetCommit version 9 or above must be used by members using the {protocol} group protocol"
        )
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch:
        raise stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.member_epoch}.")
    return member


def check_since(member: M, epoch: int, since: int | None, noun: str, name: str, stale: Stale[M]) -> None:
    """KafkaError unless a member that commits late has owned a thing (such as a partition) since that epoch or longer.
    `since`: the epoch in which it got the thing, None where it does not own it."""
    if since is None:
        raise stale(member, f"{noun} {name} is not assigned or pending revocation for member.")
    if epoch < since:
        raise stale(
            member,
            f"Received member epoch {epoch} is older than assignment epoch {since} for {noun.lower()} {name}.",
        )


def check_fetch(members: Mapping[str, M], member_id: str | None, epoch: int, stale: Stale[M]) -> None:
    """Raise KafkaError unless the member may fetch; a request without a member id may."""
    if member_id is None and epoch < 0:
        return
    member = _member(members, member_id or "")
    if epoch != member.member_epoch:
        raise stale(
            member, f"The received member epoch {epoch} does not match the expected member epoch {member.member_epoch}."
        )


def _member(members: Mapping[str, M], member_id: str) -> M:
    member = members.get(member_id)
    if member is None:
        raise UnknownMemberIdError(f"Member {member_id} is not a member of the group.")
    return member
