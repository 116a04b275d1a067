"""What a scenario is given: ways to ask, and a record of what was answered.

    @scenario
    def create_topic_that_exists(s: Session) -> None:
        s.ask("first", "CreateTopics", 7, topics=[…])      # recorded under the step's name
        s.quietly("Metadata", 9, topics=None)              # asked, not recorded

Each scenario has its own connection and its own topics and groups, so that it runs alone as well as among others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kbroker.schemas import message
from tests.compat.waiting import wait_for
from tests.scenarios.batches import Batch
from tests.scenarios.normal import Normaliser
from tests.scenarios.wire import Closed, Wire

Answers = dict[str, Any]
Scenario = Callable[["Session"], None]

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a scenario under its module's and its own name."""
    name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
    if name in SCENARIOS:
        raise ValueError(f"two scenarios are called {name}")
    SCENARIOS[name] = function
    return function


class Session:
    """One run of one scenario against one broker."""

    def __init__(self, port: int, seconds: float = 60) -> None:
        self.port = port
        self.seconds = seconds
        self.normal = Normaliser(port)
        self.answers: Answers = {}
        self.wire = Wire(port, seconds)

    def ask(self, step: str, api: str, version: int, **values: Any) -> Any:
        """Ask and record; the answer, or None when the broker hung up (the next question dials anew)."""
        try:
            answer = self.wire.ask(api, version, values)
        except (Closed, TimeoutError) as end:
            self.record(step, "connection closed" if isinstance(end, Closed) else "no answer")
            self.redial()
            return None
        self.record(step, self.normal.answer(message(f"{api}Response"), version, answer))
        return answer

    def quietly(self, api: str, version: int, **values: Any) -> Any:
        """Ask without recording."""
        return self.wire.ask(api, version, values)

    def collect(self, step: str, api: str, version: int) -> Any:
        """Receive and record the answer to what was sent before."""
        answer = self.wire.answer(api, version)
        self.record(step, self.normal.answer(message(f"{api}Response"), version, answer))
        return answer

    def record(self, step: str, value: Any) -> None:
        """Record anything that is already normalised."""
        if step in self.answers:
            raise ValueError(f"two steps are called {step!r}")
        self.answers[step] = value

    def redial(self) -> None:
        """Go on over a new connection."""
        self.wire.close()
        self.wire = Wire(self.port, self.seconds)

    @contextmanager
    def second(self) -> Iterator[Session]:
        """The same session over a further connection, for a second client."""
        other = Session.__new__(Session)
        other.port, other.seconds, other.normal, other.answers = self.port, self.seconds, self.normal, self.answers
        other.wire = Wire(self.port, self.seconds)
        try:
            yield other
        finally:
            other.wire.close()

    def close(self) -> None:
        """End the connection."""
        self.wire.close()

    def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        """Create a topic, unrecorded, and wait until it is led; its id."""
        settings = {"retention.ms": "-1", **(configs or {})}
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in settings.items()],
        }
        made = self.quietly("CreateTopics", 7, topics=[topic], timeout_ms=30_000).topics[0]
        if made.error_code:
            raise AssertionError(f"creating {name}: {made.error_code} {made.error_message}")
        self.until_led(name, partitions)
        topic_id = bytes(made.topic_id)
        self.normal.name("topic-id", topic_id)
        return topic_id

    def until_led(self, name: str, partitions: int) -> None:
        """Wait until the broker serves this many partitions: Kafka tells of a leader before it acts as one."""
        rows = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]

        def led() -> bool:
            found = self.quietly("ListOffsets", 7, replica_id=-1, topics=[{"name": name, "partitions": rows}])
            served = all(row.error_code == 0 for row in found.topics[0].partitions)
            known = self.quietly("Metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False).topics[0]
            return served and len(known.partitions) == partitions

        wait_for(led, f"topic {name} to be led")

    def until_gone(self, name: str) -> None:
        """Wait until the broker knows no such topic any more."""

        def gone() -> bool:
            found = self.quietly("Metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False).topics[0]
            return bool(found.error_code == 3)

        wait_for(gone, f"topic {name} to be gone")

    def coordinator(self, group: str) -> None:
        """Wait until the coordinator of a group answers; the first question creates its topic."""

        def there() -> bool:
            found = self.quietly("FindCoordinator", 4, key_type=0, coordinator_keys=[group]).coordinators[0]
            if found.error_code:
                return False
            return bool(self.quietly("OffsetFetch", 5, group_id=group, topics=[]).error_code == 0)

        wait_for(there, f"the coordinator of {group}")

    def producer_id(self) -> int:
        """A new producer id, unrecorded.  Kafka asks to try again while it fetches its first block of ids."""
        values = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        found = wait_for(
            lambda: [answer] if not (answer := self.quietly("InitProducerId", 4, **values)).error_code else [],
            "a producer id",
        )[0]
        self.normal.name("producer", found.producer_id)
        return int(found.producer_id)

    def produce(
        self, step: str, topic: str | bytes, records: Batch | bytes | None, version: int = 9, **values: Any
    ) -> Any:
        """Write one batch to partition 0 (or `partition`) and record the answer."""
        asked = produce_values(topic, records, **values)
        return self.ask(step, "Produce", version, **asked)

    def fill(self, topic: str, *batches: Batch, partition: int = 0) -> None:
        """Write batches, unrecorded."""
        for batch in batches:
            answer = self.quietly("Produce", 9, **produce_values(topic, batch, partition=partition))
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise AssertionError(f"filling {topic}: {code}")


def produce_values(
    topic: str | bytes, records: Batch | bytes | None, *, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> dict[str, Any]:
    """The fields of a Produce request with one batch; a topic in bytes is a topic id."""
    name = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
    data = records.encoded() if isinstance(records, Batch) else records
    return {
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [{**name, "partition_data": [{"index": partition, "records": data}]}],
    }


def run(function: Scenario, port: int) -> Answers:
    """Run one scenario; what was answered, by step."""
    session = Session(port)
    try:
        function(session)
    finally:
        session.close()
    return session.answers
