"""A broker with ACLs and two clients, told apart by their addresses: the first may do everything, the second what
rules allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gate.guarded_broker import GuardedBroker
from tests.gate.refused_world import OTHER_ADDRESS
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session
from tests.scenarios.wire import Wire
from tests.security.acl.acl_requests import EVERYTHING, rule

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
REFUSED = 29
WAIT_MS = 20_000


class World:
    """A broker, the first client's session and the second one's connection."""

    def __init__(self, folder: Path) -> None:
        self.broker = GuardedBroker(folder, SETTINGS, by_settings=True)
        self.broker.start()
        self.first = Session(self.broker.port)
        self.topic_id = self.first.create("t")
        own = {"principal": "User:ANONYMOUS", "host": "127.0.0.1", "operation": 2}
        for kind, name in ((2, "*"), (3, "*"), (4, "kafka-cluster"), (5, "*")):
            self.allow(**own, resource_type=kind, resource_name=name)
        self.second = Wire(self.broker.port, source=OTHER_ADDRESS)

    def allow(self, **values: Any) -> None:
        made = self.first.quietly("CreateAcls", 3, creations=[rule(**values)])
        assert [each.error_code for each in made.results] == [0]

    def let(self, operation: int) -> None:
        """Allow the second client something of the topic."""
        self.allow(principal="User:ANONYMOUS", host=OTHER_ADDRESS, operation=operation)

    def withdraw(self) -> None:
        """Take back all that the second client was allowed."""
        self.first.quietly("DeleteAcls", 3, filters=[{**EVERYTHING, "host_filter": OTHER_ADDRESS}])

    def close(self) -> None:
        self.first.close()
        self.second.close()
        self.broker.stop()


def produced(wire: Wire) -> int:
    rows = [{"index": 0, "records": Batch().encoded()}]
    asked = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": "t", "partition_data": rows}]}
    code = wire.ask("Produce", 9, asked).responses[0].partition_responses[0].error_code
    return int(code)


def fetch(world: World, version: int, wait_ms: int, **values: Any) -> dict[str, Any]:
    end = world.first.quietly(
        "ListOffsets", 7, replica_id=-1, topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    )
    row = {"partition": 0, "fetch_offset": end.topics[0].partitions[0].offset, "partition_max_bytes": 100_000}
    topic = {"topic": "t"} if version < 13 else {"topic_id": world.topic_id}
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "topics": [{**topic, "partitions": [row]}],
        **values,
    }
