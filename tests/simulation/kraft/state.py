"""What the records of a metadata log come to, as a controller has it: the model's own reading of them.

Every PartitionChangeRecord raises the partition epoch, one that names a leader the leader epoch as well; a
ClearElrRecord raises the partition epochs of what had an ELR.  What brokers make of the same records is held against
this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kbroker.metadata.image import PartitionImage
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SAME_LEADER, SAME_RECOVERY = -2, -1
MIN_IN_SYNC = "min.insync.replicas"
VERSIONS = {
    "RegisterBrokerRecord": 3,
    "BrokerRegistrationChangeRecord": 2,
    "PartitionRecord": 2,
    "PartitionChangeRecord": 2,
}
Name = tuple[str, int]
Seen = tuple[dict[Name, tuple[object, ...]], dict[int, tuple[object, ...]], dict[str, dict[str, str]]]
"""Of an image: partitions, brokers, settings of topics."""


def record_of(value: Any) -> MetadataRecord:
    """A record in the version that controllers of metadata.version 30 write."""
    return metadata_record(value, VERSIONS.get(type(value).__name__, 0))


@dataclass(frozen=True, slots=True)
class Member:
    """A broker as it has registered."""

    value: wire.RegisterBrokerRecord
    offset: int
    """Of the record."""
    is_fenced: bool = True
    is_leaving: bool = False
    log_dirs: tuple[bytes, ...] = ()

    @property
    def epoch(self) -> int:
        return self.value.broker_epoch


@dataclass(slots=True)
class TopicState:
    """One topic."""

    name: str
    topic_id: bytes
    configs: dict[str, str] = field(default_factory=dict)
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


class MetadataState:
    """By so many records."""

    def __init__(self) -> None:
        self.topics: dict[bytes, TopicState] = {}
        self.names: dict[str, bytes] = {}
        self.members: dict[int, Member] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.quotas: dict[str, wire.ClientQuotaRecord] = {}
        self.next_producer_id = 0

    def copied(self) -> MetadataState:
        """Another one that is the same by now."""
        made = MetadataState()
        made.topics = {
            each.topic_id: TopicState(each.name, each.topic_id, dict(each.configs), dict(each.partitions))
            for each in self.topics.values()
        }
        made.names, made.members, made.features = dict(self.names), dict(self.members), dict(self.features)
        made.configs = {resource: dict(values) for resource, values in self.configs.items()}
        made.quotas, made.next_producer_id = dict(self.quotas), self.next_producer_id
        return made

    def topic(self, name: str) -> TopicState | None:
        """By its name."""
        topic_id = self.names.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partitions(self) -> Iterator[tuple[TopicState, PartitionImage]]:
        """All of them."""
        for topic in self.topics.values():
            for each in topic.partitions.values():
                yield topic, each

    def alive(self) -> frozenset[int]:
        """The brokers that may lead."""
        return frozenset(node for node, each in self.members.items() if not each.is_fenced and not each.is_leaving)

    # Records

    def apply(self, record: MetadataRecord, offset: int) -> None:
        """Take one, which is at that offset."""
        match record.value:
            case wire.PartitionChangeRecord() as value:
                self._change(value)
            case wire.PartitionRecord() as value:
                self.topics[bytes(value.topic_id)].partitions[value.partition_id] = _partition(value)
            case wire.TopicRecord() as value:
                topic_id = bytes(value.topic_id)
                self.topics[topic_id], self.names[value.name] = TopicState(value.name, topic_id), topic_id
            case wire.RemoveTopicRecord() as value:
                del self.names[self.topics.pop(bytes(value.topic_id)).name]
            case wire.ConfigRecord() as value:
                self._configure(value)
            case wire.ClearElrRecord() as value:
                self._clear_elr(value.topic_name)
            case wire.RegisterBrokerRecord() as value:
                self.members[value.broker_id] = Member(
                    value, offset, value.fenced, value.in_controlled_shutdown, tuple(map(bytes, value.log_dirs))
                )
            case wire.BrokerRegistrationChangeRecord() as value:
                self._change_member(value)
            case wire.UnregisterBrokerRecord() as value:
                del self.members[value.broker_id]
            case wire.FeatureLevelRecord() as value:
                self.features[value.name] = value.feature_level
            case wire.ProducerIdsRecord() as value:
                self.next_producer_id = value.next_producer_id
            case wire.ClientQuotaRecord() as value:
                self.quotas[repr((value.entity, value.key))] = value

    def _change(self, value: wire.PartitionChangeRecord) -> None:
        rows = self.topics[bytes(value.topic_id)].partitions
        old = rows[value.partition_id]

        def taken(given: Iterable[Any] | None, before: tuple[Any, ...]) -> tuple[Any, ...]:
            return before if given is None else tuple(given)

        names_leader = value.leader != SAME_LEADER
        rows[value.partition_id] = replace(
            old,
            leader=value.leader if names_leader else old.leader,
            leader_epoch=old.leader_epoch + names_leader,
            partition_epoch=old.partition_epoch + 1,
            replicas=taken(value.replicas, old.replicas),
            isr=taken(value.isr, old.isr),
            adding_replicas=taken(value.adding_replicas, old.adding_replicas),
            removing_replicas=taken(value.removing_replicas, old.removing_replicas),
            elr=taken(value.eligible_leader_replicas, old.elr),
            last_known_elr=taken(value.last_known_elr, old.last_known_elr),
            directories=taken(value.directories, old.directories),
            leader_recovery_state=(
                old.leader_recovery_state
                if value.leader_recovery_state == SAME_RECOVERY
                else value.leader_recovery_state
            ),
        )

    def _configure(self, value: wire.ConfigRecord) -> None:
        if value.resource_type == TOPIC_RESOURCE:
            configs = self.topics[self.names[value.resource_name]].configs
        else:
            configs = self.configs.setdefault((value.resource_type, value.resource_name), {})
        if value.value is None:
            configs.pop(value.name, None)
        else:
            configs[value.name] = value.value

    def _clear_elr(self, name: str) -> None:
        for topic in [self.topics[self.names[name]]] if name else self.topics.values():
            for number, each in topic.partitions.items():
                if each.elr or each.last_known_elr:
                    topic.partitions[number] = replace(
                        each, elr=(), last_known_elr=(), partition_epoch=each.partition_epoch + 1
                    )

    def _change_member(self, value: wire.BrokerRegistrationChangeRecord) -> None:
        old = self.members[value.broker_id]
        self.members[value.broker_id] = replace(
            old,
            is_fenced=old.is_fenced if value.fenced == 0 else value.fenced > 0,
            is_leaving=old.is_leaving or value.in_controlled_shutdown > 0,
            log_dirs=tuple(map(bytes, value.log_dirs)) if value.log_dirs else old.log_dirs,
        )

    def records(self) -> list[MetadataRecord]:
        """Those that come to the same from nothing, as a snapshot has them."""
        found: list[Any] = [
            wire.FeatureLevelRecord(name=name, feature_level=level) for name, level in self.features.items()
        ]
        for member in self.members.values():
            found.append(_registration(member))
        for topic in self.topics.values():
            found.append(wire.TopicRecord(name=topic.name, topic_id=topic.topic_id))
            found += [partition_record(topic.topic_id, each) for each in topic.partitions.values()]
            found += [_config(TOPIC_RESOURCE, topic.name, *each) for each in topic.configs.items()]
        for (kind, name), values in self.configs.items():
            found += [_config(kind, name, *each) for each in values.items()]
        found += self.quotas.values()
        found.append(wire.ProducerIdsRecord(broker_id=1, broker_epoch=-1, next_producer_id=self.next_producer_id))
        return [record_of(each) for each in found]

    def seen(self) -> Seen:
        """What images of brokers have of it."""
        rows = {(topic.name, each.partition): _row(topic.topic_id, each) for topic, each in self.partitions()}
        members: dict[int, tuple[object, ...]] = {
            node: (each.epoch, each.is_fenced, each.is_leaving) for node, each in self.members.items()
        }
        return rows, members, {each.name: dict(each.configs) for each in self.topics.values()}


def seen_of(image: ClusterImage) -> Seen:
    """The same of a broker's image."""
    rows = {
        (topic.name, each.partition): _row(topic.topic_id, each)
        for topic in image.topics.values()
        for each in topic.partitions
    }
    members: dict[int, tuple[object, ...]] = {
        node: (each.epoch, each.is_fenced, each.in_controlled_shutdown) for node, each in image.brokers.items()
    }
    return rows, members, {each.name: dict(each.configs) for each in image.topics.values()}


