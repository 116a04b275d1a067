"""What clients are answered from the first moment of a start on: by kbroker and by Apache Kafka, with one judge."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.scenarios.session import Session
from tests.scenarios.wire import Closed

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.timeout(300)]

STARTS, SECONDS = 5, 2.0
METADATA, CREATE = 12, 7
# A topic that is made is in the next Metadata of a kbroker; Apache Kafka's broker learns of it from its controller.
BEHIND_SECONDS = 2.0
# What a client asks again after; all else it would give to its application.
AGAIN = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class _Judge:
    """Clients of one broker over several starts: topics that are made, and what Metadata shows of them."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._seconds = BEHIND_SECONDS if isinstance(broker, KafkaProcess) else 0.0
        self.made: dict[str, float] = {}
        self.answers = 0

    def first_seconds(self, number: int) -> None:
        """Start the broker, and ask it all the while."""
        starting = threading.Thread(target=self._broker.start)
        starting.start()
        session = self._dial()
        self._until_named(session)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            name = f"topic-{number}-{self.answers}"
            code = self._create(session, name)
            assert code == 0 or code in AGAIN, f"CreateTopics answers {ErrorCode(code).name}"
            if code == 0:
                self.made[name] = time.monotonic()
            self._look(session)
            self.answers += 1
        session.close()
        starting.join()

    def _dial(self) -> Session:
        while True:
            try:
                return Session(self._broker.port)
            except OSError:
                assert self._broker.process is None or self._broker.alive, self._broker.tail()

    def _until_named(self, session: Session) -> None:
        """The first answer may have no broker, as none is registered; one that has names the controller."""
        while not self._metadata(session).brokers:
            pass

    def _metadata(self, session: Session) -> Any:
        while True:
            try:
                answer = session.quietly("Metadata", METADATA, topics=None, allow_auto_topic_creation=False)
            except (Closed, OSError):
                session.close()
                session.wire = self._dial().wire
                continue
            if answer.brokers:
                assert answer.controller_id in {each.node_id for each in answer.brokers}, answer
            return answer

    def _create(self, session: Session, name: str) -> int:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        return int(session.quietly("CreateTopics", CREATE, topics=[topic], timeout_ms=5000).topics[0].error_code)

    def _look(self, session: Session) -> None:
        answer = self._metadata(session)
        shown = {each.name: each for each in answer.topics}
        now = time.monotonic()
        missing = {name for name, at in self.made.items() if name not in shown and now - at >= self._seconds}
        assert not missing, f"topics that were made are not shown: {missing}"
        wrong = {name: each.error_code for name, each in shown.items() if each.error_code not in (0, *AGAIN)}
        assert not wrong, wrong


@pytest.mark.parametrize("kind", [KbrokerProcess, pytest.param(KafkaProcess, marks=pytest.mark.slow)])
def test_the_first_seconds_of_a_start_show_nothing_that_is_not_so(kind: type[BrokerProcess], tmp_path: Path) -> None:
    """A client that waits for its broker would be shown no controller, lose a topic, or be refused for good."""
    broker = kind(tmp_path / "broker", {})
    judge = _Judge(broker)
    try:
        for number in range(STARTS):
            judge.first_seconds(number)
            (broker.kill if number % 2 else broker.stop)()
    finally:
        broker.kill()
    assert judge.made
    print(f"{kind.name}: {judge.answers} rounds, {len(judge.made)} topics in {STARTS} starts")
