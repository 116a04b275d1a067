"""What must hold of a topic whose producer numbers its records 0, 1, 2 … in each partition.

lost          a number that was acknowledged, or lies below one that was, is not in the log
elsewhere     a number was acknowledged at an offset where another one is
out of order  a number comes for the first time before a lesser one, from a producer that is idempotent
duplicate     a number comes twice, from a producer that is idempotent

Without idempotence librdkafka keeps no order over a change of leaders, even with one request in flight: that is counted
for each broker, so the new leader gets the next records while the old one has not answered yet.  Three brokers of
Apache Kafka 3.9.1 show the same in the same rounds (`make faults KIND=kafka SEED=2030 ROUNDS=10`: 0 comes behind 83).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def judge(place: str, acknowledged: Mapping[int, int], found: Sequence[int], *, is_idempotent: bool) -> list[str]:
    """What is wrong with one partition, in words.

    `acknowledged` has the offset of each number, negative where the client was not told of it; `found` is the number at
    each offset."""
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
    if not is_idempotent:
        return wrong
    first = list(dict.fromkeys(found))
    if first != sorted(first):
        at = next(index for index in range(1, len(first)) if first[index] < first[index - 1])
        wrong.append(f"{place}: {first[at]} comes behind {first[at - 1]}")
    count = duplicates(found)
    if count:
        wrong.append(f"{place}: {count} duplicates")
    return wrong


def duplicates(found: Sequence[int]) -> int:
    """How many records repeat one before them."""
    return len(found) - len(set(found))


def fell(before: Mapping[tuple[str, int], int], now: Mapping[tuple[str, int], int]) -> list[str]:
    """Committed offsets that are less than they were, in words."""
    return [
        f"the committed offset of {topic}-{partition} fell from {offset} to {now.get((topic, partition))}"
        for (topic, partition), offset in before.items()
        if now.get((topic, partition), -1) < offset
    ]
