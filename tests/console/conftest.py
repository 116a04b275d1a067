"""One broker for the tests of the console, and its answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from tests.broker_process import BrokerProcess

STRANGE = "<img src=x onerror=alert(1)>"


class Answered(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """What the JSON says."""
        return json.loads(self.body)


class Viewer:
    """Asks the console of one broker."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **headers: str) -> Answered:
        """The answer to one request; `Host` is the listener's address unless it is given."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.putrequest("GET", path, skip_host="Host" in named, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def ask(self, name: str, /, **fields: object) -> Any:
        """What an endpoint says; it has to answer 200."""
        answer = self.get(f"/console/api/{name}?{urlencode(fields)}")
        assert answer.status == 200, (name, fields, answer.status, answer.body)
        return answer.value

    def wait(self, name: str, condition: Callable[[Any], object], /, **fields: object) -> Any:
        """What an endpoint says once the condition holds: what viewers share is some seconds old."""
        deadline = time.monotonic() + 60
        while not condition(value := self.ask(name, **fields)):
            assert time.monotonic() < deadline, (name, fields, value)
            time.sleep(0.05)
        return value

    def refused(self, name: str, /, **fields: object) -> tuple[int, str]:
        """The status and the sentence of an endpoint that does not give what is asked for."""
        answer = self.get(f"/console/api/{name}?{urlencode(fields)}")
        assert answer.status != 200, (name, fields)
        return answer.status, answer.value["error"]


@pytest.fixture(scope="session")
def console_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a compacted topic, and one with 12 partitions."""
    broker = BrokerProcess(tmp_path_factory.mktemp("console"), {"num.io.threads": "3"})
    with broker:
        broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        broker.create_topic("plain", 12)
        yield broker


@pytest.fixture(scope="session")
def viewer(console_broker: BrokerProcess) -> Viewer:
    """Of that broker."""
    return Viewer(console_broker.metrics_port)
