"""No request leaves an object that only the garbage collector frees.

Asked is every API in every version, by a client that may do everything and by one that may do nothing, also in frames
that end early, and over connections that end before the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.handlers.dispatch import broker_rows
from kbroker.protocol.api import ApiKey
from tests.differential.questions import Questions
from tests.garbage.requests import frame, many
from tests.garbage.watched import ALONE, MASTER, STRANGER, Watched
from tests.scenarios.wire import Closed, Wire

ASKED = [
    (ApiKey(handler.api_key).message_name, version)
    for handler in broker_rows()
    for version in range(handler.min_version, handler.max_version + 1)
]
# What its client has to have begun is asked in `tests/security`; a member that joins waits for others.
UNANSWERED = {("JoinGroup", 1), ("JoinGroup", 2), ("JoinGroup", 3)}
ENTRIES = 3
SECONDS = 2.0


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    broker = Watched(tmp_path_factory.mktemp("watched"), ALONE)
    yield broker
    broker.stop()


def ask(broker: Watched, source: str, data: bytes, *, waits: bool = True) -> None:
    """Send bytes over a connection of their own, and wait for the answer or the end."""
    wire = Wire(broker.port, SECONDS, source)
    try:
        wire.send_raw(data)
        if waits:
            wire.receive()
    except (Closed, TimeoutError):
        pass  # As it should be for what is no request, or is not answered yet.
    finally:
        wire.close()


def left_by(broker: Watched, *requests: tuple[str, bytes, bool]) -> list[str]:
    """What is garbage after these.  Only what comes again counts: modules that a first request imports leave some."""
    found: list[str] = []
    for _ in range(2):
        for source, data, waits in requests:
            ask(broker, source, data, waits=waits)
        found = broker.look()
        if not found:
            break
    return found


@pytest.mark.parametrize(("api", "version"), ASKED, ids=str)
def test_no_request_leaves_garbage(broker: Watched, api: str, version: int) -> None:
    """Whoever sends such requests would have the broker run out of memory, without any right perhaps."""
    data = frame(api, version, many(api, version, ENTRIES))
    cut = data[4 : len(data) * 2 // 3]
    early = len(cut).to_bytes(4, "big") + cut
    waits = (api, version) not in UNANSWERED
    for source in (MASTER, STRANGER):
        assert not left_by(broker, (source, data, waits)), f"answered to {source}"
        assert not left_by(broker, (source, early, True)), f"a frame of {source} that ends early"
        assert not left_by(broker, (source, data, False), (source, data[:-1], False)), f"{source} does not wait"


def questions(broker: Watched, every: int) -> list[str]:
    """What generated requests leave, by API and version; of `every` so many one is asked."""
    asking = Questions(broker.port)
    broker.look()
    found = []
    for api, version in ASKED:
        if api.startswith("Sasl"):
            continue
        for _ in range(2):
            asking.ask_all(api, version, every)
            left = broker.look()
            if not left:
                break
        else:
            found.append(f"{api} v{version}: {left}")
    return found


def test_no_generated_request_leaves_garbage(broker: Watched) -> None:
    """Requests about what there is go other ways than those about what there is not."""
    assert not questions(broker, 31)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_none_of_all_generated_requests_leaves_garbage(tmp_path: Path) -> None:
    """The same of all that are generated, by a broker that has not served a request before."""
    broker = Watched(tmp_path, ALONE)
    try:
        assert not questions(broker, 1)
    finally:
        broker.stop()


def test_garbage_is_found(broker: Watched) -> None:
    """The tests would pass whatever requests leave."""
    broker.leave_some()
    assert broker.look() == ["1 x builtins.list"]
    assert not broker.look()
