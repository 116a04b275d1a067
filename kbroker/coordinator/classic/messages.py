"""What goes into the coordinator and what comes out, free of API versions: handlers translate.

Answers that may have to wait are given through a callback (`JoinReply`, `SyncReply`), exactly once each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.types import NO_LEADER_EPOCH, ZERO_UUID

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1
NO_REASON = "not provided"
# Makes a named tuple without the call of Python that its class would be.
new_tuple = tuple.__new__


class MemberProtocol(NamedTuple):
    """One protocol (assignor) that a member supports, with the member's subscription in that protocol's bytes."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`requires_known_member_id` and `supports_skipping_assignment` come from the version of the request."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    reason: str | None = None
    requires_known_member_id: bool = False
    supports_skipping_assignment: bool = False

    @property
    def client_reason(self) -> str:
        """Why the client says it joins, for the log."""
        return self.reason if self.reason is not None and self.reason.strip() else NO_REASON


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """`members` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """`protocol_type` and `protocol_name` are None where the request's version has no such field."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The assignment of one member."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """Who leaves: by member id, or by group instance id alone when an administrator removes a static member."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveResult(NamedTuple):
    """The outcome for one leaving member."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it; metadata only while the group is Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as DescribeGroups shows it."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """A line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class PartitionCommit(NamedTuple):
    """One offset that a client wants to store.  `expire_timestamp` is -1 unless the request carried a retention time
    (v2 to v4)."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    topic_id: bytes = ZERO_UUID


JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]
