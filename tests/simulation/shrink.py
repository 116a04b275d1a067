"""A history that fails, made small: fewer clients, fewer requests, no faults, as long as it still fails.

Clients that are left out change what the seed draws for the others, so that a smaller history is another one; it is
kept if it fails, however it does.  Each is replayed in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.runner import kind_of, play_apart
from tests.simulation.world import Scale

MOST_ATTEMPTS = 200


def shrink(seed: int, only: str | None = None) -> str | None:
    """The scale of the smallest history that was found to fail, and its story; None where that of the seed does not."""
    scale = kind_of(seed, only)[1]
    story = play_apart(seed, scale, only).story
    if story is None:
        return None
    attempts = 0
    found = True
    while found and attempts < MOST_ATTEMPTS:
        found = False
        for smaller in _smaller(scale):
            attempts += 1
            told = play_apart(seed, smaller, only).story
            if told is not None:
                scale, story, found = smaller, told, True
                break
            if attempts >= MOST_ATTEMPTS:
                break
    return f"{scale}\n{story}"


def _smaller(scale: Scale) -> Iterator[Scale]:
    """What may be left out of a history, the most first."""
    if scale.crashes:
        yield replace(scale, crashes=0.0)
    if scale.aborts:
        yield replace(scale, aborts=0.0)
    clients = sorted(scale.only if scale.only is not None else range(scale.clients[1]))
    size = len(clients) // 2
    while size:
        for at in range(0, len(clients), size):
            left = frozenset(clients[:at] + clients[at + size :])
            if left:
                yield replace(scale, only=left)
        size //= 2
    if scale.share > 0.05:
        yield replace(scale, share=scale.share / 2)
