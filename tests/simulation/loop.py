"""An event loop on virtual time, under a seed: the broker's own code runs on it unchanged, alone in its process.

    with SimulatedLoop(seed) as loop:
        loop.run_until_complete(history(loop))

A turn does what libuv's does: it looks at what came (sockets that can be read or written, timers that are due), and
then runs what `call_soon` was given, in that order. Among what came, the seed draws which is served in this turn and
in which order; timers keep their own order, as the system's do. Time stands still while code runs (but for what each
look at the clock takes), moves on by some microseconds between turns, and goes to the next event when there is nothing
to do. When nothing will ever happen again, `NothingToDoError` ends the run.

Executors have no threads: a job runs whole at a drawn moment and is over at a later one (`surroundings.py`). Sockets
are pairs of ends in memory (`sockets.py`). Whatever runs belongs to the process of its context (`PROCESS`): once that
is dead none of its callbacks, tasks and timers runs any more, as after SIGKILL; while it is held up they wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker._fast.base import monotonic
from kbroker.client.readable import readable
from tests.simulation.disk import Disk
from tests.simulation.work import SLOW_LOOK_NS, Budget, is_measured

if TYPE_CHECKING:
    from tests.simulation.sockets import End, Network

NS = 1_000_000_000
START_NS = 1_000 * NS
"""Not 0, which would be the system's time; what is asked for before a start is not negative either."""
WALL_FROM_MS = 1_700_000_000_000
SLOW_JOB_TIMES = 100

MOST_TURNS = 3_000_000
TURNS_BETWEEN_LOOKS = 16


class NothingToDoError(Exception):
    """The loop would wait for ever."""


class TooManyTurnsError(Exception):
    """The loop is busy for ever."""


class Process:
    """What runs as one process: a broker from its start to its end, or the clients."""

    __slots__ = ("alive", "backlog", "name", "number", "serves")

    def __init__(self, name: str, number: int = 0) -> None:
        """`number`: its process id, where others ask for that."""
        self.name = name
        self.number = number
        self.alive = True
        self.serves = False
        """Whether it has clients, which wait for their turn."""
        self.backlog: list[asyncio.Handle | _Event] | None = None
        """What has to run once the process goes on; None while it is not held up."""

    @property
    def runs(self) -> bool:
        """Whether it does anything now."""
        return self.alive and self.backlog is None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as this process."""
        return self.context().run(function, *args)

    def context(self) -> Context:
        """A context in which all belongs to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context


OUTSIDE = Process("outside")
PROCESS: ContextVar[Process] = ContextVar("PROCESS", default=OUTSIDE)


@dataclass(frozen=True, slots=True)
class Pace:
    """How one history's machine behaves; drawn once.  Times are in nanoseconds."""

    turn_ns: int
    """A turn takes up to so long."""
    served: float
    """The chance that what came is served in the turn that sees it."""
    look_ns: int
    job_ns: int
    """A job waits and runs for up to so long, each."""
    slow_job: float
    """The chance that a job takes SLOW_JOB_TIMES as long."""

    @staticmethod
    def drawn(rng: random.Random) -> Pace:
        return Pace(
            turn_ns=rng.choice((2_000, 20_000, 200_000)),
            served=rng.choice((0.4, 0.8, 1.0)),
            look_ns=rng.choice((0, 100, 1_000)),
            job_ns=rng.choice((10_000, 300_000, 3_000_000)),
            slow_job=rng.choice((0.0, 0.02, 0.2)),
        )


class _Event:
    """Something that happens at a moment of its own: the end of a job, bytes that arrive."""

    __slots__ = ("process", "run")

    def __init__(self, process: Process, run: Callable[[], None]) -> None:
        self.process = process
        self.run = run


