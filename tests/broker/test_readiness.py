"""What `/readyz` says of a broker that cannot serve everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.client import Batch, Client, readiness, scrape, wait_for
from tests.broker.failing_disk import FailingDisk, failing_disk, two_disks
from tests.conftest import StartBroker

STORAGE_ERROR = 56
LOST = 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path) as made:
        yield made


@pytest.mark.parametrize("all_there", [False, True])
def test_readiness_names_what_is_offline(
    tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker, all_there: bool
) -> None:
    """Monitoring would read `ready` while half of the partitions, or all of them, are offline."""
    cordoned = {"cordoned.log.dirs": f"{tmp_path}/first"} if all_there else {}
    broker = two_disks(kbroker_process, tmp_path, disk.path, **cordoned)
    with Client(broker.port) as client:
        client.create("t", 2)
        assert readiness(broker.metrics_url) == (200, "ready\n")
        disk.fail()
        assert client.produce("t", Batch(), partition=LOST).error_code == STORAGE_ERROR
    wait_for(lambda: scrape(broker.metrics_url)["kbroker_partitions_offline"] > 0, "the failure to be noticed")
    status, text = readiness(broker.metrics_url)
    # With nothing left that a client could read or write, it is sent elsewhere.
    assert status == (503 if all_there else 200)
    assert text.startswith("ready, with 2 problems:\n")
    assert f"- log directory {disk.path} has failed and is offline until the broker is started again" in text
    assert ("- 2 partitions are offline: t-0, t-1\n" if all_there else "- 1 partition is offline: t-1\n") in text
