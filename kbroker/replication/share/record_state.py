"""What a record is to a share group, and what it may become (Kafka's RecordState and AcknowledgeType).

    AVAILABLE -> ACQUIRED -> ACKNOWLEDGED     delivered, and accepted
                          -> AVAILABLE        released, or its lock timed out
                          -> ARCHIVED         rejected, no record at all (gap), or delivered as often as the limit says
    AVAILABLE -> ARCHIVED                     the log has lost it

ACKNOWLEDGED and ARCHIVED are the ends.  An acquired record that a client renews stays ACQUIRED, with a new lock.
"""

from __future__ import annotations

from enum import IntEnum


class RecordState(IntEnum):
    """See the module; the numbers are those of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    """What a client says of a record that it has acquired; the numbers are the protocol's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})

TRANSITIONS: dict[RecordState, frozenset[RecordState]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED}),
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}

_STATE_AFTER = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


def state_after(acknowledge_type: int, delivery_count: int, delivery_count_limit: int) -> RecordState:
    """What an acquired record becomes; a released one that was delivered often enough is archived."""
    return settled_state(_STATE_AFTER[AcknowledgeType(acknowledge_type)], delivery_count, delivery_count_limit)


def settled_state(wanted: RecordState, delivery_count: int, delivery_count_limit: int) -> RecordState:
    """`wanted`, unless that is AVAILABLE and the record may not be delivered again."""
    if wanted is RecordState.AVAILABLE and delivery_count >= delivery_count_limit:
        return RecordState.ARCHIVED
    return wanted