class SimulatedLoop(asyncio.BaseEventLoop):
    """Opened with `with`, for which time and chance of the whole process are its own (`surroundings.py`)."""

    network: Network

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.running_job: Any = None
        """The job of an executor that runs now: what it hands to the loop comes when it is over."""
        self.first_error: BaseException | None = None
        self.rng = random.Random(seed)
        self.pace = Pace.drawn(self.rng)
        self.budget: Budget | None = None
        if is_measured(seed):
            self.pace = replace(self.pace, look_ns=SLOW_LOOK_NS)
            self.budget = Budget(self)
        self.trace = hashlib.blake2b(digest_size=16)
        self.disk = Disk()
        self.turns = 0
        self.failures: list[str] = []
        self._given_up: list[asyncio.Handle] = []
        self._clock_resolution = 1e-9
        self._events: list[tuple[int, int, _Event]] = []
        self._missed: list[_Event] = []
        """Of dead processes: tasks that wait for one complain when it goes."""
        self._sequence = 0
        self.look: Callable[[], object] = lambda: None
        """Called every so many turns, between them."""
        self._readers: dict[int, asyncio.Handle] = {}
        self.set_exception_handler(_note_failure)
        monotonic.set_virtual(START_NS, self.pace.look_ns, WALL_FROM_MS)

    # Time

    def time(self) -> float:
        return monotonic.virtual_ns() / NS

    @property
    def now_ns(self) -> int:
        return monotonic.virtual_ns()

    def at(self, when_ns: int, run: Callable[[], None], process: Process = OUTSIDE) -> None:
        """Let `run` happen at a moment, outside of any callback; not when `process` is dead by then."""
        self._sequence += 1
        heapq.heappush(self._events, (when_ns, self._sequence, _Event(process, run)))

    def hold(self, process: Process) -> None:
        """Stop a process where it is, as SIGSTOP does; time goes on, and what comes for it waits."""
        process.backlog = []

    def release(self, process: Process) -> None:
        """Let a process go on as if nothing had happened: what waited runs in its order, its timers are due."""
        backlog, process.backlog = process.backlog or [], None
        for each in backlog:
            if isinstance(each, asyncio.Handle):
                self._ready.append(each)
            else:
                self.at(self.now_ns, each.run, process)

    def note(self, *what: object) -> None:
        """What the trace of this history has next."""
        self.trace.update(repr(what).encode())

    # What asyncio's loop calls

    def _run_once(self) -> None:
        rng, network, ready = self.rng, self.network, self._ready
        self.turns += 1
        if self.turns % TURNS_BETWEEN_LOOKS == 0:
            self.look()
        if self.turns > MOST_TURNS:
            raise TooManyTurnsError(f"not at an end after {self.turns} turns")
        if ready or network.has_work():
            monotonic.move_virtual(monotonic.virtual_ns() + rng.randrange(self.pace.turn_ns))
        else:
            self._jump()
        now = monotonic.virtual_ns()
        events, scheduled = self._events, self._scheduled
        while events and events[0][0] <= now:
            event = heapq.heappop(events)[2]
            if event.process.backlog is not None:
                event.process.backlog.append(event)
            elif event.process.alive:
                event.run()
            else:
                self._missed.append(event)
            del event  # A job's error has this frame, and the job its error.
        came: list[asyncio.Handle | End | None] = network.came(rng, self.pace.served)
        due: list[asyncio.Handle] = []
        now_seconds = now / NS
        while scheduled and (scheduled[0]._when <= now_seconds or scheduled[0]._cancelled):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                due.append(handle)
                came.append(None)
        if len(came) > 1:
            rng.shuffle(came)
        in_order = iter(due)
        for each in came:
            if each is None:
                self._run_handle(next(in_order))
            elif isinstance(each, asyncio.Handle):
                self._run_handle(each)
            elif self.budget is None:
                network.read(each)
            else:
                self.budget.run(each.process, partial(network.read, each))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                self._run_handle(handle)
        # As asyncio's own loop does: the error of a job that ran in this turn has this frame, and the handle that makes
        # it known has the job.
        handle = each = None  # type: ignore[assignment]
        del came, due, in_order

    def _run_handle(self, handle: asyncio.Handle) -> None:
        context: Context = handle._context  # type: ignore[attr-defined]
        process = context.get(PROCESS, OUTSIDE)
        if process.backlog is not None:
            process.backlog.append(handle)
        elif not process.alive:
            self._give_up(handle)
        elif not handle._cancelled:
            if self.budget is None:
                handle._run()
            else:
                self.budget.run(process, handle._run)
        del handle  # The error of a job that it has run has this frame.

    def _give_up(self, handle: asyncio.Handle) -> None:
        """What a process that has ended would have done; a task of its own that waited for that would complain when it
        goes, and so would a failure that nobody has looked at."""
        self._given_up.append(handle)
        for each in handle._args:  # type: ignore[attr-defined]
            if isinstance(each, asyncio.Future) and each.done() and not each.cancelled():
                each.exception()

    def _jump(self) -> None:
        """Go to the next moment at which something happens."""
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        found = []
        if scheduled:
            found.append(int(scheduled[0]._when * NS) + 1)
        if self._events:
            found.append(self._events[0][0])
        if not found:
            raise NothingToDoError("no timer is set and nothing is under way")
        monotonic.move_virtual(min(found))

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        job = self.running_job
        if job is None:
            return self.call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        job.tells.append(handle)
        return handle

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    # Sockets

    def add_writer(self, fd: int, callback: Any, *args: Any) -> None:
        self.network.add_writer(fd, asyncio.Handle(callback, args, self, None))

    def remove_writer(self, fd: int) -> bool:
        return self.network.remove_writer(fd)

    def add_reader(self, fd: int, callback: Any, *args: Any) -> None:
        """For what threads wake the loop by; see `look_at_readers`."""
        self._readers[fd] = asyncio.Handle(callback, args, self, None)

    def remove_reader(self, fd: int) -> bool:
        return self._readers.pop(fd, None) is not None

    def look_at_readers(self, process: Process) -> None:
        """A thread of the process may have written to a descriptor that is waited for: the loop sees that later."""
        for fd, handle in self._readers.items():
            if handle._context.get(PROCESS, OUTSIDE) is process:  # type: ignore[attr-defined]
                self.at(self.now_ns + self.rng.randrange(self.pace.job_ns), partial(self._read, fd, handle), process)

    def _read(self, fd: int, handle: asyncio.Handle) -> None:
        if self._readers.get(fd) is handle and readable(fd, 0):
            self._run_handle(handle)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        bound = options["sock"]
        return self.network.serve(protocol_factory, bound.getsockname()[:2], bound)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return await self.network.connect(protocol_factory, host, port)

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **options: Any) -> Any:
        return self.network.local.serve(protocol_factory, options["sock"])

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **options: Any) -> Any:
        return await self.network.local.connect(protocol_factory, options["sock"])


def _note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A callback, a task or a future failed and nobody looked: no part of a broker may."""
    assert isinstance(loop, SimulatedLoop)
    error = context.get("exception")
    loop.failures.append(f"{context.get('message')}: {error!r}")
    if loop.first_error is None:
        loop.first_error = error
    loop.stop()
