"""Many histories, each in a process of its own: what one leaves behind, or a crash in C, is nobody else's.

python -m tests.simulation --simulations 1000 --seed 1      # the seeds from 1 on
python -m tests.simulation --replay 77                      # one, with all that happens in it
python -m tests.simulation --shrink 77                      # the smallest one like it that fails
python -m tests.simulation --kind kraft                     # the same of brokers under a model of KRaft's controllers
python -m tests.simulation --kind quorum                    # the same of brokers under kbroker's own controllers
"""

from __future__ import annotations

import encodings.idna
import gc
import os
import pickle
import random
import signal
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait

from kbroker.assembly.membership import single_node
from kbroker.assembly.membership import workers as of_workers
from kbroker.client.readable import readable
from kbroker.schemas import families, family_messages
from kbroker.security.tls import listener, principal_mapping
from tests.simulation.cluster import CLUSTER_SCALE, Cluster
from tests.simulation.encrypted import contexts
from tests.simulation.kraft.cluster import KRAFT_SCALE, KRaftCluster
from tests.simulation.playing import play
from tests.simulation.quick_faults import TURMOIL_SCALE, Turmoil
from tests.simulation.standstill import Watch
from tests.simulation.voters.cluster import QUORUM_SCALE, QuorumCluster
from tests.simulation.workers import WORKERS_SCALE, Workers
from tests.simulation.world import Outcome, Scale, ViolationError, World

LOADED = (
    encodings.idna,
    single_node,
    of_workers,
    listener,
    principal_mapping,
    contexts(),
    *map(family_messages, families()),
)
"""What each process would load for itself, as brokers load it when they need it."""
LIMIT_SECONDS = 300.0
"""Of real time, for one history: many times what the slowest takes on a busy machine."""
LOOK_SECONDS = 1.0
CLUSTERS, TURMOILS, WORKERS = 0.3, 0.2, 0.12
KINDS: dict[str, tuple[type[World], Scale]] = {
    "kraft": (KRaftCluster, KRAFT_SCALE),
    "quorum": (QuorumCluster, QUORUM_SCALE),
}
"""Those that no seed draws: the histories of a seed stay what they are."""


@dataclass(frozen=True, slots=True)
class Result:
    """How the history of a seed ended: `story` is None where all was right."""

    seed: int
    outcome: Outcome | None
    story: str | None


def kind_of(seed: int, only: str | None = None) -> tuple[type[World], Scale]:
    """What the history of a seed is about: one broker, or a cluster, or one in turmoil, or the workers of a host.

    `only`: one of KINDS, whatever the seed."""
    if only is not None:
        return KINDS[only]
    kind = random.Random(seed).random()
    if kind >= 1 - WORKERS:
        return Workers, WORKERS_SCALE
    if kind < CLUSTERS:
        return Cluster, CLUSTER_SCALE
    return (Turmoil, TURMOIL_SCALE) if kind < CLUSTERS + TURMOILS else (World, Scale())


def play_seed(seed: int, scale: Scale | None = None, only: str | None = None) -> Outcome:
    """The history of a seed, at its own scale unless there is another one.  ViolationError."""
    kind, own = kind_of(seed, only)
    return play(seed, scale or own, kind)


def _forked() -> int:
    """As `os.fork`.  Python warns where other tests have left threads to this process; none has a part in a history."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _Child:
    """A process that plays one seed."""

    def __init__(self, seed: int, scale: Scale | None = None, only: str | None = None) -> None:
        self.seed = seed
        self.until = time.monotonic() + LIMIT_SECONDS
        self._data = bytearray()
        self.watch = Watch()
        self.fd, writes = os.pipe()
        self.pid = _forked()
        if self.pid == 0:
            os.close(self.fd)
            gc.freeze()  # What all histories find is no garbage, and memory that they share until one touches it.
            self.watch.begin()
            status = 1
            try:
                with os.fdopen(writes, "wb") as pipe:
                    pickle.dump(_judged(seed, scale, only), pipe)
                status = 0
            finally:
                os._exit(status)
        os.close(writes)

    def take(self) -> bool:
        """Read what it says; whether that was the end."""
        data = os.read(self.fd, 1 << 16)
        self._data += data
        return not data

    def look(self) -> None:
        """End it where it stands still, or has taken too long."""
        now = time.monotonic()
        if now > self.until:
            os.kill(self.pid, signal.SIGKILL)
        else:
            self.watch.look(self.pid, now)

    def result(self) -> Result:
        """What it said, once it is gone."""
        os.close(self.fd)
        status = os.waitpid(self.pid, 0)[1]
        if words := self.watch.last_words():
            return Result(self.seed, None, f"seed {self.seed}: {words}")
        if status != 0:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
            return Result(self.seed, None, f"seed {self.seed}: its process ended with {how}")
        result: Result = pickle.loads(self._data)
        return result


def play_apart(seed: int, scale: Scale, only: str | None = None) -> Result:
    """The result of one history, in a process of its own."""
    child = _Child(seed, scale, only)
    while True:
        if readable(child.fd, LOOK_SECONDS):
            if child.take():
                break
        else:
            child.look()
    return child.result()


def _judged(seed: int, scale: Scale | None = None, only: str | None = None) -> Result:
    try:
        return Result(seed, play_seed(seed, scale, only), None)
    except ViolationError as error:
        return Result(seed, None, str(error))


def play_each(seeds: Iterable[int], workers: int = 1, only: str | None = None) -> Iterator[Result]:
    """The results of the seeds, as they come."""
    waiting = iter(seeds)
    running: dict[int, _Child] = {}
    while True:
        while len(running) < workers and (seed := next(waiting, None)) is not None:
            child = _Child(seed, only=only)
            running[child.fd] = child
        if not running:
            return
        for fd in wait(list(running), LOOK_SECONDS):
            if running[fd].take():
                yield running.pop(fd).result()
        for child in running.values():
            child.look()
