"""What the cells of the table work with: a broker, a connection to it that asks, and names that no other cell has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from bench import frames
from bench.cell import SMALL_RECORD_BYTES
from bench.counting.machine import Line, Machine, UnansweredError
from kbroker.error_codes import ErrorCode
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message, wire

CLIENT_ID = "counted"
LARGEST_BATCH = "8388608"
_numbers = itertools.count()
Serve = Callable[[], object]
"""Serves one request whole."""


def new_name(stem: str) -> str:
    """A name of a topic or a group that is not there yet; each has the same length."""
    return f"{stem}-{next(_numbers):04}"


class Counted:
    """One broker as its clients see it."""

    def __init__(self, machine: Machine, node: int, line: Line | None = None) -> None:
        self.machine = machine
        self.node = node
        self.line = line or machine.connect(node)

    def send(self, frame: bytes) -> bytes:
        """The answer to a frame, with its length."""
        return self.machine.ask(self.line, frame)

    def ask(self, request: Any, version: int) -> Any:
        """The answer to a request."""
        answer = self.send(encode_request(request.api_key, version, 0, CLIENT_ID, request))
        return decode_response(response_message(request.api_key), version, answer[4:])[1]

    def uncounted(self, request: Any, version: int) -> Any:
        """The answer to a request that is not of the cell."""
        machine = self.machine
        counted, machine.loop.counted = machine.loop.counted, frozenset()
        try:
            return self.ask(request, version)
        finally:
            machine.loop.counted = counted

    def repeated(self, frame: bytes, error_at: int = -1) -> Serve:
        """The same frame again and again; the first answer has no error."""
        answer = self.send(frame)
        if error_at >= 0 and answer[error_at : error_at + 2] != b"\0\0":
            raise UnansweredError(f"the answer has an error: {answer[:100].hex()}")
        return lambda: self.send(frame)

    def repeated_request(self, request: Any, version: int) -> Serve:
        """The same request again and again; the first answer has no error."""
        good(self.ask(request, version))
        frame = encode_request(request.api_key, version, 0, CLIENT_ID, request)
        return lambda: self.send(frame)

    def topic(self, partitions: int = 1, replicas: Sequence[int] = ()) -> str:
        """A new topic whose partitions hold a record each: what the first one costs is no request's."""
        name = new_name("topic")
        wanted = wire.CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1 if replicas else partitions, replication_factor=-1 if replicas else 1
        )
        for index in range(partitions if replicas else 0):
            assignment = wire.CreateTopicsRequest.CreatableReplicaAssignment
            wanted.assignments.append(assignment(partition_index=index, broker_ids=list(replicas)))
        wanted.configs = [wire.CreateTopicsRequest.CreatableTopicConfig(name="max.message.bytes", value=LARGEST_BATCH)]
        created = self.ask(wire.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 5)
        good(created.topics[0])
        record = frames.batch(1, SMALL_RECORD_BYTES)
        for index in range(partitions):
            self.machine.wait_for(lambda index=index: self._takes(name, index, record))  # type: ignore[misc]
        return name

    def _takes(self, topic: str, index: int, records: bytes) -> bool:
        answer = self.send(frames.produce(topic, index, records, -1))
        at = frames.produce_layout(topic).error_at
        return answer[at : at + 2] == b"\0\0"

    def topic_id(self, name: str) -> bytes:
        """A topic's id."""
        named = wire.MetadataRequest.MetadataRequestTopic(name=name)
        found: bytes = self.ask(wire.MetadataRequest(topics=[named]), 12).topics[0].topic_id
        return bytes(found)

    def coordinated(self, stem: str, key_type: int = 0) -> str:
        """A new group, or another key, whose coordinator serves it."""
        key = new_name(stem)
        request = wire.FindCoordinatorRequest(key=key, key_type=key_type)
        self.machine.wait_for(lambda: self.ask(request, 3).error_code == ErrorCode.NONE)
        return key


def good(answer: Any) -> Any:
    """An answer, or a part of one, that has no error; UnansweredError."""
    if getattr(answer, "error_code", 0) != 0:
        raise UnansweredError(f"{type(answer).__name__}: {ErrorCode(answer.error_code).name}")
    return answer
