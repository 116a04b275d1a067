"""Fixtures that every family of tests may use, and the rule for missing tools (`tests.tools`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.broker_process import BrokerProcess
from tests.limits import (
    pytest_configure,
    pytest_runtest_protocol,
    pytest_unconfigure,
    pytest_xdist_make_scheduler,
)
from tests.tools import require_module, require_tool

__all__ = [
    "BrokerProcess",
    "StartBroker",
    "pytest_configure",
    "pytest_runtest_protocol",
    "pytest_unconfigure",
    "pytest_xdist_make_scheduler",
    "require_module",
    "require_tool",
]

# How long an example takes, and how long it takes to be drawn, depends on what else the machine does.
settings.register_profile("any-machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

StartBroker = Callable[..., BrokerProcess]
# Records of many tests are of 2023: the first look of retention, half a minute after a start, would take them from a
# test that is held up, or from those that share a broker.
SETTINGS = {"log.initial.task.delay.ms": "86400000"}


def _start_brokers(directory: Path) -> Iterator[StartBroker]:
    brokers: list[BrokerProcess] = []

    def start(
        overrides: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        environ: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> BrokerProcess:
        settings = {**SETTINGS, **(overrides or {})}
        broker = BrokerProcess(directory / (name or f"broker-{len(brokers) + 1}"), settings, environ=environ)
        brokers.append(broker)
        if wait:
            broker.start()
        return broker

    yield start
    for broker in brokers:
        if broker.running:
            broker.kill()


@pytest.fixture
def kbroker_process(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers: `kbroker_process({"num.partitions": "3"})` is a running one; all end with the test."""
    yield from _start_brokers(tmp_path)


@pytest.fixture
def broker(kbroker_process: StartBroker) -> BrokerProcess:
    """A running broker with default settings, for one test."""
    return kbroker_process()


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker with default settings, shared by the tests of a module."""
    for start in _start_brokers(tmp_path_factory.mktemp("broker")):
        yield start()
