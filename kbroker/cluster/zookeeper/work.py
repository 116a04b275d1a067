"""What an elected controller has to look at, in the order in which it does."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.types import TopicPartition


class Work(Enum):
    """What has to be looked at, in the order in which it is."""

    BROKERS = auto()
    TOPICS = auto()
    DIRECTORIES = auto()
    ISR_CHANGES = auto()
    FAILED_REPLICAS = auto()
    SETTLE = auto()
    DELETIONS = auto()
    FINISHED_DELETIONS = auto()
    REASSIGNMENTS = auto()
    COMPLETIONS = auto()
    ELECTIONS = auto()
    BALANCE = auto()


class WorkLeft:
    """What a term has to look at, and has not yet.

    Watches, timers and answers of brokers have this and not the term: they may come long after the term's end, and
    would keep all that it knew of the cluster until then.
    """

    __slots__ = ("_loop", "_since", "_topics", "failed", "wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._since: dict[Work, float] = {}
        self._topics: set[str] = set()
        self.failed: dict[int, set[TopicPartition]] = {}
        """By broker, the replicas whose log directory it has lost."""
        self.wake = asyncio.Event()

    def mark(self, work: Work) -> None:
        """Have the term do a kind of work at its next turn."""
        self._since.setdefault(work, self._loop.time())
        self.wake.set()

    def watch_topic(self, name: str) -> None:
        """Have a topic's assignment read again."""
        self._topics.add(name)
        self.mark(Work.TOPICS)

    def note_failed(self, node_id: int, names: list[TopicPartition]) -> None:
        """A broker has lost the log directory of replicas."""
        self.failed.setdefault(node_id, set()).update(names)
        self.mark(Work.FAILED_REPLICAS)

    def take(self) -> dict[Work, float]:
        """All that was marked, with the loop's time of its first mark."""
        self.wake.clear()
        taken, self._since = self._since, {}
        return taken

    def take_topics(self) -> set[str]:
        """The topics to be read again."""
        taken, self._topics = self._topics, set()
        return taken

    def take_failed(self) -> dict[int, set[TopicPartition]]:
        """The replicas that were lost."""
        taken, self.failed = self.failed, {}
        return taken
