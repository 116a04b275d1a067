"""Java's KafkaShareConsumer as a process that does what it is told."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from kbroker.client.readable import readable
from tests.compat.tooling import java_command

SOURCE = Path(__file__).parent / "ShareMember.java"
SECONDS = 60.0


class Polled(NamedTuple):
    """A record as a member was given it."""

    value: str
    delivery_count: int


class JavaMember:
    """One member; `explicit`: it says of each record what becomes of it, else the next poll accepts them all."""

    def __init__(self, bootstrap: str, group: str, topic: str, *, explicit: bool = False) -> None:
        mode = "explicit" if explicit else "implicit"
        self._process = subprocess.Popen(
            java_command(str(SOURCE), bootstrap, group, topic, mode),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _answer(self) -> str:
        output = self._process.stdout
        assert output is not None
        assert readable(output.fileno(), SECONDS), "the member says nothing"
        return output.readline().strip()

    def started(self) -> JavaMember:
        """Wait until it runs."""
        assert self._answer() == "ready"
        return self

    def tell(self, line: str) -> str:
        """Have it do something; what it says after `ok`."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        answer = self._answer()
        assert answer.startswith("ok"), answer
        return answer[3:]

    def poll(self, milliseconds: int = 500) -> list[Polled]:
        """What one poll gives."""
        words = (word.rpartition(":") for word in self.tell(f"poll {milliseconds}").split())
        return [Polled(value, int(count)) for value, _, count in words]

    def kill(self) -> None:
        """It dies without a word."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """It leaves in order."""
        self.tell("close")
        self._process.communicate(timeout=SECONDS)
