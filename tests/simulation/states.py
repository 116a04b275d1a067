"""The judge of what brokers hold in memory and on disk: rules of Kafka's replication that no answer shows at once.

DecodedRecord at between turns of the loop, and before a broker goes:

log start ≤ last stable offset ≤ high watermark ≤ log end; leader epochs ascend; no batch of a producer lies behind that
neither the high watermark of a leader nor the end of its log falls in its epoch
no replica of the ISR in force ends before the high watermark of its leader
no leader takes a follower in its epoch for further than that follower's log goes, nor its log for one that starts later
no replica takes for committed what no leader has; what is committed is the same bytes on every replica
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.metadata.topic_names import is_internal
from kbroker.replication.partition import Partition, Role

if TYPE_CHECKING:
    from kbroker.storage.log.unified_log import UnifiedLog
    from tests.simulation.several import Several

MOST_BYTES = 1 << 26
HEAD, DELTA = struct.Struct(">qi"), struct.Struct(">i")
MAGIC, MAGIC_AT, DELTA_AT = 2, 16, 23
Name = tuple[str, int, bytes]
"""Topic, partition and topic id."""


@dataclass(slots=True)
class _Known:
    """What is known of one partition."""

    committed: int = 0
    """The highest high watermark that a leader had."""
    batches: dict[int, int] = field(default_factory=dict)
    """The checksum of each committed batch, by its first offset."""
    leaders: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """The high watermark of the leader of an epoch, by broker, how often that has crashed, and epoch."""
    ends: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """The end of its log."""


@dataclass(slots=True)
class _Compared:
    """Up to where a replica was compared, with the log that it was in."""

    log: object
    end: int


@dataclass(frozen=True, slots=True)
class _Belief:
    """What a leader takes for a follower's log; told in one life of each of them, and in one epoch."""

    end: int
    start: int
    epoch: int
    leader_crashes: int
    crashes: int


