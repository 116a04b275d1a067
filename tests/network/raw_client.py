"""Requests as raw bytes over a blocking socket: what no well-behaved client library would send.

Nothing of the broker's own codec is used, so a fault in it can't hide on both sides.
"""

from __future__ import annotations

import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Mapping

from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
NONE, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD = 0, 2, 10, 87


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


def string(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(api_key: int, version: int, body: bytes, correlation_id: int = 1, *, flexible: bool = False) -> bytes:
    head = struct.pack(">hhi", api_key, version, correlation_id) + string("hostile") + (b"\0" if flexible else b"")
    return framed(head + body)


def record(offset_delta: int, value: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(offset_delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    payload: bytes,
    count: int,
    *,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    magic: int = 2,
    crc_xor: int = 0,
    length_plus: int = 0,
) -> bytes:
    """A version 2 batch around a payload, with the lies that the keywords ask for."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    tail = struct.pack(">hiqqqhii", attributes, delta, 0, 0, -1, -1, -1, count) + payload
    crc = crc32c(tail) ^ crc_xor
    return struct.pack(">qiibI", 0, 9 + len(tail) + length_plus, -1, magic, crc) + tail


def good_batch(count: int = 3, value: bytes = b"value") -> bytes:
    return batch(b"".join(record(delta, value) for delta in range(count)), count)


def produce(topic: str, partition: int, records: bytes, *, acks: int = 1, correlation_id: int = 1) -> bytes:
    """Produce 7."""
    body = struct.pack(">hhii", -1, acks, 5_000, 1) + string(topic) + struct.pack(">ii", 1, partition)
    return request(PRODUCE, 7, body + framed(records), correlation_id)


def produce_answer(answer: bytes) -> tuple[int, int]:
    """(error code, base offset) of a Produce 7 answer for one partition."""
    (length,) = struct.unpack_from(">h", answer, 8)
    error, offset = struct.unpack_from(">hq", answer, 8 + 2 + length + 4 + 4)
    return int(error), int(offset)


def fetch(
    topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, wait_ms: int = 0, correlation_id: int = 1
) -> bytes:
    """Fetch 4; with `wait_ms` it waits for a byte that may never come."""
    body = struct.pack(">iiiib", -1, wait_ms, 1, max_bytes, 0) + struct.pack(">i", 1) + string(topic)
    return request(FETCH, 4, body + struct.pack(">iiqi", 1, partition, offset, max_bytes), correlation_id)


def api_versions(correlation_id: int = 1) -> bytes:
    """ApiVersions 0."""
    return request(API_VERSIONS, 0, b"", correlation_id)


class RawClient:
    """One connection."""

    def __init__(self, port: int, timeout: float = 60.0, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes | None:
        """The next answer without its length prefix, None when the broker closed the connection."""
        prefix = self._read(4)
        return None if prefix is None else self._read(struct.unpack(">i", prefix)[0])

    def ask(self, data: bytes) -> bytes:
        """Send and take the answer, which must come."""
        self.send(data)
        answer = self.read()
        assert answer is not None, "the broker closed the connection"
        return answer

    def closed_after(self, data: bytes) -> bool:
        """Whether the broker answers these bytes by closing the connection."""
        try:
            self.send(data)
            return self.read() is None
        except (ConnectionResetError, BrokenPipeError):
            return True

    def _read(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)


def create_topic(port: int, topic: str, partitions: int = 1, *, config: Mapping[str, str] | None = None) -> None:
    """CreateTopics 2."""
    settings = (config or {}).items()
    body = (
        struct.pack(">i", 1)
        + string(topic)
        + struct.pack(">ihii", partitions, 1, 0, len(settings))
        + b"".join(string(key) + string(value) for key, value in settings)
        + struct.pack(">i?", 5_000, False)
    )
    with RawClient(port) as client:
        answer = client.ask(request(CREATE_TOPICS, 2, body))
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(topic))
    assert error == NONE, f"{topic} was not created: {error}"


def end_offset(port: int, topic: str, partition: int = 0) -> int:
    """ListOffsets 1 for the end."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, -1)
    with RawClient(port) as client:
        answer = client.ask(request(LIST_OFFSETS, 1, body))
    error, _, offset = struct.unpack_from(">hqq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    assert error == NONE
    return int(offset)


def readiness(metrics_url: str) -> tuple[int, str]:
    """Status and text of `/readyz`."""
    try:
        with urllib.request.urlopen(f"{metrics_url}/readyz", timeout=60) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(metrics_url: str) -> dict[str, float]:
    """Samples by name and labels, as written."""
    with urllib.request.urlopen(f"{metrics_url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
