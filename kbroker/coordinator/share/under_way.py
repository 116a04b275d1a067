"""Second steps that are under way: a group has noted in its log what it is about to do, and the share coordinator is
being asked to do it.

A note in the log does not say whether its step is still running: after a load, a lost connection or a failure it is
not.  So the running steps are kept in memory, where each ends with its step.  What is noted and not under way is begun
again; what takes longer than `group.share.initialize.retry.interval.ms` counts as lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from kbroker.clock import Clock


class Initialization:
    """One attempt; `due`: until when it counts, in seconds."""

    __slots__ = ("due", "group_id", "keys")

    def __init__(self, group_id: str, keys: Iterable[Hashable], due: float) -> None:
        self.group_id = group_id
        self.keys = tuple(keys)
        self.due = due


class UnderWay:
    """See the module."""

    def __init__(self, clock: Clock, retry_ms: int) -> None:
        self._clock = clock
        self._retry_seconds = retry_ms / 1000
        self._steps: dict[tuple[str, Hashable], Initialization] = {}

    def begin(self, group_id: str, keys: Iterable[Hashable]) -> Initialization:
        """An attempt begins, in place of one that is overdue."""
        step = Initialization(group_id, keys, self._clock.monotonic() + self._retry_seconds)
        for key in step.keys:
            self._steps[group_id, key] = step
        return step

    def end(self, step: Initialization) -> None:
        """It is over, well or badly."""
        for key in step.keys:
            if self._steps.get((step.group_id, key)) is step:
                del self._steps[step.group_id, key]

    def has(self, group_id: str, key: Hashable) -> bool:
        """Whether an attempt is under way."""
        step = self._steps.get((group_id, key))
        return step is not None and self._clock.monotonic() < step.due
