"""Which replicas clients find offline.  Of `kbroker.handlers.topics.partition_view`."""

from __future__ import annotations

import pytest

from kbroker.handlers.topics.partition_view import view, working_directories
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage

ONE, TWO, LOST, UNASSIGNED = b"1" * 16, b"2" * 16, bytes(15) + b"\2", bytes(15) + b"\1"


@pytest.mark.parametrize(
    ("directory", "named", "offline"),
    [
        (ONE, (ONE,), []),
        (TWO, (ONE,), [1]),
        (LOST, (ONE,), [1]),
        (UNASSIGNED, (ONE,), []),
        (bytes(16), (ONE,), []),
        # A broker that does not name its directories.
        (TWO, (), []),
    ],
)
def test_a_replica_in_a_directory_that_does_not_work_is_offline(
    directory: bytes, named: tuple[bytes, ...], offline: list[int]
) -> None:
    """Tools would show a replica of a KRaft cluster as there whose disk has failed; Kafka's brokers do not."""
    brokers = [BrokerImage(1, {}, log_dirs=named), BrokerImage(2, {}, log_dirs=(b"o" * 16,))]
    image = ClusterImage.of("c", brokers=brokers)
    partition = PartitionImage(0, 2, 0, (1, 2), (2,), directories=(directory, b"o" * 16))
    seen = view(partition, frozenset({1, 2}), 12, working_directories(image))
    assert (list(seen.offline), seen.leader, int(seen.error)) == (offline, 2, 0)
