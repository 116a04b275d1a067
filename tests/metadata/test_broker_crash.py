"""A broker that is killed while it makes topics: what it had answered is there again, and usable."""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path
from typing import Any

from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import message
from tests.broker_process import BrokerProcess

PARTITIONS = 3
TOPICS_BEFORE_KILL = 25


class Client:
    """One connection that sends a request and waits for its answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def ask(self, api: str, version: int, request: Any) -> Any:
        frame = encode_request(message(f"{api}Request").api_key, version, 1, "test", request)
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._receive(4))
        return decode_response(message(f"{api}Response"), version, self._receive(size))[1]

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionResetError("the broker hung up")
            data += chunk
        return data

    def create(self, name: str) -> bytes:
        """Make a topic; its id."""
        create = message("CreateTopicsRequest")
        topic = create.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        (result,) = self.ask("CreateTopics", 7, create(topics=[topic])).topics
        assert result.error_code == 0, result.error_message
        topic_id: bytes = result.topic_id
        return topic_id

    def topics(self) -> dict[str, Any]:
        answer = self.ask("Metadata", 12, message("MetadataRequest")(topics=None))
        return {topic.name: topic for topic in answer.topics}

    def close(self) -> None:
        self._socket.close()


def test_topics_that_were_answered_survive_kill_9(tmp_path: Path) -> None:
    """A deployment would believe that its topics exist, and lose them with the next power cut."""
    broker = BrokerProcess(tmp_path).start()
    answered: dict[str, bytes] = {}
    enough = threading.Event()

    def make_topics() -> None:
        client = Client(broker.port)
        try:
            while True:
                name = f"topic-{len(answered)}"
                answered[name] = client.create(name)
                if len(answered) == TOPICS_BEFORE_KILL:
                    enough.set()
        except OSError:
            client.close()

    maker = threading.Thread(target=make_topics)
    maker.start()
    assert enough.wait(200)
    broker.kill()
    maker.join(100)

    broker.start()
    try:
        client = Client(broker.port)
        found = client.topics()
        assert {name: found[name].topic_id for name in answered} == answered
        # The request that the kill cut off has either happened as a whole or not at all.
        assert len(found) - len(answered) in (0, 1)
        for name, topic in found.items():
            assert [partition.partition_index for partition in topic.partitions] == list(range(PARTITIONS))
            assert {partition.leader_id for partition in topic.partitions} == {topic.partitions[0].leader_id} != {-1}
            for number in range(PARTITIONS):
                assert (broker.data_dir / f"{name}-{number}" / "partition.metadata").exists()
        list_offsets = message("ListOffsetsRequest")
        partitions = [list_offsets.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(PARTITIONS)]
        asked = [list_offsets.ListOffsetsTopic(name=name, partitions=partitions) for name in found]
        for listed in client.ask("ListOffsets", 7, list_offsets(replica_id=-1, topics=asked)).topics:
            assert [(p.error_code, p.offset) for p in listed.partitions] == [(0, 0)] * PARTITIONS
        client.create("after")
        client.close()
    finally:
        broker.stop()
