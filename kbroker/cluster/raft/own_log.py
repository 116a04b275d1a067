"""The metadata log of a broker that is a controller as well, as its broker's part sees it.

It is what an observer of the controllers' quorum is to other brokers (`kraft.observer`), without a second copy of the
log: the replica has it, and applies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.kraft.quorum_steps import Leader

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.cluster.client import NodeClient
    from kbroker.cluster.raft.replica import RaftReplica
    from kbroker.metadata.image import Endpoint


class OwnLog:
    """See the module, and `kraft.member.FollowedLog`."""

    def __init__(self, replica: RaftReplica, near: Endpoint | None = None) -> None:
        """`near`: where this process reaches its own controller; None: where others do."""
        self._replica = replica
        self._near = near

    @property
    def leader(self) -> Leader | None:
        """The node that leads, with where it listens; this one as well."""
        replica = self._replica
        node_id = replica.leader_id
        is_near = self._near is not None and node_id == replica.me.node_id
        at = self._near if is_near else replica.endpoint_of(node_id)
        return None if at is None or node_id < 0 else Leader(node_id, replica.machine.epoch, at)

    @property
    def log_end_offset(self) -> int:
        """Where the log ends."""
        return self._replica.quorum.end_offset

    @property
    def high_watermark(self) -> int:
        """Records below it are committed."""
        return self._replica.high_watermark

    @property
    def client(self) -> NodeClient:
        """The connection over which the replica follows."""
        return self._replica.questions.client

    @property
    def last_fetch_ms(self) -> int:
        """When the log was followed last: now, where this node leads."""
        return self._replica.last_fetch_ms

    @property
    def has_given_up(self) -> bool:
        """Whether the replica has met what it cannot outlive."""
        return self._replica.is_over

    def on_leader(self, changed: Callable[[], None]) -> None:
        """Call `changed` when another controller becomes active, or none is."""
        self._replica.on_leader(changed)

    def start(self) -> None:
        """The replica follows already."""

    async def first_high_watermark(self) -> None:
        """The replica has caught up before the broker's part began."""

    async def close(self) -> None:
        """The controller's part ends the replica."""
