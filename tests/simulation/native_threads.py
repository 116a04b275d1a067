"""Threads of C without threads: what they would do happens on the loop's thread, at drawn moments, and its end is seen
at later ones; and the calls of C that would reach the network.

Sends that are lent (`_fast/net/send_threads`) and handshakes of TLS run whole when their event comes.  What is shared
between the loop and its helpers (`_fast/base/helper_pool`) is done in a drawn order, each piece as a drawn worker.  Of
looks into the page cache a drawn share meets what it lacks, so that a pool's job has to bring it in
(`network/cold_reads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.send_threads import SendThreads
from kbroker.assembly import listening
from kbroker.security.listeners import ListenersSecurity
from tests.extensions.faulty_disk import put_cold_pages
from tests.extensions.simulated_sockets import simulate_sockets
from tests.simulation.loop import PROCESS, SLOW_JOB_TIMES, SimulatedLoop

if TYPE_CHECKING:
    from kbroker.security.tls.listener import TlsListener

LEAST_BYTES = (262_144, 1_000, 100, 100)
"""From which size on a history's ranges are lent."""
COLD_SHARES = (0, 0, 0, 4, 64)
"""Of 256 looks so many meet a page that is not in memory."""


class NativeThreads:
    """Those of one history."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._least_bytes = loop.rng.choice(LEAST_BYTES)
        self._cold_share = loop.rng.choice(COLD_SHARES)

    def leave_nothing_to_chance(self) -> None:
        """From now on ranges of the size that brokers lend are lent, and every page is in memory."""
        self._least_bytes, self._cold_share = LEAST_BYTES[0], 0
        put_cold_pages(0, 1)

    def patches(self) -> list[Any]:
        """Brokers get reactors without threads, however many processors this machine has."""
        return [
            mock.patch.object(listening, "Reactor", self._reactor),
            mock.patch.object(ListenersSecurity, "_make_tls", self._with_handshakes(ListenersSecurity._make_tls)),
            mock.patch.object(listening, "beside_the_loop", lambda threads: threads - 1),
        ]

    @contextmanager
    def in_c(self) -> Iterator[None]:
        """The calls of C are the history's."""
        network = getattr(self._loop, "network", None)
        put_cold_pages(self._cold_share, self._loop.rng.getrandbits(63))
        simulate_sockets(None if network is None else network.with_inode)
        try:
            yield
        finally:
            simulate_sockets(None)
            put_cold_pages(0, 1)

    def _reactor(self, *arguments: Any, **named: Any) -> Reactor:
        made = Reactor(*arguments, **named)
        made.send_threads.least_bytes = self._least_bytes
        made.send_threads.runner = self._lent
        made.helper_pool.draw = self._order
        return made

    def _with_handshakes(self, make: Callable[..., TlsListener]) -> Callable[..., TlsListener]:
        def made(security: ListenersSecurity, *arguments: Any) -> TlsListener:
            listener = make(security, *arguments)
            listener._shared.threads.runner = self._lent
            return listener

        return made

    def _lent(self, threads: SendThreads) -> None:
        """A job waits: one thread or another does it when it comes to that."""
        loop, process = self._loop, PROCESS.get()
        longest = loop.pace.job_ns * (SLOW_JOB_TIMES if loop.rng.random() < loop.pace.slow_job else 1)

        def run() -> None:
            threads.do_next()
            loop.look_at_readers(process)

        loop.at(loop.now_ns + loop.rng.randrange(longest), run, process)

    def _order(self, count: int, limit: int) -> list[tuple[int, int]]:
        rng, pieces = self._loop.rng, list(range(count))
        if limit == 0:
            return [(each, 0) for each in pieces]
        rng.shuffle(pieces)
        return [(each, rng.randint(0, limit)) for each in pieces]


__all__ = ["NativeThreads"]
