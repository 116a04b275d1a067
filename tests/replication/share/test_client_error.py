"""What members of share groups are told where their group's state cannot be stored."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.replication.share.share_partition import client_error


@pytest.mark.parametrize("name", ["KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])
def test_a_state_that_cannot_be_written_now_is_tried_again(name: str) -> None:
    """Members were told of an unknown error when the coordinator's disk had failed, and gave up what they had done."""
    assert client_error(KafkaError.of(ErrorCode[name])).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
