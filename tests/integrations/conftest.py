"""Everything in this folder is slow and needs programs that are fetched on first use: `make test-integrations`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.compat.brokers import KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.integrations.programs import Program

HERE = Path(__file__).parent
SECONDS = 1200

StartProgram = Callable[..., Program]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run a program."""
    for item in items:
        if HERE in item.path.parents and "program" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[StartProgram]:
    """Starts programs in directories of their own; all end with the test."""
    started: list[Program] = []

    def start(name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Program:
        one = Program(tmp_path / name, command, environ)
        started.append(one)
        one.start()
        return one

    yield start
    for one in started:
        one.close()


@pytest.fixture(params=[KbrokerProcess, KafkaProcess])
def bootstrap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A broker with default settings, of this project and of Apache Kafka in turn."""
    broker = request.param(tmp_path / "broker")
    try:
        broker.start()
        yield broker.bootstrap
    finally:
        broker.stop()
