"""How long a history is, and what it was like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """How long a history is, and what may happen in it."""

    nodes: int = 1
    requests: int = 300
    clients: tuple[int, int] = (3, 40)
    acks: tuple[int, ...] = (-1, -1, 1, 0)
    aborts: float = 0.01
    crashes: float = 0.3
    """The chance that brokers of a history crash."""
    only: frozenset[int] | None = None
    """The numbers of the clients that take part; None: all."""
    is_focused: bool = False
    """Whether it is about producers and consumers alone: no topics that change, no transactions, no groups."""
    share: float = 1.0
    """How much of its requests each client has."""
    old_formats: float = 0.0
    """The chance that a topic is stored in a format from before batches; only clusters with ZooKeeper have those."""
    forgets_late: float = 0.0
    """For so many seconds a broker may take a topic for there whose deletion has been answered."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a history was like."""

    trace: str
    answers: int
    turns: int
    seconds: float
