"""Writes the markers that end transactions into partitions that this broker leads.

A marker is appended as a control batch of the producer's id and epoch, and counts when it is committed.  In
`__consumer_offsets` the offsets that the transaction wrote are decided then: the group coordinator is asked before
the append and called after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker.clock import Clock
from kbroker.errors import ErrorCode, InvalidProducerEpochError, InvalidRequestError, KafkaError
from kbroker.records.control import ControlType, build_end_transaction
from kbroker.storage.log.log_values import AppendOrigin

if TYPE_CHECKING:
    from kbroker.replication.partition import Settled
    from kbroker.replication.replica_manager import ReplicaManager

logger = logging.getLogger("kbroker.replication")

NO_COORDINATOR_EPOCH = -1


class Marker(NamedTuple):
    """How a transaction ended; `transaction_version` 2: its producer has an epoch for each (KIP-890)."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


class TransactionalState(Protocol):
    """A coordinator to whose topic transactions write."""

    def check_partition(self, index: int) -> None:
        """KafkaError while the state of the partition is not served."""

    def end_transaction(self, index: int, producer_id: int, committed: bool) -> None:
        """A marker was committed in the partition."""


class MarkerWriter:
    """`coordinators`: those whose state is in a topic, by the topic's name."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, coordinators: Mapping[str, TransactionalState]) -> None:
        self._replicas = replicas
        self._clock = clock
        self._coordinators = coordinators

    def write(self, topic: str, index: int, marker: Marker, settled: Settled) -> None:
        """Append a marker; `settled` is called once when it is committed, before this returns if it is at once, or with
        why it will not be.  Raises KafkaError when it cannot be appended: `settled` is not called then."""
        if marker.producer_id < 0 or marker.transaction_version < 0:
            raise InvalidRequestError("a marker needs the id of a producer and a transaction version")
        if marker.producer_epoch < 0:
            raise InvalidProducerEpochError(f"epoch {marker.producer_epoch} of producer {marker.producer_id}")
        if marker.coordinator_epoch < NO_COORDINATOR_EPOCH:
            raise KafkaError.of(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED, f"coordinator epoch {marker.coordinator_epoch}"
            )
        partition = self._replicas.partition(topic, index)
        partition.check_in_sync()
        coordinator = self._coordinators.get(topic)
        if coordinator is not None:
            coordinator.check_partition(index)
        log = partition.log
        log.producer_state.validate_final_epoch(
            marker.producer_id, marker.producer_epoch, marker.transaction_version, log.log_end_offset
        )
        control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        batch = build_end_transaction(
            control_type, marker.coordinator_epoch, marker.producer_id, marker.producer_epoch, self._clock.now_ms()
        )
        last_offset = self._replicas.append(partition, batch, origin=AppendOrigin.COORDINATOR).last_offset
        logger.debug(
            "%s: wrote a marker at offset %d: %s of producer %d, epoch %d",
            partition,
            last_offset,
            control_type.name,
            marker.producer_id,
            marker.producer_epoch,
        )

        def committed(error: KafkaError | None) -> None:
            if error is None and coordinator is not None:
                coordinator.end_transaction(index, marker.producer_id, marker.is_commit)
            settled(error)

        if partition.is_acknowledged(last_offset, by_all=True):
            committed(None)
        else:
            partition.wait(last_offset, True, committed)
