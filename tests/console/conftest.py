"""One broker for the tests of the console, and its answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer

LINK = "Berlin=https://berlin.example/console/"


@pytest.fixture(scope="session")
def console_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a compacted topic, and one with 12 partitions."""
    settings = {"num.io.threads": "3", "kbroker.console.manage": "true", "kbroker.console.links": LINK}
    broker = BrokerProcess(tmp_path_factory.mktemp("console"), settings)
    with broker:
        broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        broker.create_topic("plain", 12)
        yield broker


@pytest.fixture(scope="session")
def viewer(console_broker: BrokerProcess) -> Viewer:
    """Of that broker."""
    return Viewer(console_broker.metrics_port)
