"""Playing a history, from a seed to its outcome.

outcome = play(seed)            # ViolationError: what went wrong, and the whole story
"""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from kbroker.records.codec_libraries import native_codecs_loaded
from tests.simulation.defects import Defects
from tests.simulation.judge import ViolationError
from tests.simulation.loop import OUTSIDE, NothingToDoError
from tests.simulation.scale import Outcome, Scale
from tests.simulation.surroundings import surroundings
from tests.simulation.work import measured
from tests.simulation.world import World

MEMORY, LIMIT_SECONDS = Path("/dev/shm"), 600.0


def play(seed: int, scale: Scale | None = None, kind: type[World] = World) -> Outcome:
    """Runs one history.  ViolationError with what happened in it."""
    native_codecs_loaded()  # Not with the first compressed batch of the process, which would go another way.
    # What was there before is no garbage of this history, whenever it goes.
    gc.collect()
    gc.freeze()
    folder = Path(tempfile.mkdtemp(prefix="kbroker-world-", dir=MEMORY if MEMORY.is_dir() else None))
    before = logging.root.manager.disable
    world = kind(seed, folder, scale or Scale())
    loop, judge = world.loop, world.judge
    # What brokers say of each fault is no news, but for what must not happen.
    logging.disable(logging.WARNING)
    defects = Defects(loop)
    logging.getLogger().addHandler(defects)
    problem: BaseException | None = None
    try:
        with surroundings(loop), measured(loop):
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(asyncio.wait_for(world.run(), LIMIT_SECONDS))
            except TimeoutError:
                judge.violations.append(f"the history is not over after {LIMIT_SECONDS:.0f} s")
            except (Exception, NothingToDoError) as error:
                problem = error
            finally:
                outcome = Outcome(loop.trace.hexdigest(), judge.answers, loop.turns, loop.time() - 1000)
                _drop(world)
    finally:
        logging.getLogger().removeHandler(defects)
        logging.disable(before)
        asyncio.set_event_loop(None)
        shutil.rmtree(folder, ignore_errors=True)
        gc.unfreeze()
    failures = judge.violations + loop.failures
    if failures or problem is not None:
        first = failures[0] if failures else repr(problem)
        raise ViolationError(f"seed {seed}: {first}\n{judge.story()}\n{failures}") from (loop.first_error or problem)
    return outcome


def _drop(world: World) -> None:
    """Give back what the history holds, however it ended."""
    loop = world.loop
    for process in world.processes.values():
        process.alive = False
    OUTSIDE.alive = True
    world.dispose()
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    for server in list(world.network.servers.values()):
        server.close()
    if world.network.local is not None:
        world.network.local.close()
    for end in list(world.network.ends):
        if end.descriptor is not None:
            end.descriptor.close()
    loop._ready.clear()
    loop._scheduled.clear()
    loop.close()
    # Coroutines that were left in their midst complain when they go.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    gc.collect()
    sys.unraisablehook = hook


__all__ = ["play"]
