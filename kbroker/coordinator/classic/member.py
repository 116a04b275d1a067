"""One member of a classic group.

A member waits for at most one thing: `join_reply` is set while its JoinGroup is parked until the generation forms,
`sync_reply` while its SyncGroup is parked until the leader's assignment is stored.  `is_new` marks a member whose first
JoinGroup has not been answered: its client cannot send heartbeats yet, so its session runs even while its JoinGroup is
parked.
"""

from __future__ import annotations

from collections.abc import Callable

from kbroker.coordinator.classic.messages import JoinReply, MemberProtocol, SyncReply
from kbroker.coordinator.runtime.timers import Deadline


class Member:
    """Belongs to one `Group`, which alone adds, removes and changes members."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "protocol_type",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: tuple[MemberProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None
        self.session: Deadline | None = None

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def awaits_join(self) -> bool:
        """Whether a JoinGroup of the member waits for its answer."""
        return self.join_reply is not None

    @property
    def awaits_sync(self) -> bool:
        """Whether a SyncGroup of the member waits for its answer."""
        return self.sync_reply is not None

    @property
    def is_excused(self) -> bool:
        """Whether its session must not expire now: a member with a parked request need not send heartbeats."""
        return not self.is_new and (self.awaits_join or self.awaits_sync)

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Its subscription under the given protocol; empty when it does not know the protocol."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def vote(self, is_candidate: Callable[[str], bool]) -> str | None:
        """The candidate among the protocols that it prefers."""
        for protocol in self.protocols:
            if is_candidate(protocol.name):
                return protocol.name
        return None

    def stop_session(self) -> None:
        """No longer watch for its heartbeats."""
        if self.session is not None:
            self.session.end()
            self.session = None
