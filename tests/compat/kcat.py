"""kcat, the small tool over an old librdkafka, as a member of a group and as a plain reader and writer.

kcat prints what it reads in a format of our choice; lengths before the data keep any byte apart.  It commits by
itself, so its members' committed offsets are waited for before the next step of a story.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.compat.records import Record, by_place
from tests.tools import require_tool

FORMAT = r"%p %o %T %K %S %k%s\n"
LINE = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+) ")
ASSIGNED = re.compile(r"rebalanced .*?: (assigned|revoked): (.*)")


def produce(bootstrap: str, topic: str, records: Sequence[Record], codec: str) -> None:
    """Write records partition by partition, keys before a tab, headers the same for all of a call."""
    kcat = require_tool("kcat")
    by_call: dict[tuple[int, tuple[tuple[str, bytes | None], ...]], list[Record]] = {}
    for record in records:
        by_call.setdefault((record.partition, record.headers), []).append(record)
    for (partition, headers), part in by_call.items():
        lines = [(record.key or b"") + b"\t" + (record.value or b"") + b"\n" for record in part]
        command = [kcat, "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec, "-K", "\t", "-Z"]
        command += [word for name, value in headers for word in ("-H", f"{name}={(value or b'').decode()}")]
        subprocess.run(command, input=b"".join(lines), check=True, capture_output=True, timeout=200)


def parse(output: bytes) -> list[Record]:
    """The records in what kcat printed; one that is not complete yet is left out."""
    found, position = [], 0
    while match := LINE.match(output, position):
        partition, offset, timestamp, key_size, value_size = (int(number) for number in match.groups())
        start = match.end()
        middle = start + max(key_size, 0)
        end = middle + max(value_size, 0)
        if end >= len(output):
            break
        key = None if key_size < 0 else output[start:middle]
        value = None if value_size < 0 else output[middle:end]
        found.append(Record(partition, key, value, (), timestamp, offset))
        position = end + 1
    return found


def read(bootstrap: str, topic: str) -> list[Record]:
    """Read a whole topic."""
    command = [require_tool("kcat"), "-C", "-q", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-f", FORMAT]
    done = subprocess.run(command, check=True, capture_output=True, timeout=200)
    return by_place(parse(done.stdout))


class KcatMember:
    """kcat as a member of a group; what it received and owns can be looked at while it runs."""

    def __init__(self, bootstrap: str, group: str, topic: str, output: Path, session_ms: int) -> None:
        settings = ["auto.offset.reset=earliest", "auto.commit.interval.ms=50", f"session.timeout.ms={session_ms}"]
        settings += ["heartbeat.interval.ms=150", "partition.assignment.strategy=range"]
        # Without -E kcat ends as soon as its broker is away for a moment.
        command = [require_tool("kcat"), "-b", bootstrap, "-u", "-E", "-f", FORMAT]
        command += [word for setting in settings for word in ("-X", setting)]
        self._output = output
        with output.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, "-G", group, topic], stdout=sink, stderr=subprocess.PIPE, text=False
            )
        self.assigned: list[int] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            match = ASSIGNED.search(line.decode(errors="replace"))
            if match:
                owned = re.findall(r"\[(\d+)\]", match[2])
                self.assigned = sorted(map(int, owned)) if match[1] == "assigned" else []

    @property
    def received(self) -> list[Record]:
        """Everything received so far."""
        return parse(self._output.read_bytes())

    def leave(self) -> None:
        """End in order: kcat commits and leaves its group."""
        self.process.terminate()
        self._ended()

    def die(self) -> None:
        """End without a word."""
        self.process.kill()
        self._ended()

    def close(self) -> None:
        """End if it still runs."""
        if self.process.poll() is None:
            self.die()

    def _ended(self) -> None:
        self.process.wait(30)
        self._listener.join(10)
        if self.process.stderr is not None:
            self.process.stderr.close()
