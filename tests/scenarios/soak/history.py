"""What the members of a group said, and the rules that it must keep.

A line of a member is `<nanoseconds> <word> <numbers>` (`member.py`); what was done to it (`killed`, `stopped`,
`continued`) comes in the same form.  The rules:

    missing          every record was processed
    went_back        who takes a partition over begins at or behind what was committed before; while it owns it, it goes
                     on without gaps
    longest_unowned  how long a partition that had an owner had none that lives, since the last member failed
    accepted_twice   a record of a share group is accepted once, unless its member was stopped until its lock ran out
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Event:
    """One line of one member; `time` in seconds."""

    time: float
    member: str
    word: str
    numbers: tuple[int, ...] = ()


class Unowned(NamedTuple):
    """A time without an owner: since the last member of the group failed, and in all."""

    seconds: float
    partition: int
    whole_seconds: float


def read_line(member: str, line: str) -> Event | None:
    """The event of a line; None for what says no more than text (`failed`) and for a line that a kill has cut."""
    words = line.split()
    if len(words) < 2 or not words[0].isdigit() or words[1] == "failed" or not line.endswith("\n"):
        return None
    return Event(int(words[0]) / 1e9, member, words[1], tuple(map(int, words[2:])))


def in_order(events: Iterable[Event]) -> list[Event]:
    """All events by time."""
    return sorted(events, key=lambda event: event.time)


def offsets_of(events: Iterable[Event], word: str) -> dict[int, Counter[int]]:
    """How often each offset of each partition stands in lines of a word."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for event in events:
        if event.word == word:
            partition, first, last = event.numbers
            found[partition].update(range(first, last + 1))
    return found


def missing(events: Iterable[Event], ends: Mapping[int, int], word: str = "got") -> dict[int, list[int]]:
    """The offsets below each partition's end that no member had."""
    found = offsets_of(events, word)
    lacking = {partition: [at for at in range(end) if not found[partition][at]] for partition, end in ends.items()}
    return {partition: offsets for partition, offsets in lacking.items() if offsets}


def accepted_twice(events: Iterable[Event], lock_seconds: float) -> list[str]:
    """Records whose acceptance was acknowledged more than once, in words; `events` in order.

    What a member says too late of records below the start offset is acknowledged and means nothing, with Kafka as well;
    so a member that was stopped until its locks had run out may accept what another one had meanwhile."""
    accepted: set[tuple[int, int]] = set()
    stopped: dict[str, float] = {}
    wrong: list[str] = []
    for event in events:
        if event.word == "stopped":
            stopped[event.member] = event.time
        if event.word != "accepted":
            continue
        partition, first, last = event.numbers
        # Its records were acquired a little before it was stopped.
        is_late = event.time - stopped.get(event.member, event.time) + 2.0 >= lock_seconds
        for offset in range(first, last + 1):
            if (partition, offset) in accepted and not is_late:
                wrong.append(f"{event.member} accepted record {offset} of partition {partition} once more")
            accepted.add((partition, offset))
    return wrong


def went_back(events: Iterable[Event]) -> list[str]:
    """What contradicts the commit rule, in words; `events` in order."""
    committed: dict[int, int] = defaultdict(int)
    # (member, partition) -> the offset that must come next or, negative, the least that may come first, as -1 - offset.
    awaited: dict[tuple[str, int], int] = {}
    wrong: list[str] = []
    for event in events:
        if event.word == "owns":
            had = {partition for member, partition in awaited if member == event.member}
            for partition in had.difference(event.numbers):
                del awaited[event.member, partition]
            for partition in set(event.numbers).difference(had):
                awaited[event.member, partition] = -1 - committed[partition]
        elif event.word == "committed":
            partition, offset = event.numbers
            committed[partition] = max(committed[partition], offset)
        elif event.word == "got":
            partition, first, last = event.numbers
            due = awaited.get((event.member, partition))
            if due is None:
                continue
            if due < 0 and first < -1 - due:
                wrong.append(f"{event.member} began partition {partition} at {first}, {-1 - due} was committed before")
            elif due >= 0 and first != due:
                wrong.append(f"{event.member} got {first} of partition {partition} where {due} came next")
            awaited[event.member, partition] = last + 1
    return wrong


def longest_unowned(events: Iterable[Event], session_seconds: float, end: float) -> Unowned:
    """The longest time in which a partition that once had an owner had none; `events` in order, the last at `end`.

    A member that is stopped owns nothing meanwhile, and goes on as the owner if that was shorter than its session.
    Each member that dies or stops takes a session's time and a rebalance, so the time begins anew with it."""
    return max(_unowned(events, session_seconds, end), default=Unowned(0.0, -1, 0.0))


def _unowned(events: Iterable[Event], session_seconds: float, end: float) -> Iterator[Unowned]:
    owns: dict[str, frozenset[int]] = {}
    stopped: dict[str, tuple[float, frozenset[int]]] = {}
    since: dict[int, float] = {}
    before: set[int] = set()
    failure = 0.0
    for event in events:
        if event.word == "owns":
            owns[event.member] = frozenset(event.numbers)
        elif event.word == "stopped":
            stopped[event.member] = (event.time, owns.pop(event.member, frozenset()))
        elif event.word == "continued":
            at, had = stopped.pop(event.member, (0.0, frozenset()))
            if event.time - at < session_seconds:
                owns[event.member] = had
        elif event.word in ("killed", "left"):
            owns.pop(event.member, None)
            stopped.pop(event.member, None)
        else:
            continue
        if event.word in ("killed", "stopped"):
            failure = event.time
        now = {partition for owned in owns.values() for partition in owned}
        for partition in before - now:
            since[partition] = event.time
        for partition in now & since.keys():
            began = since.pop(partition)
            yield Unowned(event.time - max(began, failure), partition, event.time - began)
        before = now
    for partition, began in since.items():
        yield Unowned(end - max(began, failure), partition, end - began)
