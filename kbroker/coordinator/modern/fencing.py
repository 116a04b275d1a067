"""Who may commit and fetch the offsets of a group of a newer kind: members in the epoch that they should have.

A late commit, in an epoch before the member's own, is still accepted for partitions that the member has owned since
that epoch or longer; for any other partition it could be the commit of an earlier owner.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, TypeVar

from kbroker.coordinator.modern.group import CommitCheck, ModernGroup, ModernMember
from kbroker.errors import ErrorCode, KafkaError, UnsupportedVersionError

# Earlier versions of OffsetCommit do not know STALE_MEMBER_EPOCH.
KNOWS_EPOCHS = 9
NO_EPOCH = -1


class CommittingMember(ModernMember, Protocol):
    """A member that may commit."""

    @property
    def member_epoch(self) -> int:
        """The epoch that it is in."""


C = TypeVar("C", bound=CommittingMember)
A = TypeVar("A")


class CommittingGroup(ModernGroup[C, A]):
    """A group that has committed offsets; see the module."""

    __slots__ = ()

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> CommitCheck | None:
        """Raise KafkaError unless the member may commit; the check of each partition for a late commit, None for one in
        the member's epoch."""
        if epoch < 0 and not self.members:
            return None
        if is_transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not is_transactional and api_version < KNOWS_EPOCHS and not self.speaks_classic(member):
            raise UnsupportedVersionError(
                f"OffsetCommit version 9 or above must be used by members using the {self.group_type} group protocol"
            )
        if epoch == member.member_epoch:
            return None
        if epoch > member.member_epoch:
            raise self.stale(
                member, f"Received member epoch {epoch} is newer than current member epoch {member.member_epoch}."
            )
        return self.late_check(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless the member may fetch; a request without a member id may."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.member_epoch:
            raise self.stale(
                member,
                f"The received member epoch {epoch} does not match the expected member epoch {member.member_epoch}.",
            )

    def check_since(self, member: C, epoch: int, since: int | None, noun: str, name: str) -> None:
        """KafkaError unless a member that commits late has owned a thing (such as a partition) since that epoch or
        longer.  `since`: the epoch in which it got the thing, None where it does not own it."""
        if since is None:
            raise self.stale(member, f"{noun} {name} is not assigned or pending revocation for member.")
        if epoch < since:
            raise self.stale(
                member,
                f"Received member epoch {epoch} is older than assignment epoch {since} for {noun.lower()} {name}.",
            )

    def speaks_classic(self, _member: C) -> bool:
        """Whether a member speaks the classic protocol, whose versions know no epochs."""
        return False

    def stale(self, _member: C, reason: str) -> KafkaError:
        """The error of a member that names another epoch than its own, with Kafka's reason."""
        return KafkaError.of(ErrorCode.STALE_MEMBER_EPOCH, reason)

    @abstractmethod
    def late_check(self, member: C, epoch: int) -> CommitCheck:
        """The check of each partition that a member commits late, in an epoch before its own."""


def fenced(group_type: str, member: CommittingMember, epoch: int) -> KafkaError:
    """The error of a heartbeat in another epoch than the member's."""
    word = "smaller" if epoch < member.member_epoch else "greater"
    return KafkaError.of(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {group_type} group member has a {word} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )
