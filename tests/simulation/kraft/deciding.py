"""What an active controller of the model decides on brokers and partitions, as records of one batch.

ISRs, ELRs and elections are by kbroker's own pure rules for controllers (`cluster.partitions`), which no broker of a
KRaft cluster has a part in; what is decided of brokers is the model's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kbroker.cluster.partitions import PartitionContext, change
from kbroker.metadata.image import NO_LEADER, PartitionImage
from kbroker.metadata.metadata_record import MetadataRecord
from kbroker.schemas import wire
from tests.simulation.kraft.state import (
    BROKER_RESOURCE,
    MIN_IN_SYNC,
    Member,
    MetadataState,
    TopicState,
    change_record,
    record_of,
)

ELR = "eligible.leader.replicas.version"
MIGRATING, UNASSIGNED = bytes(16), bytes(15) + b"\1"
RECOVERED, RECOVERING = 0, 1


class Batch:
    """The records of one decision, each of which counts for the next at once."""

    def __init__(self, state: MetadataState, base: int) -> None:
        """`base`: the offset of the first record."""
        self.state = state
        self.base = base
        self.records: list[MetadataRecord] = []

    def put(self, value: Any) -> None:
        """One more record."""
        record = record_of(value)
        self.state.apply(record, self.base + len(self.records))
        self.records.append(record)

    # Partitions

    def context(self, topic: TopicState, without: int = 0) -> PartitionContext:
        """What counts for the partitions of a topic; `without`: a broker that is going."""
        state = self.state
        own = topic.configs.get(MIN_IN_SYNC) or state.configs.get((BROKER_RESOURCE, ""), {}).get(MIN_IN_SYNC, "1")
        least = min(int(own), len(topic.partitions[0].replicas))
        return PartitionContext(state.alive() - {without}, least, state.features.get(ELR, 0) > 0)

    def viewed(self, each: PartitionImage) -> PartitionImage:
        """With the replicas whose directory does not work."""
        members = self.state.members
        offline = tuple(
            replica
            for replica, directory in zip(each.replicas, each.directories, strict=False)
            if directory not in (MIGRATING, UNASSIGNED)
            and replica in members
            and directory not in members[replica].log_dirs
        )
        return replace(each, offline_replicas=offline) if offline else each

    def alter(self, topic: TopicState, old: PartitionImage, new: PartitionImage) -> PartitionImage:
        """Write the record that makes one of the other, if they differ; the partition by now."""
        is_elected = new.leader != NO_LEADER and new.leader != old.leader
        if is_elected and new.leader not in (*old.isr, *old.elr):
            new = replace(new, leader_recovery_state=RECOVERING)
        new = replace(new, offline_replicas=(), directories=self.directories(new.replicas, old))
        if new != replace(old, offline_replicas=()):
            self.put(change_record(topic.topic_id, old, new))
        now = topic.partitions[old.partition]
        assert (now.leader, now.isr, now.leader_epoch) == (new.leader, new.isr, new.leader_epoch), (now, new)
        return now

    def directories(self, replicas: Sequence[int], old: PartitionImage | None = None) -> tuple[bytes, ...]:
        """Those of replicas: as known, else the only one of the broker, else not known yet."""
        known = {} if old is None else dict(zip(old.replicas, old.directories, strict=False))

        def place(replica: int) -> bytes:
            member = self.state.members.get(replica)
            return member.log_dirs[0] if member is not None and len(member.log_dirs) == 1 else UNASSIGNED

        return tuple(known.get(each) or place(each) for each in replicas)

    # Brokers

    def _leave_isrs(self, node: int, *, is_unclean: bool = False) -> None:
        for topic, each in list(self.state.partitions()):
            if node not in each.isr and not (is_unclean and node in each.elr) and each.leader != node:
                continue
            isr = [member for member in each.isr if member != node]
            unclean = (node,) if is_unclean else ()
            new = change(self.viewed(each), self.context(topic, node), isr=isr, unclean=unclean)
            self.alter(topic, each, new)

    def register(self, request: wire.BrokerRegistrationRequest) -> None:
        """A broker begins a life."""
        node, before = request.broker_id, self.state.members.get(request.broker_id)
        if before is not None:
            is_clean = request.previous_broker_epoch == before.epoch
            has_elr = self.state.features.get(ELR, 0) > 0
            self._leave_isrs(node, is_unclean=has_elr and not is_clean)
        record = wire.RegisterBrokerRecord
        self.put(
            record(
                broker_id=node,
                incarnation_id=request.incarnation_id,
                broker_epoch=self.base,
                end_points=[
                    record.BrokerEndpoint(
                        name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                    )
                    for each in request.listeners
                ],
                features=[
                    record.BrokerFeature(
                        name=each.name,
                        min_supported_version=each.min_supported_version,
                        max_supported_version=each.max_supported_version,
                    )
                    for each in request.features
                ],
                rack=request.rack,
                fenced=True,
                log_dirs=request.log_dirs,
            )
        )

    def fence(self, node: int) -> None:
        """A broker is gone: it leads nothing, and is in sync with nobody."""
        self._leave_isrs(node)
        self._change_member(node, fenced=1)

    def unfence(self, node: int) -> None:
        """A broker is there: it may lead what nobody leads."""
        self._change_member(node, fenced=-1)
        for topic, each in list(self.state.partitions()):
            if each.leader == NO_LEADER:
                self.alter(topic, each, change(self.viewed(each), self.context(topic)))

    def begin_leaving(self, node: int) -> None:
        """A broker wants to go: others lead from now on."""
        self._change_member(node, in_controlled_shutdown=1)
        self._leave_isrs(node)

    def lose_directories(self, node: int, lost: Iterable[bytes]) -> None:
        """Log directories of a broker have failed."""
        lost, member = set(lost), self.state.members[node]
        left = [each for each in member.log_dirs if each not in lost]
        self._change_member(node, log_dirs=left)
        for topic, each in list(self.state.partitions()):
            self.leave_if_lost(node, topic, each)

    def leave_if_lost(self, node: int, topic: TopicState, each: PartitionImage) -> None:
        """A replica in a directory that does not work neither leads nor is in sync."""
        view = self.viewed(each)
        if node in view.offline_replicas:
            isr = [member for member in each.isr if member != node]
            self.alter(topic, each, change(view, self.context(topic), isr=isr))

    def _change_member(self, node: int, **fields: Any) -> None:
        epoch = self.member(node).epoch
        self.put(wire.BrokerRegistrationChangeRecord(broker_id=node, broker_epoch=epoch, **fields))

    def member(self, node: int) -> Member:
        """A broker that has registered."""
        return self.state.members[node]

    def leads_something(self, node: int) -> bool:
        """Whether a broker leads any partition."""
        return any(each.leader == node for _, each in self.state.partitions())
