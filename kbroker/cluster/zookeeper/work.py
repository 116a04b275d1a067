"""What an elected controller has to look at, in the order in which it does."""

from __future__ import annotations

from enum import Enum, auto


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
