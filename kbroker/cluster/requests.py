"""What can be asked of a controller and what comes of it: plain values, free of the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from kbroker.errors import KafkaError
from kbroker.metadata.image import ConfigResource, PartitionImage, TopicImage
from kbroker.types import ZERO_UUID, TopicPartition

DEFAULT = -1
NO_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.  `assignments` pairs partition numbers with node ids; empty means that brokers are chosen.

    A config without a value is None, which Kafka refuses.
    """

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic to grow to `count` partitions.  `assignments` has the replicas of each added one, or is None."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What became of one topic of a request: `topic` as it is now (or would be), or the error."""

    name: str
    topic: TopicImage | None = None
    error: KafkaError | None = None


class EditOperation(IntEnum):
    """What to do with one setting, as Kafka numbers it."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """One setting of a request.  `value` is empty where the operation has none."""

    name: str
    operation: EditOperation
    value: str = ""


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """Settings of one resource to change; with `replace` those not named go back to their defaults."""

    resource: ConfigResource
    edits: Sequence[ConfigEdit]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class BrokerEpoch:
    """A broker as it speaks to the controller: of an older epoch than the registered one, it is refused."""

    node_id: int
    epoch: int = NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The ISR that the leader of a partition proposes, with the epochs that it knows.

    `isr` pairs node ids with broker epochs (-1: not known).  A topic id of zeros is not known.
    `leader_recovery_state`: whether the leader still recovers from an unclean election (KIP-704).
    """

    partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    topic_id: bytes = ZERO_UUID
    leader_recovery_state: int = 0


class ElectionType(IntEnum):
    """Which leader is wanted, as Kafka numbers it."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas that a partition is to have; None calls a reassignment off."""

    partition: TopicPartition
    replicas: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What became of one partition of a request: its image as it is now, or the error."""

    partition: TopicPartition
    image: PartitionImage | None = None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a broker has found out about its replicas.

    `offline`: those whose log directory has failed.  `online`: those that have a log again, or whose log may have lost
    records (`unclean`), with the newest leader epoch that the log holds.
    """

    offline: frozenset[TopicPartition] = frozenset()
    online: Mapping[TopicPartition, int] = field(default_factory=dict)
    unclean: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class HeldLog:
    """How far a replica's log goes after a start: the newest leader epoch that it holds, and its end; -1 and -1 where
    there is no log.

    `is_unclean`: the broker did not shut down cleanly, so records that were not on disk yet may be lost.  `is_cut`: the
    start has found that the log ends before records that it had, however the broker was stopped.
    """

    epoch: int
    end: int
    is_unclean: bool
    is_cut: bool = False
