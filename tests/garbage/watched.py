"""A broker in a process of its own that never collects garbage by itself, and says what there is when it is asked.

python -m tests.garbage.watched SETTINGS-AS-JSON     what is written to standard input is answered by a line of JSON

Clients at 127.0.0.1 may do everything, and those at other addresses nothing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from kbroker.security.authorizer import Operation, ResourceKind
from tests.gate.guarded_broker import Ruled
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
MASTER = "127.0.0.1"
STRANGER = "127.0.0.2"
LOOK, LEAVE_SOME = "look", "leave some"
# A broker whose internal topics are small, and that never looks for records to delete: those that it is given are years
# old, and requests set what is retained of them.
ALONE = {
    "log.retention.check.interval.ms": "86400000",
    "log.initial.task.delay.ms": "86400000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# So many kinds of objects and places in the code are named.
SHOWN = 12


def described(garbage: list[object]) -> list[str]:
    """What there is: where frames stood first, then the kinds of the other objects."""
    places: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for each in garbage:
        if isinstance(each, FrameType):
            places[f"frame of {each.f_code.co_qualname} at {each.f_code.co_filename}:{each.f_lineno}"] += 1
        else:
            kinds[f"{type(each).__module__}.{type(each).__qualname__}"] += 1
    return [f"{count} x {name}" for some in (places, kinds) for name, count in some.most_common(SHOWN)]


def unreachable() -> list[str]:
    """Collect all garbage; what it was."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = described(gc.garbage)
    gc.garbage.clear()
    gc.collect()
    return found


def _everything_for_the_master(host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
    return host == MASTER


async def _serve(settings: Mapping[str, str]) -> None:
    loop = asyncio.get_running_loop()
    rules = Ruled()
    rules.rule = _everything_for_the_master
    broker = Broker(BrokerConfig.from_mapping(settings), loop, authorizer=rules)
    await broker.start()
    over = asyncio.Event()

    def answer(command: str) -> None:
        if command == LEAVE_SOME:
            cycle: list[object] = []
            cycle.append(cycle)
        print(json.dumps(unreachable() if command == LOOK else "done"), flush=True)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(answer, line.strip())
        loop.call_soon_threadsafe(over.set)

    gc.disable()
    gc.collect()
    gc.freeze()
    print(json.dumps("ready"), flush=True)
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    await over.wait()
    await broker.stop()


class Watched:
    """The process, from outside."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.port = free_port()
        own = {
            "log.dirs": str(folder),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "metrics.listener": "none",
            **settings,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.garbage.watched", json.dumps(own)],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def look(self) -> list[str]:
        """What is garbage by now; it is none afterwards."""
        found: list[str] = self._ask(LOOK)
        return found

    def leave_some(self) -> None:
        """Have it make garbage."""
        self._ask(LEAVE_SOME)

    def _ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._line()

    def stop(self) -> None:
        """End it in order."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the broker has ended with {self._process.wait(60)}"
        return json.loads(line)


if __name__ == "__main__":
    uvloop.run(_serve(json.loads(sys.argv[1])))