def _row(topic_id: bytes, each: PartitionImage) -> tuple[object, ...]:
    return (
        topic_id,
        each.leader,
        each.leader_epoch,
        each.partition_epoch,
        each.replicas,
        each.isr,
        each.elr,
        each.last_known_elr,
        each.adding_replicas,
        each.removing_replicas,
        each.directories,
    )


def _partition(value: wire.PartitionRecord) -> PartitionImage:
    return PartitionImage(
        value.partition_id,
        value.leader,
        value.leader_epoch,
        tuple(value.replicas),
        tuple(value.isr),
        value.partition_epoch,
        (),
        tuple(value.adding_replicas),
        tuple(value.removing_replicas),
        tuple(value.eligible_leader_replicas or ()),
        tuple(value.last_known_elr or ()),
        tuple(map(bytes, value.directories)),
        value.leader_recovery_state,
    )


def partition_record(topic_id: bytes, each: PartitionImage) -> wire.PartitionRecord:
    """What makes a partition as it is."""
    return wire.PartitionRecord(
        partition_id=each.partition,
        topic_id=topic_id,
        replicas=list(each.replicas),
        isr=list(each.isr),
        removing_replicas=list(each.removing_replicas),
        adding_replicas=list(each.adding_replicas),
        leader=each.leader,
        leader_recovery_state=each.leader_recovery_state,
        leader_epoch=each.leader_epoch,
        partition_epoch=each.partition_epoch,
        directories=list(each.directories),
        eligible_leader_replicas=list(each.elr) or None,
        last_known_elr=list(each.last_known_elr) or None,
    )


