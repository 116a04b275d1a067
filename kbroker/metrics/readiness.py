"""Whether the broker may be sent clients.

States: STARTING -> READY -> STOPPING, or STARTING -> STOPPING when start-up fails.  There is no way back: a broker
that stops is replaced by a new process.
"""

from __future__ import annotations

from enum import Enum


class ReadyState(Enum):
    """The value is the text that `/readyz` answers with."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "shutting down"


_ALLOWED: dict[ReadyState, frozenset[ReadyState]] = {
    ReadyState.STARTING: frozenset({ReadyState.READY, ReadyState.STOPPING}),
    ReadyState.READY: frozenset({ReadyState.STOPPING}),
    ReadyState.STOPPING: frozenset(),
}


class Readiness:
    """The state behind `/readyz`, with an optional detail such as the progress of recovery."""

    __slots__ = ("detail", "state")

    def __init__(self) -> None:
        self.state = ReadyState.STARTING
        self.detail = ""

    def move(self, to: ReadyState) -> None:
        """Change the state.  Moving to the present state again is harmless, going back is a fault."""
        if to is self.state:
            return
        if to not in _ALLOWED[self.state]:
            raise ValueError(f"a broker that is {self.state.value} does not become {to.value}")
        self.state = to
        self.detail = ""

    @property
    def ready(self) -> bool:
        """True between the end of start-up and the begin of the shutdown."""
        return self.state is ReadyState.READY

    @property
    def text(self) -> str:
        """One line for a person."""
        return f"{self.state.value}: {self.detail}" if self.detail else self.state.value
