"""Ask Apache Kafka the questions of the script and write its answers down: `python -m` this, with host:port of a broker
that is fresh and has the settings that the script names.

The first segment of each partition of its `__consumer_offsets`, once it has stopped, is
`../vectors/kafka-4.3.1-consumer-groups-partition-N.log`."""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from kbroker.protocol.api import ApiKey, request_header_version, response_header_version
from kbroker.schemas import message
from tests.compat.waiting import wait_for
from tests.coordinator.consumer.script import ConsumerScript

VECTORS = Path(__file__).parents[1] / "vectors"
ANSWERS = VECTORS / "kafka-4.3.1-consumer-group-answers.json"
TOPIC_IDS = VECTORS / "kafka-4.3.1-consumer-group-topics.json"


class Socket:
    """One connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)

    def call(self, name: str, version: int, **fields: Any) -> Any:
        request = message(f"{name}Request")
        key = ApiKey(request.api_key)
        flexible = request_header_version(key, version) >= 2
        header = struct.pack(">hhih5s", int(key), version, 1, 5, b"probe") + (b"\0" if flexible else b"")
        body = bytes(request.program(version).encode(request(**fields)))
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self._read(4))
        data = self._read(size)
        start = 5 if response_header_version(key, version) >= 1 else 4
        return message(f"{name}Response").program(version).decode(data, start)

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            assert chunk, "the broker closed the connection"
            data += chunk
        return data


def topic_ids(caller: Socket) -> dict[str, bytes]:
    """The ids of the script's topics, which are made if they are not there."""
    request = message("CreateTopicsRequest")
    topics = [
        request.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in (("t1", 3), ("t2", 1))
    ]
    caller.call("CreateTopics", 7, topics=topics, timeout_ms=30_000)
    asked = [message("MetadataRequest").MetadataRequestTopic(name=name) for name in ("t1", "t2")]

    def led() -> list[Any]:
        topics: list[Any] = caller.call("Metadata", 12, topics=asked).topics
        there = all(topic.partitions and not topic.error_code for topic in topics)
        return topics if there and all(row.leader_id >= 0 for topic in topics for row in topic.partitions) else []

    return {topic.name: bytes(topic.topic_id) for topic in wait_for(led, "the topics to have leaders")}


def wait_for_coordinator(caller: Socket) -> None:
    """Until the group of the script has its coordinator."""
    wait_for(
        lambda: not caller.call("FindCoordinator", 4, key_type=0, coordinator_keys=["g"]).coordinators[0].error_code,
        "the group's coordinator",
        seconds=60,
    )


def main() -> None:
    """Write the vector."""
    host, port = sys.argv[1].split(":")
    caller = Socket(host, int(port))
    wait_for_coordinator(caller)
    ids = topic_ids(caller)
    script = ConsumerScript(caller, ids, lambda: time.sleep(2))
    script.run()
    TOPIC_IDS.write_text(json.dumps({name: topic_id.hex() for name, topic_id in ids.items()}) + "\n")
    ANSWERS.write_text(json.dumps(script.plain(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
