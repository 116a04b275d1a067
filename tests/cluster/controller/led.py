"""An active controller over a stand-in of the quorum's log, and brokers that register with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbroker._fast.base.slices import Slices
from kbroker.cluster.controller.active import ActiveController
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata, empty_image
from kbroker.cluster.requests import (
    BrokerEpoch,
    ConfigAlteration,
    ConfigEdit,
    EditOperation,
    IsrChange,
    NewTopic,
)
from kbroker.config import BrokerConfig
from kbroker.error_codes import ErrorCode
from kbroker.errors import KafkaError, NotControllerError
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from kbroker.metadata.image import ConfigResource, PartitionImage
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.cluster.kraft.controllers import data_batch
from tests.unbroken import UNBROKEN, finished

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
NODE_ID = 3001
LEVEL = 30
RANGES = {
    METADATA_VERSION: (7, 30),
    "kraft.version": (0, 1),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}


def bootstrap(level: int = LEVEL, *, elr: int = 1) -> list[MetadataRecord]:
    """The records that a new cluster begins with."""
    levels = {METADATA_VERSION: level, **({ELIGIBLE_LEADER_REPLICAS: elr} if elr else {})}
    made = [wire.FeatureLevelRecord(name=name, feature_level=each) for name, each in levels.items()]
    return [metadata_record(each) for each in made]


class StandInLog:
    """The log of a leader, which commits as far as a test says; `holds` None: all, when a caller waits for it."""

    def __init__(
        self, metadata: ClusterMetadata, epoch: int = 1, holds: int | None = None, start: int | None = None
    ) -> None:
        """`start`: the end of the log, of which `metadata` has all; it may be in an open transaction."""
        self._metadata = metadata
        self.epoch = epoch
        self.holds = holds
        """How much may be committed: an offset."""
        self.batches: list[tuple[int, list[MetadataRecord]]] = []
        self.end_offset = self._handed_over = metadata.applied_offset + 1 if start is None else start
        self.resigned: str | None = None
        self._is_lost = False
        self._moved = asyncio.Event()

    def append(self, records: Sequence[MetadataRecord]) -> int:
        if self._is_lost:
            raise NotControllerError()
        if records:
            self.batches.append((self.end_offset, list(records)))
            self.end_offset += len(records)
        return self.end_offset

    async def committed(self, end_offset: int) -> None:
        while self._handed_over < end_offset:
            if self._is_lost:
                raise NotControllerError()
            await self._commit()
            if self._handed_over < end_offset:
                await self._moved.wait()
        if self._is_lost:
            raise NotControllerError()

    async def _commit(self) -> None:
        for base, records in self.batches:
            is_held = self.holds is not None and base + len(records) > self.holds
            if base == self._handed_over and not is_held:
                self._handed_over += len(records)
                await self._metadata.apply([data_batch(base, self.epoch, records)])

    async def release(self, holds: int | None = None) -> None:
        """Let more be committed."""
        self.holds = holds
        await self._commit()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def lose(self) -> None:
        """Another node leads: what is not committed is gone."""
        self._is_lost = True
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def resign(self, reason: str) -> None:
        self.resigned = reason
        self.lose()


class Led:
    """A controller of a cluster of its own, the log that it leads, and what it has written."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        metadata: ClusterMetadata | None = None,
        slices: Slices = UNBROKEN,
        *,
        is_alone: bool = False,
    ) -> None:
        self.now = 1000.0
        self.metadata = metadata or ClusterMetadata(CLUSTER, UNBROKEN)
        self.config = BrokerConfig.from_mapping({**(settings or {})})
        self.cache = MetadataCache(empty_image(CLUSTER))
        self.metadata.attach(self.cache)
        self.settings = BrokerSettings(self.config, self.cache, NODE_ID)
        self.controller = ActiveController(
            self.metadata,
            self.settings,
            NODE_ID,
            slices,
            lambda: self.now,
            reserved=lambda: {NODE_ID},
            is_alone=lambda: is_alone,
        )
        self.log = StandInLog(self.metadata)
        self.seen = 0
        self.epochs: dict[int, int] = {}

    def lead(self, records: Iterable[MetadataRecord] | None = None, *, start: int | None = None) -> StandInLog:
        """Begin to lead, in an epoch of its own."""
        self.log = StandInLog(self.metadata, self.log.epoch + 1, start=start)
        finished(self.controller.lead(self.log, bootstrap() if records is None else records))
        self.seen = 0
        return self.log

    @property
    def written(self) -> Any:
        """The image with what is appended."""
        return self.controller._metadata.written

    def records(self) -> list[tuple[str, int, dict[str, Any]]]:
        """What was appended since the last look: kind, version, and the fields that are not as by default."""
        new = [each for _, records in self.log.batches[self.seen :] for each in records]
        self.seen = len(self.log.batches)
        return [shown(each) for each in new]

    # Brokers

    def registration(self, node_id: int, incarnation: int = 1, **fields: Any) -> wire.BrokerRegistrationRequest:
        """As a broker with one directory registers."""
        made = wire.BrokerRegistrationRequest
        values = {
            "broker_id": node_id,
            "cluster_id": CLUSTER,
            "incarnation_id": bytes([node_id, incarnation]) * 8,
            "listeners": [made.Listener(name="PLAINTEXT", host="host", port=9000 + node_id, security_protocol=0)],
            "features": [
                made.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in RANGES.items()
            ],
            "rack": None,
            "log_dirs": [directory(node_id)],
            "previous_broker_epoch": -1,
            **fields,
        }
        return made(**values)

    def register(self, node_id: int, incarnation: int = 1, **fields: Any) -> int:
        """Register a broker; its epoch."""
        answer = finished(self.controller.register_broker(self.registration(node_id, incarnation, **fields)))
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.epochs[node_id] = answer.broker_epoch
        return int(answer.broker_epoch)

    def beat(self, node_id: int, **fields: Any) -> wire.BrokerHeartbeatResponse:
        """A heartbeat of a broker that has applied all."""
        values = {
            "broker_id": node_id,
            "broker_epoch": self.epochs[node_id],
            "current_metadata_offset": self.metadata.applied_offset,
            "cordoned_log_dirs": [],
            **fields,
        }
        answer: wire.BrokerHeartbeatResponse = finished(
            self.controller.heartbeat(wire.BrokerHeartbeatRequest(**values))
        )
        return answer

    def serve(self, *nodes: int) -> None:
        """Brokers that are registered and unfenced."""
        for node in nodes:
            self.register(node)
            assert not self.beat(node).is_fenced
        self.records()

    def isr(self, topic: str, *members: int, number: int = 0) -> KafkaError | None:
        """The leader proposes an ISR; why not, if it is refused."""
        row = self.partition(topic, number)
        isr = [(each, -1) for each in members]
        proposed = IsrChange(at(topic, number), row.leader_epoch, row.partition_epoch, isr)
        broker = BrokerEpoch(row.leader, self.epochs[row.leader])
        (outcome,) = finished(self.controller.alter_partitions(broker, [proposed]))
        error: KafkaError | None = outcome.error
        return error

    # Topics

    def create(self, name: str, *assignments: Sequence[int], **configs: str) -> None:
        """Make a topic with these replicas."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name, assignments=list(enumerate(assignments)), configs=settings)
        (outcome,) = finished(self.controller.create_topics([new]))
        assert outcome.error is None, outcome.error
        self.records()

    def partition(self, name: str, number: int = 0) -> PartitionImage:
        """As it is written."""
        found: PartitionImage = self.written.topics[name].partitions[number]
        return found

    def configure(self, kind: int, name: str, *edits: ConfigEdit, replace: bool = False) -> Any:
        """Alter settings; the error, if any."""
        alteration = ConfigAlteration(ConfigResource(kind, name), edits, replace)
        (error,) = finished(self.controller.alter_configs([alteration]))
        return error


def setting(name: str, value: str | None) -> ConfigEdit:
    """One edit; None: back to the default."""
    return ConfigEdit(name, EditOperation.DELETE if value is None else EditOperation.SET, value or "")


def directory(node_id: int, number: int = 0) -> bytes:
    """The id of a broker's directory."""
    return bytes([100 + node_id, number]) * 8


def at(name: str, number: int = 0) -> TopicPartition:
    """A partition's name."""
    return TopicPartition(name, number)


def shown(record: MetadataRecord) -> tuple[str, int, dict[str, Any]]:
    """Kind, version, and the fields that are not as by default."""
    value: Any = record.value
    plain = type(value)()
    fields = {name: getattr(value, name) for name in value.__slots__}
    return (
        record.name,
        record.version,
        {name: each for name, each in fields.items() if each != getattr(plain, name, None)},
    )
