"""The interface of consumer, share and streams groups to the parts that all kinds of groups have in common.

A group id belongs to one group, of one kind.  `Group` holds the committed offsets of every kind.  It is a classic group
while its `kind` is None; otherwise `kind` holds the state of the newer protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.classic.messages import (
        JoinReply,
        JoinRequest,
        LeaveResult,
        LeavingMember,
        SyncReply,
        SyncRequest,
    )
    from kbroker.coordinator.modern.group import CommitCheck


class GroupKind(Protocol):
    """A group of a newer protocol."""

    @property
    def group_type(self) -> str:
        """As ListGroups names it."""

    @property
    def protocol_type(self) -> str:
        """As ListGroups names it."""

    @property
    def state_name(self) -> str:
        """As answers name it."""

    @property
    def member_count(self) -> int:
        """How many members it has."""

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets stay."""

    def tombstones(self) -> list[KeyValue]:
        """The records that delete it."""

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> CommitCheck | None:
        """Raise KafkaError unless the member may commit offsets; the check of each partition, None for none."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless the member may fetch offsets."""


class KindServer(Protocol):
    """Serves groups of one kind: what the classic protocol asks of them, and their sessions after loading."""

    def on_loaded(self, group_id: str) -> None:
        """A group was loaded: its members' sessions begin."""

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup of a group that has members."""

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup."""

    def heartbeat_classic(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat."""

    def leave_classic(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
        """LeaveGroup."""
