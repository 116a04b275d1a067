"""The bytes that this broker replicates, counted, and bounded for throttled replicas (KIP-73).

    leader.replication.throttled.rate      bytes a second that followers out of sync get here, of partitions named in
                                           the topic's leader.replication.throttled.replicas
    follower.replication.throttled.rate    bytes a second that are copied to here, of partitions named in the topic's
                                           follower.replication.throttled.replicas

The bytes of every throttled replica are counted, but only replicas that are not in sync are held back, so that
producers with acks=all never wait for a throttle.  A leader then answers without records, a follower leaves the
partition out of its fetches, until the rate over `replication.quota.window.num` windows is within the bound again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.quotas.rate import SampledRate, Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.config import BrokerConfig
    from kbroker.replication.partition import Partition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


class Throttle:
    """One direction; `limit` in bytes a second."""

    __slots__ = ("_now_ms", "_rate", "limit")

    def __init__(self, limit: int, windows: Windows, now_ms: Callable[[], int]) -> None:
        self.limit = limit
        self._rate = SampledRate(windows)
        self._now_ms = now_ms

    def record(self, size_bytes: int) -> None:
        """So many bytes went."""
        self._rate.record(size_bytes, self._now_ms())

    def wait_ms(self) -> int:
        """How long nothing must go until the rate is within the bound; 0 where it is."""
        rate, elapsed = self._rate.measure(self._now_ms())
        return max(1, round((rate - self.limit) / max(self.limit, 1) * elapsed)) if rate > self.limit else 0


class ReplicationTraffic:
    """Both directions of one broker.  Counters are bytes of records since the start."""

    def __init__(self, config: BrokerConfig, monotonic: Callable[[], float]) -> None:
        windows = Windows(
            config.get("replication.quota.window.num"), 1000 * config.get("replication.quota.window.size.seconds")
        )

        def now_ms() -> int:
            return int(monotonic() * 1000)

        self.bytes_in = self.bytes_out = 0
        self.reassignment_bytes_in = self.reassignment_bytes_out = 0
        self.leader = Throttle(config.get(LEADER_RATE), windows, now_ms)
        self.follower = Throttle(config.get(FOLLOWER_RATE), windows, now_ms)

    def follow(self, config: BrokerConfig) -> None:
        """A broker setting was changed at run time."""
        self.leader.limit = config.get(LEADER_RATE)
        self.follower.limit = config.get(FOLLOWER_RATE)

    def holds_back_follower(self, partition: Partition, replica_id: int) -> bool:
        """As the leader: whether a follower gets no records now."""
        return partition.leader_throttled and replica_id not in partition.isr and self.leader.wait_ms() > 0

    def holds_back_leader(self, partition: Partition, *, in_sync: bool) -> bool:
        """As the follower: whether the leader is asked for nothing of the partition now."""
        return partition.follower_throttled and not in_sync and self.follower.wait_ms() > 0

    def sent(self, partition: Partition, replica_id: int, size_bytes: int) -> None:
        """Records went to a follower."""
        self.bytes_out += size_bytes
        if replica_id in partition.adding_replicas:
            self.reassignment_bytes_out += size_bytes
        if partition.leader_throttled:
            self.leader.record(size_bytes)

    def copied(self, partition: Partition, size_bytes: int) -> None:
        """Records came from the leader."""
        self.bytes_in += size_bytes
        if partition.node_id in partition.adding_replicas:
            self.reassignment_bytes_in += size_bytes
        if partition.follower_throttled:
            self.follower.record(size_bytes)
