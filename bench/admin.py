"""The few administrative requests that cells need, over one blocking socket."""

from __future__ import annotations

import socket
import struct
import time

from bench import frames


class AdminError(Exception):
    """The broker refused, or doesn't answer."""


class Admin:
    """One connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> bytes:
        """The answer without its length prefix."""
        self._socket.sendall(request)
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise AdminError("the broker closed the connection")
            data += part
        return bytes(data)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create and wait until each partition takes requests."""
        answer = self.ask(frames.create_topic(topic, partitions, configs or {}))
        (error,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + len(frames.string(topic)))
        if error:
            raise AdminError(f"{topic} can't be created: error {error}")
        deadline = time.monotonic() + 30
        for partition in range(partitions):
            while self.end_offset(topic, partition) is None:
                if time.monotonic() > deadline:
                    raise AdminError(f"{topic}-{partition} has no leader after 30 s")
                time.sleep(0.01)

    def apis(self) -> dict[int, int]:
        """The API keys that it serves, with their newest versions."""
        return frames.served_apis(self.ask(frames.api_versions()))

    def set_group_config(self, group: str, name: str, value: str) -> None:
        """A group's own setting."""
        answer = self.ask(frames.set_group_config(group, name, value))
        (error,) = struct.unpack_from(">h", answer, 4 + 4 + 4)
        if error:
            raise AdminError(f"{name} of {group} can't be set: error {error}")

    def delete_topic(self, topic: str) -> None:
        """Delete; a topic that is not there is no fault."""
        self.ask(frames.delete_topic(topic))

    def end_offset(self, topic: str, partition: int) -> int | None:
        """The end of a partition, None while it has no leader."""
        answer = self.ask(frames.list_latest(topic, partition))
        at = 4 + 4 + len(frames.string(topic)) + 4 + 4
        error, _, offset = struct.unpack_from(">hqq", answer, at)
        return None if error else int(offset)


def answers(host: str, port: int) -> bool:
    """Whether a broker answers ApiVersions."""
    try:
        with Admin(host, port) as admin:
            return len(admin.ask(frames.api_versions())) > 8
    except (OSError, AdminError):
        return False
