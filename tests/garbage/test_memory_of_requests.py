"""What requests of 10,000 entries leave in the memory of a real broker process: nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.handlers.dispatch import broker_rows
from kbroker.protocol.api import ApiKey
from tests.broker_process import BrokerProcess
from tests.garbage.requests import frame, many
from tests.garbage.watched import ALONE
from tests.memory import resident_bytes
from tests.scenarios.wire import Closed, Wire

ENTRIES, REQUESTS, FIRST = 10_000, 50, 10
MOST_BYTES = 2 << 20
NEWEST = {ApiKey(each.api_key).message_name: each.max_version for each in broker_rows()}
# All requests of a client without rights are refused; a super user is another one.
SETTINGS = {
    **ALONE,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
KNOWN = (
    "AlterClientQuotas",
    "AlterPartitionReassignments",
    "AlterUserScramCredentials",
    "CreateAcls",
    "DeleteAcls",
    "ShareFetch",
    "WriteTxnMarkers",
)
"""Those that had left something."""
OTHERS = tuple(sorted(NEWEST.keys() - set(KNOWN)))


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("memory"), SETTINGS)
    broker.start()
    yield broker
    broker.stop()


def ask(broker: BrokerProcess, data: bytes, times: int) -> None:
    """As one client, which leaves."""
    wire = Wire(broker.port, 60)
    try:
        for _ in range(times):
            wire.send_raw(data)
            wire.receive()
    except Closed:
        pass
    finally:
        wire.close()


def check(broker: BrokerProcess, api: str) -> None:
    data = frame(api, NEWEST[api], many(api, NEWEST[api], ENTRIES))
    # What the first of them take stays for the others.
    ask(broker, data, FIRST)
    before = resident_bytes(broker.pid)
    ask(broker, data, REQUESTS)
    assert resident_bytes(broker.pid) - before <= MOST_BYTES


@pytest.mark.parametrize("api", KNOWN)
def test_refused_requests_leave_no_memory(broker: BrokerProcess, api: str) -> None:
    """A client without any right would have the broker run out of memory."""
    check(broker, api)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("api", OTHERS)
def test_refused_requests_of_other_apis_leave_no_memory(broker: BrokerProcess, api: str) -> None:
    """The same."""
    check(broker, api)
