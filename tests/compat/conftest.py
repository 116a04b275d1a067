"""One broker for the whole family, on the target that KBROKER_TEST_TARGET names (kbroker unless said).

Tests share it and keep apart by topic and group names.  A broker found dead fails the test that meets it and is
started anew for the next, so that one crash is one failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.admin import Admin
from tests.compat.brokers import BrokerProcess, broker_kind
from tests.compat.client import ClientKind, Driver

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is a compatibility test."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.compat)


@pytest.fixture(scope="session")
def target() -> str:
    """The broker under test: kbroker or kafka."""
    return os.environ.get("KBROKER_TEST_TARGET", "kbroker")


@pytest.fixture(scope="session")
def shared_broker(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The family's broker."""
    broker = broker_kind(target)(tmp_path_factory.mktemp("broker"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """The family's broker, alive before and after the test."""
    if not shared_broker.alive:
        shared_broker.start()
    yield shared_broker
    if not shared_broker.alive:
        pytest.fail(f"{shared_broker.name} died during the test:\n{shared_broker.tail()}")


@pytest.fixture
def admin(broker: BrokerProcess) -> Admin:
    """An admin client for the arrangements of a test."""
    return Admin(broker.bootstrap)


@pytest.fixture
def drivers(broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[[ClientKind], Driver]]:
    """Starts driver processes and ends them all after the test."""
    started: list[Driver] = []

    def start(kind: ClientKind) -> Driver:
        driver = Driver(kind, broker.bootstrap, tmp_path / f"{kind.name}-{len(started)}.err")
        started.append(driver)
        return driver

    yield start
    for driver in started:
        driver.close()
