"""The part that all Python drivers share: commands in, events out, one thread that owns the client.

A driver's `poll` is called again and again while it is a member of a group, so that clients that work only inside
their own calls keep their promises to the broker.
"""

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def encode(data: bytes | None) -> str | None:
    """Bytes as text."""
    return None if data is None else base64.b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    """Text back to bytes."""
    return None if text is None else base64.b64decode(text)


def emit(event: str, **values: Any) -> None:
    """Write one event."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def record_line(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    timestamp: int,
) -> Json:
    """A record as a line carries it."""
    return {
        "partition": partition,
        "offset": offset,
        "key": encode(key),
        "value": encode(value),
        "headers": [[name, encode(data)] for name, data in headers],
        "timestamp": timestamp,
    }


class PythonDriver(ABC):
    """One client library; each method blocks until the client has finished."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(self, command: Json) -> list[int]:
        """Write `records`; the offsets, in their order."""

    @abstractmethod
    def read(self, command: Json) -> list[Json]:
        """Read `topic` from its beginning to `ends`."""

    @abstractmethod
    def join(self, command: Json) -> None:
        """Subscribe to `topic` as a member of `group`."""

    @abstractmethod
    def poll(self) -> None:
        """Work for a moment as a member; emits what arrives."""

    @abstractmethod
    def commit(self, command: Json) -> None:
        """Commit the positions after everything emitted."""

    @abstractmethod
    def leave(self, command: Json) -> None:
        """Leave the group in order."""


def run(driver_type: type[PythonDriver]) -> None:
    """Serve commands from stdin until `quit` or its end."""
    driver = driver_type(sys.argv[1])
    commands: queue.SimpleQueue[Json] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        commands.put({"op": "quit"})

    threading.Thread(target=listen, daemon=True).start()
    member = False
    while True:
        if member and commands.empty():
            try:
                driver.poll()
            except Exception as error:
                emit("error", text=f"poll: {error!r}")
            continue
        command = commands.get()
        operation = command["op"]
        if operation == "quit":
            return
        try:
            result = getattr(driver, operation)(command)
        except Exception as error:
            emit("error", text=f"{operation}: {error!r}")
            continue
        member = {"join": True, "leave": False}.get(operation, member)
        emit("done", result=result)
