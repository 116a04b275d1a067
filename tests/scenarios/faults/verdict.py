"""What must hold of a topic whose producer numbers its records 0, 1, 2 … in each partition.

lost          a number that was acknowledged, or lies below one that was, is not in the log
elsewhere     a number was acknowledged at an offset where another one is
out of order  a number comes for the first time before a lesser one, from a producer that is idempotent
duplicate     a number comes twice in one epoch of an idempotent producer

Without idempotence a producer keeps no order over a change of leaders, even with one request in flight: that is counted
for each broker, so the new leader gets the next records while the old one has not answered yet.

librdkafka begins a new epoch when the broker has refused a sequence, as it must behind a batch that was refused with
NOT_ENOUGH_REPLICAS.  It sends all that was not acknowledged again in that epoch, in all partitions, also what the log
has from the epoch before.  No broker can tell that from new records.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence


def judge(
    place: str, acknowledged: Mapping[int, int], found: Sequence[int], epochs: Sequence[int] | None = None
) -> list[str]:
    """What is wrong with one partition, in words.

    `acknowledged` has the offset of each number, negative where the client was not told of it; `found` is the number at
    each offset, and `epochs` the epoch of its idempotent producer."""
    wrong = []
    lost = sorted(set(range(max(acknowledged, default=-1) + 1)).difference(found))
    if lost:
        wrong.append(f"{place}: {len(lost)} records are lost, the first of them {lost[:5]}")
    elsewhere = [
        (number, at) for number, at in acknowledged.items() if at >= 0 and (at >= len(found) or found[at] != number)
    ]
    if elsewhere:
        number, at = elsewhere[0]
        there = found[at] if at < len(found) else "nothing"
        wrong.append(
            f"{place}: {len(elsewhere)} are not where they were acknowledged: at {at} is {there}, not {number}"
        )
    if epochs is None:
        return wrong
    first = list(dict.fromkeys(found))
    if first != sorted(first):
        at = next(index for index in range(1, len(first)) if first[index] < first[index - 1])
        wrong.append(f"{place}: {first[at]} comes behind {first[at - 1]}")
    count = duplicates(list(zip(found, epochs, strict=True)))
    if count:
        wrong.append(f"{place}: {count} duplicates")
    return wrong


def duplicates(found: Sequence[Hashable]) -> int:
    """How many records repeat one before them."""
    return len(found) - len(set(found))


def fell(before: Mapping[tuple[str, int], int], now: Mapping[tuple[str, int], int]) -> list[str]:
    """Committed offsets that are less than they were, in words."""
    return [
        f"the committed offset of {topic}-{partition} fell from {offset} to {now.get((topic, partition))}"
        for (topic, partition), offset in before.items()
        if now.get((topic, partition), -1) < offset
    ]
