"""The process around a simulation: executors without threads, virtual time for Python, chance from the seed.

All of it is put in place for as long as `surroundings(loop)` lasts, and in one place each: the class of the standard
library that all pools are of, the functions of `time`, `os.urandom`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any
from unittest import mock

from kbroker._fast.base import monotonic
from kbroker.assembly import node
from kbroker.storage.manager import log_checkpoints
from tests.simulation.garbage import kept_for_the_look
from tests.simulation.loop import NS, PROCESS, SLOW_JOB_TIMES, SimulatedLoop
from tests.simulation.native_threads import NativeThreads

IN_PLACE = ("log-close", "log-recovery", "recovery-save")
"""Pools whose jobs are waited for by what hands them out, without a loop."""

OF_DISKS = ("log-flush", "log-commit")
"""Pools whose jobs wait for disks."""

CONTROLLER, CONTROLLER_THREADS = "controller-", 4
"""How the names of processes begin that are controllers alone, and how many threads one has for its disk."""

PROCESS_ID = 10_000


class Job(Future[Any]):
    """What was handed to an executor: it runs whole when it starts; who waits for it knows when it is over.

    Its error has the frames of what has it run, which no thread would have: these delete their names of the job.
    """

    def __init__(self, loop: SimulatedLoop, work: Callable[[], Any]) -> None:
        super().__init__()
        self.tells: list[asyncio.Handle] = []
        self._loop = loop
        self._work = work
        self._context: Context = copy_context()
        self._begun = False
        self._outcome: tuple[Any, BaseException | None] | None = None

    def run(self) -> None:
        """Do the work, as a thread would; `finish` makes it known."""
        if self._begun:
            return
        self._begun = True
        if not self.set_running_or_notify_cancel():
            return
        loop = self._loop
        before, loop.running_job = loop.running_job, self
        try:
            self._outcome = self._context.run(self._work), None
        except BaseException as error:
            self._outcome = None, error
        finally:
            loop.running_job = before
            del self  # As a thread's work item does: it keeps its error, and the error this frame.

    def finish(self) -> None:
        if self.done() or self._outcome is None:
            return
        tells, self.tells = self.tells, []  # They name this job.
        self._loop._ready.extend(tells)
        self._context.run(self._tell, *self._outcome)

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        try:
            self.run()
            self.finish()
            return super().result(timeout)
        finally:
            del self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            self.run()
            self.finish()
            return super().exception(timeout)
        finally:
            del self


class _Pool:
    """What a simulated executor remembers: when each of its workers is free, and what is under way."""

    def __init__(self, workers: int) -> None:
        self.free_at = [0] * workers
        self.last_start = 0
        self.jobs: dict[Job, None] = {}

    def submit(self, loop: SimulatedLoop, job: Job, longest: int) -> None:
        rng, pace, now = loop.rng, loop.pace, loop.now_ns
        longest = longest or pace.job_ns * (SLOW_JOB_TIMES if rng.random() < pace.slow_job else 1)
        worker = self.free_at.index(min(self.free_at))
        start = self.last_start = max(now + rng.randrange(longest), self.free_at[worker], self.last_start)
        end = self.free_at[worker] = start + rng.randrange(longest)
        self.jobs[job] = None
        process = PROCESS.get()
        loop.at(start, job.run, process)
        loop.at(end, lambda: self._finish(job), process)

    def _finish(self, job: Job) -> None:
        self.jobs.pop(job, None)
        job.finish()


def _simulated_executors(loop: SimulatedLoop) -> list[Any]:
    def submit(self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        if self._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        job = Job(loop, lambda: function(*args, **named))
        if loop.running_job is not None or self._thread_name_prefix in IN_PLACE:
            try:
                job.run()
                job.finish()
                return job
            finally:
                del job
        name = PROCESS.get().name
        is_controller = name.startswith(CONTROLLER)
        if is_controller:
            # Its own, of which nothing waits for other processes.
            pool = self.__dict__.setdefault(f"simulated {name}", _Pool(CONTROLLER_THREADS))
        else:
            pool = self.__dict__.setdefault("simulated", _Pool(self._max_workers))
        slow_ns = loop.disk.slow_ns.get(name, 0) if is_controller or self._thread_name_prefix in OF_DISKS else 0
        pool.submit(loop, job, slow_ns)
        return job

    def shutdown(self: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shutdown = True
        pool = self.__dict__.get("simulated")
        for job in [] if pool is None else list(pool.jobs):
            if cancel_futures and job.cancel():
                pool.jobs.pop(job)
            elif wait:
                job.run()
                pool._finish(job)
            del job

    def wait_in_place(jobs: Iterable[Future[Any]]) -> None:
        """Nobody else would do what is waited for."""
        left = list(jobs)
        del jobs
        while left:
            job = left.pop(0)
            if not job.cancelled():
                job.exception()
            del job

    return [
        mock.patch.object(log_checkpoints, "wait", wait_in_place),
        mock.patch.object(ThreadPoolExecutor, "submit", submit),
        mock.patch.object(ThreadPoolExecutor, "shutdown", shutdown),
    ]


def _seeded(loop: SimulatedLoop) -> list[Any]:
    chance = random.Random(loop.rng.getrandbits(64))
    made = random.Random

    class SeededRandom(made):
        def __init__(self, seed: Any = None) -> None:
            super().__init__(chance.getrandbits(64) if seed is None else seed)

    return [mock.patch.object(os, "urandom", chance.randbytes), mock.patch.object(random, "Random", SeededRandom)]


def _virtual_time() -> list[Any]:
    ns, wall_ms = monotonic.monotonic_ns, monotonic.virtual_wall_ms
    replaced: dict[str, Callable[[], Any]] = {
        "monotonic": lambda: ns() / NS,
        "monotonic_ns": ns,
        "perf_counter": lambda: ns() / NS,
        "time": lambda: wall_ms() / 1000,
        "time_ns": lambda: wall_ms() * 1_000_000,
    }
    return [mock.patch.object(time, name, function) for name, function in replaced.items()]


def _no_exit() -> Any:
    """A broker that cannot go on is ended by its history (`disk_faults.py`), not with this process."""
    return mock.patch.object(node, "exit_later", lambda status: None)


def _no_heap() -> Any:
    """What is free of this process's memory is nothing of a history."""
    return mock.patch.object(node, "heap", lambda: None)


def _one_process_id() -> Any:
    """Brokers write theirs to their disks: with one digit more or less they would run out of room elsewhere."""
    return mock.patch.object(os, "getpid", lambda: PROCESS_ID)


@contextmanager
def surroundings(loop: SimulatedLoop) -> Iterator[NativeThreads]:
    """Time, chance and threads of this process are the loop's; the threads that brokers begin in C."""
    state = random.getstate()
    random.seed(loop.rng.getrandbits(64))
    threads = NativeThreads(loop)
    patches = [
        *_simulated_executors(loop),
        *_seeded(loop),
        *_virtual_time(),
        *loop.disk.patches(),
        _no_exit(),
        _no_heap(),
        _one_process_id(),
        kept_for_the_look(),
        *threads.patches(),
    ]
    collects = gc.isenabled()
    # When garbage is found would depend on what ran before in this process.
    gc.disable()
    for each in patches:
        each.start()
    try:
        with threads.in_c():
            yield threads
    finally:
        for each in reversed(patches):
            each.stop()
        monotonic.set_virtual(0)
        random.setstate(state)
        if collects:
            gc.enable()