class States:
    """Of one cluster."""

    def __init__(self, world: Several) -> None:
        self._world = world
        self._known: dict[Name, _Known] = {}
        self._compared: dict[tuple[int, Name], _Compared] = {}
        self._led: list[tuple[Partition, UnifiedLog]] = []
        """What was led at the last look, or is led by a broker that stops: the replica and the log it had."""
        self.cut: set[tuple[int, str, int]] = set()
        """Replicas of which a disk has lost the end while their host was stopped, until they have caught up."""
        self._epochs: dict[tuple[int, Name], int] = {}
        """The epoch of each broker's replica at the last look."""
        self._beliefs: dict[tuple[int, Name, int], _Belief] = {}

    def look(self) -> None:
        """Hold all replicas against the rules.  ViolationError."""
        brokers = self._world.brokers
        found = [(node, each, self._name(each)) for node in brokers for each in self._replicas(node)]
        for partition, log in self._led:
            # Until the broker learnt that another leads it may have committed more, and may have told that.
            self._leader_had(self._name(partition), log.high_watermark)
        for node, partition, name in found:
            self._in_itself(node, partition)
            if partition.role is Role.LEADER:
                self._leads(node, partition, name)
                if self._world.names_epochs and self._stays(partition.topic):
                    self._believes(node, partition, name)
            elif self._may_have_led(node, partition, name):
                self._leader_had(name, partition.log.high_watermark)
        # A broker that stops serves, and commits, until it has stopped.
        leaving = [(each, log) for each, log in self._led if each.node_id not in brokers]
        self._led = [*leaving, *((each, each.log) for _, each, _ in found if each.role is Role.LEADER)]
        self._epochs = {(node, name): each.leader_epoch for node, each, name in found}
        # Followers learn what is committed from any of these: all of them come first.
        for node, partition, name in found:
            # A leader that is told to move or to be deleted may have come and gone since the last look.
            if self._stays(partition.topic):
                self._is_committed(node, partition, name)

    def committed(self, partition: Partition) -> int:
        """The highest offset that a leader of it has taken for committed."""
        known = self._known.get(self._name(partition))
        return 0 if known is None else known.committed

    def compare(self, node: int) -> None:
        """Hold what a broker takes for committed against what others did."""
        for partition in self._replicas(node):
            if partition.topic in self._world.topics:
                self._compare(node, partition)

    def _stays(self, topic: str) -> bool:
        """Whether there is one topic of that name for all of the history, which may get its id later."""
        return topic in self._world.topics or topic in self._world.lasting_topics or is_internal(topic)

    def _name(self, partition: Partition) -> Name:
        return partition.topic, partition.index, b"" if self._stays(partition.topic) else partition.topic_id

    def _replicas(self, node: int) -> list[Partition]:
        manager = self._world.brokers[node].services.replica_manager
        return [*manager, *manager.followed.values()]

    def _fail(self, node: int, partition: Partition, what: str) -> None:
        self._world.judge.fail(f"broker {node}, {partition} in epoch {partition.leader_epoch}: {what}")

    def _in_itself(self, node: int, partition: Partition) -> None:
        log = partition.log
        offsets = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
        start, stable, high, end = offsets
        if not start <= stable <= high <= end:
            self._fail(node, partition, f"log start, last stable offset, high watermark and log end are {offsets}")
        epochs = log.leader_epoch_cache
        if not (_ascend(epochs._epochs) and _ascend(epochs._starts)):
            self._fail(node, partition, f"leader epochs {epochs._epochs} start at {epochs._starts}")
        producers = log.producer_state.producers
        for entry in producers.values() if producers else ():
            if entry.last_offset >= end:
                self._fail(node, partition, f"producer {entry.producer_id} has {entry.last_offset}, the end is {end}")

    def _known_of(self, name: Name) -> _Known:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = _Known()
        return found

    def _leader_had(self, name: Name, high_watermark: int) -> None:
        known = self._known_of(name)
        if high_watermark > known.committed:
            known.committed = high_watermark

    def _may_have_led(self, node: int, partition: Partition, name: Name) -> bool:
        """Whether a follower may have come to lead, and ceased to, since the last look: in an epoch between two."""
        before = self._epochs.get((node, name))
        return before is None or partition.leader_epoch not in (before, before + 1)

    def _leads(self, node: int, partition: Partition, name: Name) -> None:
        high = partition.log.high_watermark
        known = self._known_of(name)
        term = (node, self._world.crashes.get(node, 0), partition.leader_epoch)
        if high < known.leaders.get(term, 0):
            self._fail(node, partition, f"the leader's high watermark falls from {known.leaders[term]} to {high}")
        known.leaders[term] = high
        end = partition.log.log_end_offset
        # Of a disk that fails, or fills up, what was written in part is taken back.
        if end < known.ends.get(term, 0) and not self._world.disks.take_part:
            self._fail(node, partition, f"the log of the leader is cut from {known.ends[term]} to {end}")
        known.ends[term] = end
        self._leader_had(name, high)
        if not self._stays(partition.topic):
            return  # What is in force may be about another topic of that name.
        leader, epoch, isr = self._world.in_force(*name[:2])
        if (leader, epoch) != (node, partition.leader_epoch) or not self._world.cuts_by_epochs(partition.topic):
            return
        for each in isr:
            broker = self._world.brokers.get(each)
            replica = None if broker is None else broker.services.replica_manager.hosted(partition.topic_partition)
            if broker is None or replica is None or broker.log_manager.failures.is_offline(replica.log.parent):
                continue  # What a disk has that has failed is cut back, and not served any more.
            lost = (each, *name[:2])
            if replica.log.log_end_offset >= high:
                self.cut.discard(lost)
            elif lost not in self.cut:
                self._fail(
                    node,
                    partition,
                    f"{high} is committed, of the ISR {isr} broker {each} ends at {replica.log.log_end_offset}",
                )

    def _believes(self, node: int, partition: Partition, name: Name) -> None:
        """What a leader has been told of a follower in its epoch stays true: nobody cuts a log there but in a later
        one.  A follower that has crashed may have lost something since, and tells so with its next fetch.  Before
        Fetch 9 it names no epoch, and may be believed what it had in another, as by Apache Kafka
        (`tests/compat/test_deposed_leaders.py`)."""
        crashes, brokers = self._world.crashes, self._world.brokers
        for each, follower in partition.followers.items():
            end, start = follower.log_end_offset, follower.log_start_offset
            if end < 0:
                continue
            key = (node, name, each)
            told = (end, start, partition.leader_epoch, crashes.get(node, 0))
            before = self._beliefs.get(key)
            if before is None or (before.end, before.start, before.epoch, before.leader_crashes) != told:
                before = self._beliefs[key] = _Belief(*told, crashes.get(each, 0))
            broker = brokers.get(each)
            if broker is None or before.crashes != crashes.get(each, 0) or self._world.disks.take_part:
                continue
            replica = broker.services.replica_manager.hosted(partition.topic_partition)
            if replica is None or replica.leader_epoch != partition.leader_epoch:
                continue
            log = replica.log
            if log.log_end_offset < end or log.log_start_offset < start:
                self._fail(
                    node,
                    partition,
                    f"broker {each} is taken to have {start} to {end}, "
                    f"and has {log.log_start_offset} to {log.log_end_offset}",
                )

    def _is_committed(self, node: int, partition: Partition, name: Name) -> None:
        high = partition.log.high_watermark
        if high > self._known_of(name).committed:
            self._fail(node, partition, f"{high} is committed, and no leader had that")

    def _compare(self, node: int, partition: Partition) -> None:
        name, log = self._name(partition), partition.log
        known = self._known_of(name).batches
        compared = self._compared.get((node, name))
        if compared is None or compared.log is not log:
            compared = self._compared[node, name] = _Compared(log, log.log_start_offset)
        high = log.high_watermark
        if compared.end >= high:
            return
        while compared.end < high and (data := memoryview(log.read_bytes(compared.end, MOST_BYTES))):
            position = 0
            while position < len(data):
                base, size = HEAD.unpack_from(data, position)
                if base >= high:
                    return
                end = position + HEAD.size + size
                crc = zlib.crc32(data[position:end])
                if known.setdefault(base, crc) != crc:
                    self._fail(node, partition, f"the committed batch at {base} is not that of other replicas")
                last = 0 if data[position + MAGIC_AT] < MAGIC else DELTA.unpack_from(data, position + DELTA_AT)[0]
                compared.end = base + last + 1
                position = end


def _ascend(numbers: list[int]) -> bool:
    """Whether each is above the one before it."""
    return len(numbers) < 2 or numbers == sorted(set(numbers))


__all__ = ["States"]
