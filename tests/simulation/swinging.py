"""A leader that follows another one, and leads again, while a follower does not reach it: what it knew of that follower
is of another epoch, and the follower's log may have been cut since."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.quick_faults import Turmoil

LOOK_SECONDS, LONGEST_SECONDS = 0.02, 5.0
LATE_NS = 200_000_000
"""By so much what the leader sends to its successor is late, which then has less than the other follower."""


async def swing(world: Turmoil) -> None:
    """One such fault, where the cluster bears it, and the end of it."""
    found = _led_by_its_first(world)
    if found is None:
        return
    rng, (topic, number), leader = world.later, found, world.in_force(*found).leader
    others = [each for each in world.in_force(topic, number).isr if each != leader]
    if len(others) < 2 or not world.may_lose(leader):
        return
    cut = rng.choice(others)
    next_leader = next(each for each in others if each != cut)
    world.judge.note("broker %d is to follow, and to lead again, without broker %d", leader, cut)
    if rng.random() < 0.5:
        world.network.slow_down(f"broker-{leader}", f"broker-{next_leader}", LATE_NS)
        await asyncio.sleep(rng.random() * 0.3)
    world.network.separate(f"broker-{leader}", f"broker-{cut}", both_ways=True)
    if world.may_lose(leader):
        session = world.sessions[leader]
        session.lapse()
        world.loop.call_later(0.05 * rng.random(), session.notice)
        await _until(world, lambda: world.in_force(topic, number).leader not in (leader, -1))
        await _until(world, lambda: leader in world.in_force(topic, number).isr)
        if world.bears_another_leader():
            await world.elect()
            await _until(world, lambda: world.in_force(topic, number).leader == leader)
            await asyncio.sleep(rng.choice((0.1, 1.0)) * rng.random())
    world.network.heal()


def _led_by_its_first(world: Turmoil) -> tuple[str, int] | None:
    """A partition whose leader is the one that elections prefer."""
    found = []
    for name, topic in world.topics.items():
        for number in range(topic.partitions):
            leader = world.in_force(name, number).leader
            broker = world.brokers.get(leader)
            image = None if broker is None else broker.services.metadata_cache.topic(name)
            if image is not None and image.partitions[number].replicas[0] == leader:
                found.append((name, number))
    return world.later.choice(found) if found else None


async def _until(world: Turmoil, holds: Callable[[], bool]) -> None:
    """Wait for something that may not come."""
    until = world.loop.time() + LONGEST_SECONDS
    while not holds() and world.loop.time() < until and not world.writers_done:
        await asyncio.sleep(LOOK_SECONDS)


__all__ = ["swing"]
