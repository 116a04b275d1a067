"""What an active controller remembers of brokers and no record says: who was heard of, and when (KIP-631).

It begins anew with each leadership: a broker that is not fenced then has a whole session.  Times are seconds of a
monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.metadata.image import BrokerImage, ClusterImage

UNKNOWN_OFFSET = -1


class Sessions:
    """A session belongs to a broker in an epoch: a new life has none before its first heartbeat."""

    __slots__ = ("_began_at", "_heard", "_leaving", "_now", "_offsets", "_registered_at", "seconds")

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        """`seconds`: of a session (`broker.session.timeout.ms`)."""
        self._now = now
        self.seconds = seconds
        self._began_at = 0
        self._heard: dict[tuple[int, int], float] = {}
        self._registered_at: dict[int, int] = {}
        self._offsets: dict[int, int] = {}
        self._leaving: dict[int, int] = {}

    def begin(self, brokers: Iterable[BrokerImage], offset: int) -> None:
        """A leadership begins; all registrations until now are in records up to this offset."""
        now = self._now()
        self._began_at = offset
        self._heard = {(each.node_id, each.epoch): now for each in brokers if not each.is_fenced}
        self._registered_at, self._offsets, self._leaving = {}, {}, {}

    # Contact

    def touch(self, node_id: int, epoch: int) -> None:
        """A broker was heard of."""
        self._heard[node_id, epoch] = self._now()

    def has(self, node_id: int, epoch: int) -> bool:
        """Whether a broker has a session."""
        heard = self._heard.get((node_id, epoch))
        return heard is not None and self._now() < heard + self.seconds

    def silences(self) -> dict[int, float]:
        """Seconds since each broker with a session was heard of."""
        now = self._now()
        return {node_id: max(0.0, now - heard) for (node_id, _), heard in self._heard.items()}

    def take_stale(self) -> tuple[int, int] | None:
        """The broker, with its epoch, that was not heard of for the longest time, more than a session; it has none
        from now on."""
        stale = min(self._heard, key=self._heard.__getitem__, default=None)
        if stale is None or self.has(*stale):
            return None
        del self._heard[stale]
        return stale

    def has_stale(self) -> bool:
        """Whether there is such a broker."""
        return any(not self.has(*each) for each in self._heard)

    # Its life

    def registered(self, node_id: int, offset: int, *, is_new_life: bool) -> None:
        """A broker has registered by the record at this offset."""
        self._registered_at[node_id] = offset
        if is_new_life:
            self.forget(node_id)

    def forget(self, node_id: int) -> None:
        """A life has ended."""
        self._offsets.pop(node_id, None)
        self._leaving.pop(node_id, None)
        for known in [each for each in self._heard if each[0] == node_id]:
            del self._heard[known]

    def is_caught_up(self, node_id: int, offset: int) -> bool:
        """Whether a broker that has applied all up to this offset knows its registration."""
        return offset >= self._registered_at.get(node_id, self._began_at)

    def applied(self, node_id: int, offset: int) -> None:
        """Up to where a broker has applied the log."""
        self._offsets[node_id] = offset

    # Leaving

    def is_leaving(self, node_id: int) -> bool:
        """Whether a broker is in controlled shutdown, as far as this leadership has seen."""
        return node_id in self._leaving

    def leaves(self, node_id: int, offset: int) -> None:
        """Others lead instead of a broker since the record at this offset, or an earlier one."""
        self._leaving.setdefault(node_id, offset)

    def stays(self, node_id: int) -> None:
        """A broker is fenced: what it waited for does not matter any more."""
        self._leaving.pop(node_id, None)

    def others_know(self, node_id: int, image: ClusterImage) -> bool:
        """Whether all active brokers have applied what makes others lead instead of a leaving one."""
        others = (each.node_id for each in image.active_brokers() if each.node_id != node_id)
        lowest = min((self._offsets.get(each, UNKNOWN_OFFSET) for each in others), default=math.inf)
        return self._leaving[node_id] <= lowest
