"""A client under test, driven over a pipe.

Every client runs in a process of its own that reads one JSON command per line and writes one JSON event per line,
so that a member of a group can be killed for real and clients of other languages take the same tests.

Commands: produce, read, join, commit, leave, quit.  Events: ready, done (answers a command), error (a command
failed), assigned (the partitions a member now owns), record (a member received one).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compat.records import CODECS, Record, with_offsets
from tests.compat.tooling import ROOT
from tests.compat.waiting import Waited

# Members outlive a broker's restart on a busy machine; one that is about to die is given up soon.
SESSION_MS = 30_000
SHORT_SESSION_MS = 1_500
HEARTBEAT_MS = 150
# Longer than the drivers' own limits.
FINISH_SECONDS = 120


class ClientError(AssertionError):
    """The client reported an error or ended."""


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A client library: how to run its driver and what it is able to do."""

    name: str
    command: Callable[[str], Sequence[str]]
    codecs: tuple[str, ...] = CODECS
    null_headers: bool = True
    repeated_headers: bool = True
    idempotent: bool = True


@dataclass(slots=True)
class Driver:
    """One running driver process."""

    kind: ClientKind
    bootstrap: str
    errors: Path
    process: subprocess.Popen[str] = field(init=False)
    listener: threading.Thread = field(init=False)
    events: queue.SimpleQueue[dict[str, Any] | None] = field(default_factory=queue.SimpleQueue)
    assigned: list[int] | None = None
    received: list[Record] = field(default_factory=list)
    groups_seen: int = 0

    def __post_init__(self) -> None:
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                list(self.kind.command(self.bootstrap)),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.put(json.loads(line))
        self.events.put(None)

    def produce(self, topic: str, records: Sequence[Record], codec: str = "none", **options: Any) -> list[Record]:
        """Write the records and wait for every acknowledgement; the records as they lie in the log."""
        self.begin_produce(topic, records, codec, **options)
        return with_offsets(records, self.finish("produce"))

    def begin_produce(self, topic: str, records: Sequence[Record], codec: str = "none", **options: Any) -> None:
        """Begin to write the records; `finish` has their offsets."""
        lines = [record.to_json() for record in records]
        self.drain()
        self._send({"op": "produce", "topic": topic, "codec": codec, "records": lines, **options})

    def read(self, topic: str, ends: Mapping[int, int], **options: Any) -> list[Record]:
        """Read the partitions from their beginning up to the offsets given."""
        found = self._call("read", topic=topic, ends={str(key): value for key, value in ends.items()}, **options)
        return [Record.from_json(line) for line in found]

    def join(self, topic: str, group: str, *, session_ms: int = SESSION_MS, **options: Any) -> None:
        """Become a member of the group; assignments and records then arrive as events."""
        self._call("join", topic=topic, group=group, session_ms=session_ms, heartbeat_ms=HEARTBEAT_MS, **options)

    def commit(self) -> None:
        """Commit the positions after everything received."""
        self._call("commit")

    def leave(self) -> None:
        """Leave the group in order."""
        self._call("leave")

    def die(self) -> None:
        """End without a word to the broker."""
        self.process.kill()
        self.process.wait(30)

    def close(self) -> None:
        """End the driver, by force if it does not listen."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self._send({"op": "quit"})
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.die()
        # A stream that is closed under its reader is an error, of whatever test runs by then.
        self.listener.join(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def drain(self) -> None:
        """Take in what the driver has said since."""
        while not self.events.empty():
            self._take(self.events.get())

    def _send(self, command: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def _call(self, operation: str, **arguments: Any) -> Any:
        self.drain()
        self._send({"op": operation, **arguments})
        return self.finish(operation)

    def finish(self, operation: str) -> Any:
        """The result of the command that was begun."""
        deadline = time.monotonic() + FINISH_SECONDS
        while True:
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Waited(
                    f"{self.kind.name} did not finish {operation} in {FINISH_SECONDS} s\n{self._complaints()}"
                ) from None
            if self._take(event):
                assert event is not None
                return event.get("result")

    def _take(self, event: dict[str, Any] | None) -> bool:
        if event is None:
            raise ClientError(f"{self.kind.name} ended with {self.process.poll()}\n{self._complaints()}")
        match event["event"]:
            case "record":
                self.received.append(Record.from_json(event))
            case "assigned":
                self.assigned = sorted(event["partitions"])
                self.groups_seen += 1
            case "error":
                raise ClientError(f"{self.kind.name}: {event['text']}\n{self._complaints()}")
            case "done":
                return True
        return False

    def _complaints(self) -> str:
        return self.errors.read_text(errors="replace")[-2000:]


def gather(members: Iterable[Driver], condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Take in the members' events until the condition holds."""
    members = list(members)
    deadline = time.monotonic() + seconds
    while True:
        for member in members:
            member.drain()
        if condition():
            return
        if time.monotonic() > deadline:
            state = [(member.kind.name, member.assigned, len(member.received)) for member in members]
            raise Waited(f"waited {seconds:g} s for {what}; members, partitions, records: {state}")
        first = members[0].events
        with contextlib.suppress(queue.Empty):
            members[0]._take(first.get(timeout=0.02))
