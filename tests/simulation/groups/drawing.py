"""Which groups a history has, and who their members are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.features import DELIVERIES, LOCK_SECONDS
from tests.simulation.groups.consumers import Consumer
from tests.simulation.groups.consumers import judge_ending as judge_consumers_ending
from tests.simulation.groups.ledger import ClassicGroup
from tests.simulation.groups.members import Member, judge_ending
from tests.simulation.groups.ownership import Ownership
from tests.simulation.share.ledger import ShareGroup
from tests.simulation.share.members import ShareMember
from tests.simulation.share.members import judge_ending as judge_share_ending

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.world import World

SHARE = 0.25
"""The share of histories of brokers that serve them that have a share group."""
CONSUMERS = 0.2
"""The share of histories of brokers that serve them that have a consumer group of KIP-848."""
CLASSIC = 0.2
"""The share of histories that have a classic group with members."""


def draw_members(world: World) -> Sequence[Client]:
    """The members of all groups that keep their members."""
    rng = world.rng
    made: list[Client] = []
    if world.has_short_sessions and rng.random() < CLASSIC and not world.scale.is_focused:
        topic = rng.choice(list(world.topics))
        group = ClassicGroup(f"classic-{len(world.at_end)}", topic, world.judge, fails=world.fails)
        world.at_end.append(partial(judge_ending, world, group))
        for number in range(rng.randint(1, 5)):
            turns = max(1, int(rng.choice((10, 30, 60)) * world.scale.share))
            made.append(Member(world, f"{group.name}-member-{number}", group, turns))
    if world.serves_new_groups and rng.random() < SHARE:
        topic = rng.choice(list(world.topics))
        shared = ShareGroup(
            f"share-{len(world.at_end)}",
            topic,
            LOCK_SECONDS,
            DELIVERIES,
            rng.random() < 0.5,
            world.judge,
            world.transactions,
        )
        world.at_end.append(partial(judge_share_ending, world, shared))
        for number in range(rng.randint(1, 4)):
            turns = max(1, int(rng.choice((10, 30, 60)) * world.scale.share))
            made.append(ShareMember(world, f"{shared.name}-member-{number}", shared, turns))
    if world.serves_new_groups and rng.random() < CONSUMERS:
        owned = Ownership(f"consumers-{len(world.at_end)}", world.judge)
        world.at_end.append(partial(judge_consumers_ending, world, owned))
        for number in range(rng.randint(1, 5)):
            turns = max(1, int(rng.choice((10, 30, 60)) * world.scale.share))
            made.append(Consumer(world, f"{owned.name}-member-{number}", owned, turns))
    return made
