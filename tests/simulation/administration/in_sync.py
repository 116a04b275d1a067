"""How many replicas have what acks=all was told of, and who may be told that there are too few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.administration.lives import MIN_IN_SYNC
from tests.simulation.replication_witness import holders, own_limits

if TYPE_CHECKING:
    from tests.simulation.administration.lives import Life
    from tests.simulation.world import World


def limits(world: World, life: Life, since: float, until: float) -> list[int]:
    """What `min.insync.replicas` may have been: of a topic without it, its leader's own; never more than there are
    replicas, as in Kafka."""
    own = own_limits(world)
    found = life.settings[MIN_IN_SYNC].between(since, until)
    return sorted({min(each, life.replicas) for value in found for each in ((value,) if value else own)})


def judge_acknowledged(world: World, who: str, life: Life, number: int, last_offset: int, since: float) -> None:
    """acks=all was answered without an error: so many replicas have the record as the topic asks for."""
    now = world.loop.time()
    if min(life.deletion_asked_at, life.moved_at) <= now:
        return  # They may be gone already.
    least = min(limits(world, life, since, now))
    found = holders(world, (life.name, number), last_offset, since)
    if len(found) < least:
        world.judge.fail(
            f"{who}: offset {last_offset} of {life.key}-{number} is acknowledged, and of brokers {found} only, where "
            f"{least} are to have it"
        )


def may_be_too_few(world: World, life: Life, since: float, until: float) -> bool:
    """Whether an ISR may be, or may have been, smaller than the topic asks for."""
    most = max(limits(world, life, since, until))
    return most > 1 and (world.may_lose_leaders or world.may_lag)