def change_record(topic_id: bytes, old: PartitionImage, new: PartitionImage) -> wire.PartitionChangeRecord:
    """What makes one of the other."""

    def given(before: tuple[Any, ...], after: tuple[Any, ...]) -> list[Any] | None:
        return None if before == after else list(after)

    return wire.PartitionChangeRecord(
        partition_id=old.partition,
        topic_id=topic_id,
        isr=given(old.isr, new.isr),
        leader=SAME_LEADER if old.leader_epoch == new.leader_epoch else new.leader,
        replicas=given(old.replicas, new.replicas),
        removing_replicas=given(old.removing_replicas, new.removing_replicas),
        adding_replicas=given(old.adding_replicas, new.adding_replicas),
        leader_recovery_state=(
            SAME_RECOVERY if old.leader_recovery_state == new.leader_recovery_state else new.leader_recovery_state
        ),
        directories=given(old.directories, new.directories),
        eligible_leader_replicas=given(old.elr, new.elr),
        last_known_elr=given(old.last_known_elr, new.last_known_elr),
    )


def _registration(member: Member) -> wire.RegisterBrokerRecord:
    value = member.value
    return wire.RegisterBrokerRecord(
        broker_id=value.broker_id,
        incarnation_id=value.incarnation_id,
        broker_epoch=value.broker_epoch,
        end_points=value.end_points,
        features=value.features,
        rack=value.rack,
        fenced=member.is_fenced,
        in_controlled_shutdown=member.is_leaving,
        log_dirs=list(member.log_dirs),
    )


def _config(kind: int, resource: str, name: str, value: str) -> wire.ConfigRecord:
    return wire.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
