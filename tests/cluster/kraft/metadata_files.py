"""What tests of the metadata log on disk put there."""

from __future__ import annotations

from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.snapshots import encoded_snapshot
from tests.cluster.kraft.controllers import START_MS, config_record

FOLDER = "__cluster_metadata-0"


class AtTime:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return START_MS

    def monotonic(self) -> float:
        return 0.0


def snapshot_of(end: int, epoch: int = 1) -> tuple[SnapshotId, bytes]:
    records = [config_record(number) for number in range(end)]
    return SnapshotId(end, epoch), b"".join(encoded_snapshot(records, epoch, START_MS))
