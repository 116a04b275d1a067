"""A history that stands still fails with words: who does nothing, and what is waited for.

A client waits for an answer, for which its connection has a deadline (`connection.py`), or does something within
STILL_SECONDS of virtual time.  A turn of the loop that has no end stops virtual time itself: after as many seconds of
real time the process is asked where it is, and ended (`Watch`).
"""

from __future__ import annotations

import asyncio
import faulthandler
import mmap
import os
import re
import signal
import struct
import tempfile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.world import World

STILL_SECONDS = 60.0
MOST_FRAMES = 8
FRAME = re.compile(r'File "(?:[^"]*/)?((?:kbroker|tests)/[^"]+)", line (\d+) in (\S+)')
BEAT = struct.Struct("=q")


class Watch:
    """Over a process that plays a history: made before the fork, asked by the process that waits for it."""

    def __init__(self) -> None:
        self._beats = mmap.mmap(-1, BEAT.size)
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with `last_words`)
        self._beat = b""
        self._since = 0.0
        self._was_asked = False

    def begin(self) -> None:
        """In the process that plays: from now on it says that it lives, and where it is when it is asked."""
        faulthandler.register(signal.SIGUSR2, file=self._words, all_threads=False)
        _PLAYED.append(self._beats)

    def look(self, pid: int, now: float) -> None:
        """End the process where virtual time has stood still for too long, once it has said where it is."""
        beat = self._beats[: BEAT.size]
        if beat != self._beat or not self._since:
            self._beat, self._since = beat, now
        elif self._was_asked:
            os.kill(pid, signal.SIGKILL)
        elif now - self._since > STILL_SECONDS:
            self._was_asked = True
            os.kill(pid, signal.SIGUSR2)

    def last_words(self) -> str:
        """Why it was ended, as one line; "" where it was not."""
        with self._words as file:
            file.seek(0)
            data = file.read().decode(errors="replace")
        self._beats.close()
        if not self._was_asked:
            return ""
        frames = [f"{path}:{line} {name}" for path, line, name in FRAME.findall(data)]
        return f"virtual time stands still for {STILL_SECONDS:.0f} s, in {' < '.join(frames[:MOST_FRAMES])}"


_PLAYED: list[mmap.mmap] = []
"""Where this process says that virtual time goes on, if another one watches it."""


def lives() -> None:
    """Virtual time goes on."""
    for beats in _PLAYED:
        (count,) = BEAT.unpack_from(beats)
        BEAT.pack_into(beats, 0, count + 1)


class Standstill:
    """Looks at the clients of a history every virtual second."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sleeps_until = 0.0

    def watch(self, name: str, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """A client has begun."""
        self._tasks[name] = task
        self._world.judge.moved(name)
        return task

    def sleeps_until(self, until: float) -> None:
        """Somebody lets time pass, and knows for how long."""
        self._sleeps_until = until

    def look(self, now: float) -> None:
        """ViolationError where somebody stands still."""
        lives()
        judge = self._world.judge
        waiting = {each.client_id for each in self._world.connections if each.outstanding and not each.gone}
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
            elif name not in waiting and now - judge.moved_at[name] > STILL_SECONDS:
                judge.fail(
                    f"{name} stands still since {judge.moved_at[name]:.3f}, and waits for no answer: "
                    f"{' < '.join(_places(task))}"
                )
        last = max(judge.moved_at.values(), default=now)
        if not waiting and now - max(last, self._sleeps_until) > STILL_SECONDS:
            judge.fail(f"nothing happens since {last:.3f}")


def _places(task: asyncio.Task[None]) -> Iterator[str]:
    """Where a task waits, the innermost call first."""
    found = []
    coroutine = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None and len(found) < MOST_FRAMES:
        found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return reversed(found)


__all__ = ["STILL_SECONDS", "Standstill", "Watch", "lives"]
