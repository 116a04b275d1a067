"""For how long each worker has been silent, counted in looks of the supervisor; has no clock, processes or sockets.

A worker's event loop reports every `broker.heartbeat.interval.ms` that it turns.  The supervisor looks LOOKS times
within its patience, and counts the looks without a report.  While the supervisor itself does not run (it was stopped,
the machine was suspended or paused) it misses at most one look, however long that lasts: workers did not run then
either, or could not be heard.
"""

from __future__ import annotations

LOOKS = 10


class Silence:
    """`session`: seconds after which a silent worker is taken for dead (`broker.session.timeout.ms`)."""

    __slots__ = ("_looks", "every", "session")

    def __init__(self, session: float) -> None:
        self.session = session
        self.every = session / LOOKS
        """Seconds from one look to the next."""
        self._looks: dict[int, int] = {}

    def heard(self, number: int) -> None:
        """A worker is alive, or has just been started."""
        self._looks[number] = 0

    def look(self, number: int, patience: float = 0.0) -> bool:
        """Whether a worker has been silent for too long: a session, or `patience` where that is longer.  Called every
        `every` seconds for each."""
        count = self._looks[number] = self._looks.get(number, 0) + 1
        # The first look may follow a sign of life closely, so it is not counted.
        return count > LOOKS * max(1.0, patience / self.session)
