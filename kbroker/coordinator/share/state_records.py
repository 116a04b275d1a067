"""The records of `__share_group_state`, byte for byte as Kafka 4.3's share coordinator writes them.

    key    int16 record type (0 ShareSnapshot, 1 ShareUpdate), then group, topic id, partition
    value  int16 version 0, then the value's fields; a ShareSnapshot without value deletes the state

A snapshot says everything of a share-partition; updates after it say what is new, and carry the snapshot's epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from kbroker._fast.wire.codec import DecodeError
from kbroker.replication.share.persister import SharePartitionKey, StateBatch
from kbroker.replication.share.state_batches import combine
from kbroker.schemas import message, program, wire

SNAPSHOT_TYPE = 0
UPDATE_TYPE = 1
NO_EPOCH = -1

Batch = TypeVar("Batch")
_SHORT = struct.Struct(">h")
_VERSION = _SHORT.pack(0)


class UnreadableRecordError(ValueError):
    """A record that is damaged, or of a kind that this broker does not know."""


@dataclass(frozen=True, slots=True)
class ShareState:
    """What is known of a share-partition.  `update_count`: updates since the last snapshot."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    snapshot_epoch: int = 0
    create_timestamp: int = 0
    write_timestamp: int = 0
    update_count: int = 0

    def updated(self, update: Update) -> ShareState:
        """The state after an update; what an update leaves out (-1) stays."""
        start_offset = self.start_offset if update.start_offset < 0 else update.start_offset
        return replace(
            self,
            leader_epoch=self.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            batches=combine((*self.batches, *update.batches), start_offset),
            update_count=self.update_count + 1,
        )


class Update(NamedTuple):
    """What a ShareUpdate says."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class StateRecord(NamedTuple):
    """A record; `value` None deletes the state."""

    key: SharePartitionKey
    value: ShareState | Update | None


def snapshot_record(key: SharePartitionKey, state: ShareState) -> tuple[bytes, bytes]:
    """A ShareSnapshot."""
    value_class = wire.ShareSnapshotValue
    value = value_class(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp,
        write_timestamp=state.write_timestamp,
        state_batches=_wire_batches(value_class.StateBatch, state.batches),
    )
    return _key(SNAPSHOT_TYPE, key), program("ShareSnapshotValue").encode(value, _VERSION)


def update_record(key: SharePartitionKey, update: Update) -> tuple[bytes, bytes]:
    """A ShareUpdate."""
    value_class = wire.ShareUpdateValue
    value = value_class(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=_wire_batches(value_class.StateBatch, update.batches),
    )
    return _key(UPDATE_TYPE, key), program("ShareUpdateValue").encode(value, _VERSION)


def deletion_record(key: SharePartitionKey) -> tuple[bytes, None]:
    """The record that deletes a state."""
    return _key(SNAPSHOT_TYPE, key), None


def parse_record(key: bytes | None, value: bytes | None) -> StateRecord:
    """The record behind a key and a value.  UnreadableRecordError."""
    if key is None or len(key) < _SHORT.size:
        raise UnreadableRecordError("a record without a key")
    (record_type,) = _SHORT.unpack_from(key)
    if record_type not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        raise UnreadableRecordError(f"record type {record_type}")
    name = "ShareSnapshot" if record_type == SNAPSHOT_TYPE else "ShareUpdate"
    try:
        parsed = program(f"{name}Key").decode(key, _SHORT.size)
        share_key = SharePartitionKey(parsed.group_id, bytes(parsed.topic_id), parsed.partition)
        if value is None:
            return StateRecord(share_key, None)
        if len(value) < _SHORT.size or value[: _SHORT.size] != _VERSION:
            raise UnreadableRecordError(f"a {name} of an unknown version")
        fields = program(f"{name}Value").decode(value, _SHORT.size)
    except DecodeError as error:
        raise UnreadableRecordError(f"{name}: {error}") from error
    return StateRecord(share_key, _snapshot(fields) if record_type == SNAPSHOT_TYPE else _update(fields))


def _snapshot(fields: wire.ShareSnapshotValue) -> ShareState:
    return ShareState(
        state_epoch=fields.state_epoch,
        leader_epoch=fields.leader_epoch,
        start_offset=fields.start_offset,
        delivery_complete_count=fields.delivery_complete_count,
        batches=combine(_batches(fields), fields.start_offset),
        snapshot_epoch=fields.snapshot_epoch,
        create_timestamp=fields.create_timestamp,
        write_timestamp=fields.write_timestamp,
    )


def _update(fields: wire.ShareUpdateValue) -> Update:
    return Update(
        fields.snapshot_epoch,
        fields.leader_epoch,
        fields.start_offset,
        fields.delivery_complete_count,
        tuple(_batches(fields)),
    )


def _batches(fields: wire.ShareSnapshotValue | wire.ShareUpdateValue) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in fields.state_batches
    ]


def _key(record_type: int, key: SharePartitionKey) -> bytes:
    name = "ShareSnapshotKey" if record_type == SNAPSHOT_TYPE else "ShareUpdateKey"
    fields = message(name)(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return program(name).encode(fields, _SHORT.pack(record_type))


def _wire_batches(make: Callable[..., Batch], batches: Iterable[StateBatch]) -> list[Batch]:
    return [make(**batch._asdict()) for batch in batches]
