"""What can be asked of the topic manager and what comes of it: plain values, free of the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kbroker.errors import KafkaError
from kbroker.metadata.image import TopicImage

DEFAULT = -1


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
