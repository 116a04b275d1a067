"""A member of a share group: a value that never changes."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.coordinator.share.assignor import Assignment


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member; `assigned` is what it was sent last."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: Assignment = frozenset()
