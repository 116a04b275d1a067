"""What brokers serve of transactions and groups: settings that all of them share, and levels of features."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.schemas import wire

if TYPE_CHECKING:
    from tests.simulation.world import World

SAFE_DOWNGRADE = 2
SESSION_SECONDS = 3
"""How long a silent member of a new kind of group stays."""
LOCK_SECONDS = 2
"""How long a member of a share group holds a record."""
DELIVERIES = 5
"""How often a record of a share group is delivered at most."""
TRANSACTION_VERSION = "transaction.version"


def coordinator_settings(rng: random.Random, nodes: int) -> Mapping[str, str]:
    """Of coordinators and their topics."""
    return {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(nodes),
        "share.coordinator.state.topic.min.isr": "1",
        "group.share.min.record.lock.duration.ms": str(1000 * LOCK_SECONDS),
        "group.share.record.lock.duration.ms": str(1000 * LOCK_SECONDS),
        "group.share.min.session.timeout.ms": str(1000 * SESSION_SECONDS),
        "group.share.session.timeout.ms": str(1000 * SESSION_SECONDS),
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
        "group.consumer.min.session.timeout.ms": str(1000 * SESSION_SECONDS),
        "group.consumer.session.timeout.ms": str(1000 * SESSION_SECONDS),
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.min.session.timeout.ms": "100",
        "group.initial.rebalance.delay.ms": rng.choice(("0", "0", "100", "1000")),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(nodes),
        "transaction.state.log.replication.factor": str(nodes),
        "transaction.state.log.min.isr": str(min(nodes, rng.choice((1, 1, 2)))),
        "transaction.state.log.num.partitions": rng.choice(("1", "1", "3")),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": rng.choice(("100", "1000", "10000")),
    }


async def draw_features(world: World) -> None:
    """Bring features to the levels that the history has.  Clusters with ZooKeeper are at level 0."""
    if not world.has_features:
        return
    level = world.rng.choice((2, 2, 2, 2, 1, 0))
    world.transaction_version = level
    if level == 2:
        return
    request = wire.UpdateFeaturesRequest
    update = request.FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=SAFE_DOWNGRADE)
    connection = await world.connect(1, "admin", "admin")
    assert connection is not None
    answer = await connection.answer(request(timeout_ms=10_000, feature_updates=[update]), 1)
    if answer.error_code != 0:
        world.judge.fail(f"{TRANSACTION_VERSION} cannot be {level}: {answer}")
    connection.finish(world.rng)
