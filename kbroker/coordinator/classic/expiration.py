"""When committed offsets expire (Kafka's rules, KIP-211).

- A group with a protocol type, Empty: all its offsets, `retention_ms` after it became Empty; if an old group record
  lacks that time, after each offset's commit.
- A consumer group that is Stable: offsets of topics that it no longer subscribes to, `retention_ms` after their commit.
- A group of simple consumers (no protocol type): each offset, `retention_ms` after its commit.
- Otherwise (in a rebalance, or members whose subscriptions are unknown): none.

A commit that came with a retention time of its own (OffsetCommit v2 to v4) expires at that time instead.  Offsets of
partitions with a pending offset of an undecided transaction never expire.  An Empty group without offsets is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.offsets import NO_EXPIRY, CommittedOffset


class Expiration(NamedTuple):
    """What to forget of one group."""

    offsets: tuple[tuple[str, int], ...]
    delete_group: bool


NOTHING = Expiration((), False)


def expired(group: Group, now_ms: int, retention_ms: int) -> Expiration:
    """The offsets of `group` that have expired, and whether the group is to be deleted with them."""
    base = _base_time(group)
    if base is None:
        return NOTHING
    due: list[tuple[str, int]] = []
    count = 0
    for topic, partition, committed in group.offsets:
        count += 1
        if group.is_subscribed_to(topic) or group.offsets.has_pending(topic, partition):
            continue
        if committed.expire_timestamp != NO_EXPIRY:
            is_due = now_ms >= committed.expire_timestamp
        else:
            is_due = now_ms - base(committed) >= retention_ms
        if is_due:
            due.append((topic, partition))
    nothing_left = len(due) == count and not group.offsets.pending
    return Expiration(tuple(due), nothing_left and group.is_empty and not group.pending_joins)


def _base_time(group: Group) -> Callable[[CommittedOffset], int] | None:
    """The time that retention counts from; None while nothing of the group may expire."""
    if group.protocol_type is None:
        return _commit_time
    if group.state is GroupState.EMPTY:
        since = group.state_timestamp
        return _commit_time if since is None else lambda committed: since
    if group.is_consumer_group and group.subscribed_topics is not None and group.state is GroupState.STABLE:
        return _commit_time
    return None


def _commit_time(committed: CommittedOffset) -> int:
    return committed.commit_timestamp
