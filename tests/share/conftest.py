"""A broker for share groups, with few partitions of its own state and short locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    # Records of tests are of 2023, and a broker of a module lives until retention has its turn.
    "log.retention.ms": "-1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "15000",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.state.topic.prune.interval.ms": "300",
    "share.coordinator.cold.partition.snapshot.interval.ms": "500",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a module."""
    process = BrokerProcess(Path(tmp_path_factory.mktemp("share")), SETTINGS)
    process.start()
    yield process
    process.stop()
