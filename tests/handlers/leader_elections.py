"""What is asked of a broker about elections and other brokers (`tests.handlers.changes`)."""

from __future__ import annotations

from typing import Any

from tests.handlers.changes import change
from tests.scenarios.session import Session

PREFERRED, UNCLEAN = 0, 1


def ask(s: Session, step: str, version: int, election: int, *partitions: tuple[str, list[int]]) -> None:
    """Ask for an election."""
    values: dict[str, Any] = {"election_type": election} if version else {}
    rows = [{"topic": topic, "partitions": indexes} for topic, indexes in partitions]
    s.ask(step, "ElectLeaders", version, topic_partitions=rows, timeout_ms=10_000, **values)


@change
def elections_that_are_not_needed(s: Session) -> None:
    s.create("elected", 2)
    for version in range(3):
        for election in (PREFERRED, UNCLEAN, 2, -1):
            named = f"v{version} type {election}"
            ask(s, named, version, election, ("elected", [0, 5, -1]), ("never-elected", [0]))
            ask(s, f"{named} of nothing", version, election)
    ask(s, "a partition twice", 2, PREFERRED, ("elected", [0, 0]))
    ask(s, "several topics", 2, PREFERRED, ("elected", [0]), ("never-elected", [0]), ("elected", [1]))
    s.ask("all with an unknown type", "ElectLeaders", 2, election_type=2, topic_partitions=None, timeout_ms=10_000)


@change
def brokers_that_are_not_registered(s: Session) -> None:
    for node_id in (77, -1, 2**31 - 1):
        s.ask(f"broker {node_id}", "UnregisterBroker", 0, broker_id=node_id)
