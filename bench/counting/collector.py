"""What the counted process says of what it does: where a count begins and ends, and which part it is of.

A `Collector` counts while a broker's code runs and not while the machine or a client does.  Three kinds: instructions
by callgrind, allocations by a meter in this process, system calls by what strace writes beside it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.extensions import cost_meter

_DESCRIPTION = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.MULTILINE)
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
_MARK = re.compile(r'access\("/#kbroker-counts/(on|off|part:[^"]+)"')
_CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\(")


class Collector:
    """Counts nothing: a cell is tried without anything around it."""

    def resume(self) -> None:
        """What runs from now on counts."""

    def pause(self) -> None:
        """What runs from now on does not count."""

    def part(self, name: str) -> None:
        """What was counted since the last part has this name."""


class Instructions(Collector):
    """By callgrind, which runs this process with `--instr-atstart=no --collect-atstart=no`."""

    resume, pause = staticmethod(cost_meter.resume), staticmethod(cost_meter.pause)

    def __init__(self) -> None:
        cost_meter.collect()

    def part(self, name: str) -> None:
        cost_meter.dump(name.encode())  # Which sets the counters to zero.


class Allocations(Collector):
    """Python objects that are allocated, by a meter in front of Python's own allocator."""

    resume, pause = staticmethod(cost_meter.resume), staticmethod(cost_meter.pause)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        cost_meter.install()

    def part(self, name: str) -> None:
        self.counts[name] = cost_meter.taken()


class SystemCalls(Collector):
    """By strace, which sees marks as calls of a file that is not there."""

    is_on = False

    def resume(self) -> None:
        if not self.is_on:
            self.is_on = True
            os.access("/#kbroker-counts/on", os.F_OK)

    def pause(self) -> None:
        if self.is_on:
            self.is_on = False
            os.access("/#kbroker-counts/off", os.F_OK)

    def part(self, name: str) -> None:
        os.access(f"/#kbroker-counts/part:{name}", os.F_OK)


def instructions(folder: Path) -> dict[str, int]:
    """What callgrind wrote into a folder, by the names of its parts."""
    found = {}
    for path in folder.glob("callgrind.out.*"):
        text = path.read_text()
        described = _DESCRIPTION.search(text)
        if described is not None:
            total = _TOTAL.search(text)
            assert total is not None, path
            found[described[1]] = int(total[1])
    return found


def system_calls(trace: Path) -> dict[str, int]:
    """How many calls strace saw in each part, between its marks."""
    found, count, is_on = {}, 0, False
    with trace.open() as lines:
        for line in lines:
            mark = _MARK.search(line)
            if mark is None:
                count += is_on and _CALL.match(line) is not None
            elif mark[1].startswith("part:"):
                found[mark[1].removeprefix("part:")] = count
                count = 0
            else:
                is_on = mark[1] == "on"
    return found
