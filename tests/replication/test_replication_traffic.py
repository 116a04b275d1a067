"""Throttled replication (KIP-73): what is counted, what is held back, and what never is."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbroker.config import BrokerConfig
from kbroker.replication.partition import Partition
from kbroker.replication.replication_traffic import ReplicationTraffic
from tests.broker.client import Batch
from tests.replication.led_partition import OURS, THEIRS, TOPIC, Cluster, run
from tests.storage.batches import HandClock

RATE, LARGEST = 1000, 5000
SETTINGS = {"leader.replication.throttled.rate": str(RATE), "follower.replication.throttled.rate": str(RATE)}


def traffic_of(clock: HandClock, **settings: str) -> ReplicationTraffic:
    return ReplicationTraffic(BrokerConfig.from_mapping({"log.dirs": "/", **SETTINGS, **settings}), clock.monotonic)


def partition_of(*, throttled: bool = True, adding: tuple[int, ...] = ()) -> Partition:
    values = {"leader_throttled": throttled, "follower_throttled": throttled, "isr": (OURS,), "node_id": OURS}
    return cast("Partition", SimpleNamespace(**values, adding_replicas=adding))


@pytest.mark.parametrize("seed", range(5))
def test_what_goes_stays_within_the_rate(seed: int) -> None:
    """A reassignment would take the network that clients need, throttled or not."""
    clock = HandClock(1_000_000)
    traffic, partition = traffic_of(clock), partition_of()
    began, sent = clock.now, 0
    rng = random.Random(seed)
    for _ in range(500):
        size = rng.randint(1, LARGEST)
        clock.now += rng.randint(0, 500)
        if not traffic.holds_back_follower(partition, THEIRS):
            traffic.sent(partition, THEIRS, size)
            sent += size
    # Of each span of eleven windows the last answer may be as large as it is.
    assert sent <= ((clock.now - began) / 11_000 + 1) * (RATE * 12 + LARGEST)
    clock.now += 12_000
    assert not traffic.holds_back_follower(partition, THEIRS)


def test_replicas_in_sync_and_those_not_named_are_never_held_back() -> None:
    """Producers with acks=all would wait for a throttle that is for replicas on the move."""
    clock = HandClock()
    traffic, partition, free = traffic_of(clock), partition_of(adding=(OURS, THEIRS)), partition_of(throttled=False)
    traffic.sent(partition, THEIRS, 100 * RATE)
    traffic.copied(partition, 100 * RATE)
    assert traffic.holds_back_follower(partition, THEIRS) and not traffic.holds_back_follower(partition, OURS)
    assert traffic.holds_back_leader(partition, in_sync=False)
    assert not traffic.holds_back_leader(partition, in_sync=True)
    assert not traffic.holds_back_follower(free, THEIRS) and not traffic.holds_back_leader(free, in_sync=False)
    traffic.sent(free, THEIRS, 5)
    assert (traffic.bytes_out, traffic.reassignment_bytes_out) == (100 * RATE + 5, 100 * RATE)
    assert (traffic.bytes_in, traffic.reassignment_bytes_in) == (100 * RATE, 100 * RATE)
    traffic.follow(BrokerConfig.from_mapping({"log.dirs": "/"}))
    assert not traffic.holds_back_follower(partition, THEIRS) and not traffic.holds_back_leader(
        partition, in_sync=False
    )


def test_a_leader_answers_a_throttled_follower_without_records(tmp_path: Path) -> None:
    """kafka-reassign-partitions --throttle would have no effect on what leaders send."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        manager = cluster.broker.services.replica_manager
        clock = HandClock()
        manager.traffic = traffic_of(clock)
        for _ in range(3):
            await asyncio.to_thread(client.produce, TOPIC, Batch([(b"key", b"v" * 20_000)]), acks=1)
        await configure(client, "0:1")
        cluster.place(isr=(OURS,))
        assert len((await cluster.follow(follower, 0)).records) > 60_000
        assert manager.traffic.bytes_out > 60_000
        held = await cluster.follow(follower, 1)
        assert (held.error_code, held.records) == (0, b"")
        assert cluster.partition().followers[THEIRS].log_end_offset == 1, "what it asks for counts all the same"
        cluster.place(isr=(OURS, THEIRS))
        assert len((await cluster.follow(follower, 1)).records) > 40_000, "it is in sync"
        cluster.place(isr=(OURS,))
        await configure(client, "7:1,0:2")
        assert len((await cluster.follow(follower, 1)).records) > 40_000, "it is not named"
        await configure(client, "*")
        assert (await cluster.follow(follower, 1)).records == b""
        clock.now += 200_000
        assert len((await cluster.follow(follower, 1)).records) > 40_000, "the rate is within the bound"
        client.close()
        follower.close()

    async def configure(client: Any, replicas: str) -> None:
        setting = {"name": "leader.replication.throttled.replicas", "config_operation": 0, "value": replicas}
        resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [setting]}
        values = {"resources": [resource], "validate_only": False}
        answer = await asyncio.to_thread(client.ask, "IncrementalAlterConfigs", 1, values)
        assert answer.responses[0].error_code == 0

    run(tmp_path, scenario)
