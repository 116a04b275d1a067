"""Whether clients may be sent to the broker, and its problems while it is ready.

States: STARTING -> READY -> STOPPING, or STARTING -> STOPPING when start-up fails.  There is no way back: a broker
that stops is replaced by a new process.

A ready broker may have problems, which its parts report (`watch`).  It stays ready: when produce is refused because the
disk is full, consumers and the operator who clears the disk must still reach it.  Only a problem with `stops_service`
means that clients should go elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import chain
from typing import NamedTuple

MOST_SHOWN = 20


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


class Problem(NamedTuple):
    """One line for a person.  `stops_service`: none of the broker's clients gets what it asks for."""

    text: str
    stops_service: bool = False


Problems = Callable[[], Iterable[Problem]]


class Readiness:
    """The state behind `/readyz`, with an optional detail such as the progress of recovery."""

    __slots__ = ("_followers", "_sources", "detail", "state")

    def __init__(self) -> None:
        self.state = ReadyState.STARTING
        self.detail = ""
        self._sources: list[Problems] = []
        self._followers: list[Callable[[Readiness], object]] = []

    def watch(self, *sources: Problems) -> None:
        """Adds sources of problems.  They are called on the loop at each request for readiness, while the broker is
        ready."""
        self._sources.extend(sources)

    def move(self, to: ReadyState) -> None:
        """Change the state.  Moving to the present state again is harmless, going back is a fault.

        Raises ValueError."""
        if to is self.state:
            return
        if to not in _ALLOWED[self.state]:
            raise ValueError(f"a broker that is {self.state.value} does not become {to.value}")
        self.state = to
        self.describe("")

    def describe(self, detail: str) -> None:
        """Say how far the state is, such as the progress of a recovery, or why it is so."""
        self.detail = detail
        for changed in self._followers:
            changed(self)

    def subscribe(self, changed: Callable[[Readiness], object]) -> None:
        """Call `changed` after every change of state or detail."""
        self._followers.append(changed)

    @property
    def ready(self) -> bool:
        """True between the end of start-up and the begin of the shutdown."""
        return self.state is ReadyState.READY

    @property
    def text(self) -> str:
        """One line for a person."""
        return f"{self.state.value}: {self.detail}" if self.detail else self.state.value

    def look(self) -> tuple[bool, str]:
        """Whether clients are to be sent here, and why or what is wrong: a line, and one more for each problem."""
        problems = list(chain.from_iterable(source() for source in self._sources)) if self.ready else []
        if not problems:
            return self.ready, self.text
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = [f"{self.text}, with {count}:", *(f"- {problem.text}" for problem in problems[:MOST_SHOWN])]
        if len(problems) > MOST_SHOWN:
            lines.append(f"- and {len(problems) - MOST_SHOWN} more")
        return not any(problem.stops_service for problem in problems), "\n".join(lines)
