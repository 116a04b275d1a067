"""What a record of a share group becomes by what its consumer says of it."""

from __future__ import annotations

import pytest

from kbroker.replication.share.record_state import AcknowledgeType, RecordState, state_after


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (AcknowledgeType.GAP, RecordState.ARCHIVED),
        (AcknowledgeType.ACCEPT, RecordState.ACKNOWLEDGED),
        (AcknowledgeType.RELEASE, RecordState.AVAILABLE),
        (AcknowledgeType.REJECT, RecordState.ARCHIVED),
    ],
)
def test_a_record_becomes_what_its_acknowledgement_says(said: AcknowledgeType, state: RecordState) -> None:
    """An offset without a record would be delivered again and again, until its deliveries are used up."""
    assert state_after(said, 1, 5) is state


def test_a_record_that_was_delivered_often_enough_is_not_delivered_again() -> None:
    """A record that no consumer can read would come back for good, and those behind it late."""
    assert state_after(AcknowledgeType.RELEASE, 5, 5) is RecordState.ARCHIVED
    assert state_after(AcknowledgeType.RELEASE, 4, 5) is RecordState.AVAILABLE
