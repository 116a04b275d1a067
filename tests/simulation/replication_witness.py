"""What answers may say of replication, by what can be seen inside the brokers when they come.

acks=all       so many brokers have the record as the topic asks for
deleted        what DeleteRecords has deleted is gone from all replicas that are alive
acks=1         what a leader gives in one epoch of its goes up
UNKNOWN_…      a broker that has learnt of a topic does not forget it, while nobody deletes it

`Witness` has nobody to look into: one broker alone, or real ones.  `ClusterWitness` sees all brokers of a history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.error_codes import ErrorCode
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.judge import Partition
    from tests.simulation.several import Several
    from tests.simulation.world import World

NEVER = float("-inf")
FORGETFUL_SECONDS = 10.0
MIN_IN_SYNC = "min.insync.replicas"
TOO_FEW = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class Term:
    """A leader's time in one epoch, from a start of its process to the end of that."""

    partition: Partition
    node: int
    crashes: int
    epoch: int


class Witness:
    """Sees nothing."""

    def term(self, node: int, partition: Partition) -> Term | None:
        """In which a broker leads a partition now; None where that is not known."""
        return None

    def floor(self, term: Term | None) -> int:
        """What was acknowledged in a term ends there."""
        return 0

    def is_stored(self, who: str, partition: Partition, sent: Term | None, floor: int, base: int, count: int) -> None:
        """A leader says that a batch which was sent in a term is stored.  ViolationError where that goes back."""

    def is_held(self, who: str, partition: Partition, last_offset: int, since: float) -> None:
        """acks=all was answered without an error: ViolationError where too few have the record."""

    def is_deleted(self, who: str, partition: Partition, offset: int, since: float) -> None:
        """DeleteRecords was answered without an error: ViolationError where a replica begins below the offset."""

    def excuses(self, code: int, partition: Partition, node: int, since: float, acks: int = 0) -> bool:
        """Whether a broker may have said this to a request that was sent then."""
        return True


class ClusterWitness(Witness):
    """Sees the brokers of a cluster."""

    def __init__(self, world: Several) -> None:
        self._world = world
        self._ends: dict[Term, int] = {}
        self._learnt: dict[tuple[int, int, str], float] = {}
        """When a process of a broker was first seen to know a topic."""
        self._unknown_at: dict[tuple[int, int], float] = {}
        """When a broker was last seen to take another one for gone."""

    def look(self) -> None:
        """Note who knows which topics by now, and which brokers."""
        world, now = self._world, self._world.loop.time()
        for node, broker in world.brokers.items():
            cache, crashes = broker.services.metadata_cache, world.crashes.get(node, 0)
            for name in world.topics:
                if (node, crashes, name) not in self._learnt and cache.topic(name) is not None:
                    self._learnt[node, crashes, name] = now
            known = cache.image.brokers
            for other in world.nodes:
                found = known.get(other)
                if found is None or found.is_fenced:
                    self._unknown_at[node, other] = now

    def term(self, node: int, partition: Partition) -> Term | None:
        broker = self._world.brokers.get(node)
        found = None if broker is None else broker.services.replica_manager.topics.get(partition[0], {})
        replica = None if found is None else found.get(partition[1])
        if replica is None:
            return None
        return Term(partition, node, self._world.crashes.get(node, 0), replica.leader_epoch)

    def floor(self, term: Term | None) -> int:
        return 0 if term is None else self._ends.get(term, 0)

    def is_stored(self, who: str, partition: Partition, sent: Term | None, floor: int, base: int, count: int) -> None:
        if sent is None or self.term(sent.node, partition) != sent:
            return
        if base < floor:
            self._world.judge.fail(f"{who}: {partition} gives offset {base}, and had given {floor - 1} in {sent}")
        self._ends[sent] = max(self._ends.get(sent, 0), base + count)

    def is_held(self, who: str, partition: Partition, last_offset: int, since: float) -> None:
        world = self._world
        if not world.cuts_by_epochs(partition[0]):
            return  # A follower drops what it does not know to be committed, and gets it again (KIP-101).
        least = min(self._limits(partition[0]))
        found = holders(world, partition, last_offset, since)
        if len(found) < least:
            world.judge.fail(
                f"{who}: offset {last_offset} of {partition} is acknowledged, and of brokers {found} only, where "
                f"{least} are to have it"
            )

    def is_deleted(self, who: str, partition: Partition, offset: int, since: float) -> None:
        world = self._world
        leaders = [node for node in world.nodes if self.term(node, partition) is not None]
        for node, broker in world.brokers.items():
            replica = broker.services.replica_manager.hosted(TopicPartition(*partition))
            # One that has crashed may have lost it, and has yet to say so; for one that is gone nobody has waited.
            has_lost = world.crashed_at.get(node, NEVER) >= since - FORGETFUL_SECONDS or world.disks.take_part
            was_gone = any(self._unknown_at.get((leader, node), NEVER) >= since for leader in leaders)
            if replica is None or has_lost or was_gone or not leaders:
                continue
            if replica.log.log_start_offset < offset:
                world.judge.fail(
                    f"{who}: {partition} is deleted below {offset}, and begins at {replica.log.log_start_offset} on "
                    f"broker {node}"
                )

    def _limits(self, name: str) -> Iterable[int]:
        """What `min.insync.replicas` may be: of a topic without it its leader's, never more than it has replicas."""
        topic = self._world.topics[name]
        own = [topic.min_in_sync] if topic.min_in_sync else own_limits(self._world)
        return [min(each, topic.replicas) for each in own]

    def excuses(self, code: int, partition: Partition, node: int, since: float, acks: int = 0) -> bool:
        world = self._world
        if code in TOO_FEW:
            return acks == -1 and max(self._limits(partition[0])) > 1 and (world.may_lose_leaders or world.may_lag)
        if code in UNKNOWN:
            known = self._learnt.get((node, world.crashes.get(node, 0), partition[0]))
            return known is None or since <= known
        return True


def own_limits(world: World) -> list[int]:
    """What brokers themselves are set to."""
    return [int(world.setting(node, MIN_IN_SYNC) or 1) for node in world.nodes]


def holders(world: World, partition: Partition, last_offset: int, since: float) -> list[int]:
    """The brokers that have a record, or may have had it when it was acknowledged."""
    found = []
    for node in world.nodes:
        if world.crashed_at.get(node, NEVER) >= since:
            found.append(node)
            continue
        # One that starts may be in an ISR before its start has come to its end.
        broker = world.brokers.get(node) or world.starting.get(node)
        replicas = getattr(broker, "replicas", None)
        replica = None if replicas is None else replicas.hosted(TopicPartition(*partition))
        if replica is None:
            # Where disks fail, it may be lost by now with its disk, and a broker halt for that.
            if world.disks.take_part:
                found.append(node)
        elif replica.log.log_end_offset > last_offset:
            found.append(node)
    return found


__all__ = ["ClusterWitness", "Term", "Witness", "holders", "own_limits"]
