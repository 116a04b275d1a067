"""What repeats by a timer has no line of the log for each turn: see `kbroker.outage`."""

from __future__ import annotations

import ast
import asyncio
import errno
import inspect
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbroker
from kbroker.config import BrokerConfig
from kbroker.outage import REMIND_SECONDS
from kbroker.periodic import PeriodicTasks
from kbroker.storage.manager.log_manager import LogManager
from tests.storage.batches import HandClock, append, batch
from tests.storage.full_files import FullFiles
from tests.storage.stored_log import CLUSTER, CONFIG, TOPIC_ID, TP

PACKAGE = Path(kbroker.__file__).parent
NOT_OF_A_BROKER = {"cli", "client", "replay", "migration", "testing"}
TURNS = 20
SAYING = {"warning", "error", "exception", "critical"}


class Trouble(FullFiles):
    """A disk without room, whose space cannot be asked for either: the process has no descriptor left."""

    def free_bytes(self, path: str) -> int:
        if self.left == 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().free_bytes(path)


def told(caplog: pytest.LogCaptureFixture) -> Counter[tuple[str, str]]:
    """The lines that people see, by their file and what they are about."""
    return Counter(
        (Path(each.pathname).name, str(each.msg)) for each in caplog.records if each.levelno >= logging.WARNING
    )


async def turns(manager: LogManager, name: str, count: int, clock: HandClock) -> None:
    """So many turns of a task, a second apart, each to its end, threads included."""
    task = next(each for each in manager.periodic_tasks() if each.name == name)
    for _ in range(count):
        clock.now += 1000
        outcome = task.run()
        if inspect.isawaitable(outcome):
            await outcome
        # Checkpoints are written by threads, and a turn is left out while one is.
        await asyncio.gather(*map(asyncio.wrap_future, manager.checkpoints._writing.values()), return_exceptions=True)


def tasks_of_logs() -> list[str]:
    return [each.name for each in LogManager(BrokerConfig.from_mapping({}), HandClock()).periodic_tasks()]


@pytest.mark.parametrize("name", tasks_of_logs())
def test_a_task_of_the_logs_says_once_that_the_disk_has_no_room(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full would get a line every five seconds, for each checkpoint and each log."""
    caplog.set_level(logging.INFO, "kbroker")
    files = Trouble()
    config = {"log.dirs": str(tmp_path / "data"), "kbroker.disk.reserve.bytes": "0", "kbroker.fsync": "interval"}
    clock = HandClock()
    manager = LogManager(BrokerConfig.from_mapping(config), clock, files)
    manager.start(CLUSTER)
    log = manager.get_or_create_log(TP, TOPIC_ID, CONFIG)

    async def main() -> None:
        for number in range(3):
            append(log, batch([b"%d" % number]))
        files.left = 0
        await turns(manager, name, TURNS, clock)
        first = told(caplog)
        assert all(count == 1 for count in first.values()), first
        files.left = None
        await turns(manager, name, 2, clock)
        lasting = {place for place, _ in first}
        ended = [each for each in caplog.records if each.levelno == logging.INFO and "after" in each.getMessage()]
        assert not lasting or ended

    asyncio.run(main())
    manager.shutdown()
    if name == "checkpoint high watermarks":
        assert any("Cannot write" in each for each in caplog.messages)


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_task_that_fails_with_each_turn_has_one_traceback(
    is_coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in a task of every second would write a page with each, until the disk is full."""
    caplog.set_level(logging.INFO, "kbroker")
    count = 0

    def work() -> None:
        nonlocal count
        count += 1
        if count <= TURNS:
            raise KeyError(count)

    async def work_later() -> None:
        work()

    async def main() -> None:
        tasks = PeriodicTasks(asyncio.get_running_loop())
        tasks.add("count", 1, work_later if is_coroutine else work)
        while not any("works again" in each for each in caplog.messages):
            await asyncio.sleep(0)
        tasks.stop()

    asyncio.run(main())
    assert [each.message.partition(",")[0] for each in caplog.records if each.levelno >= logging.INFO] == [
        "the task count failed; it runs again",
        "the task count works again",
    ]
    assert caplog.records[0].exc_info is not None


def retrying_loops(tree: ast.AST) -> Iterator[ast.While]:
    """Loops that wait and try again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.While) and any(
            isinstance(each, ast.Await) and "sleep" in ast.unparse(each) for each in ast.walk(node)
        ):
            yield node


def lines_of_each_turn(loop: ast.While) -> Iterator[int]:
    """Where a handler speaks of a failure, and leaves the loop to go on."""
    for node in ast.walk(loop):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if any(isinstance(each, ast.Return | ast.Raise | ast.Break) for each in ast.walk(node)):
            continue
        for each in ast.walk(node):
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in SAYING:
                yield each.lineno


def test_loops_that_try_again_have_no_line_for_each_attempt() -> None:
    """A new loop would write a line with each attempt, for as long as what it asks is away."""
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in NOT_OF_A_BROKER
        for loop in retrying_loops(ast.parse(path.read_text()))
        for line in lines_of_each_turn(loop)
    ]
    assert found == []


def test_the_rule_about_loops_finds_one() -> None:
    """It would pass over each of them."""
    text = "while True:\n try:\n  ask()\n except OSError:\n  logger.warning('away')\n await asyncio.sleep(1)\n"
    (loop,) = retrying_loops(ast.parse(text))
    assert [*lines_of_each_turn(loop)] == [5]
    assert REMIND_SECONDS > TURNS
