"""The groups and transactional ids that state topics hold, by name, from the files of a stopped broker.

Records that supersede each other are many; only the newest of each key is decoded.  Reading a partition ends at bytes
that are no batch: the next start recovers the log and serves nothing behind them either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchError
from kbroker._fast.records.record_codec import gather_newest
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kbroker.records.compression import Codec, CompressionError
from kbroker.records.legacy import iterate_stored_records
from kbroker.schemas.internal_records import decode_record

if TYPE_CHECKING:
    from kbroker.startup.metadata_rebuild import FoundPartition
    from kbroker.storage.files.filesystem import FileSystem

_KINDS: Mapping[str, str] = {"ConsumerGroup": "consumer", "ShareGroup": "share", "StreamsGroup": "streams"}
CLASSIC = "classic"
LAST_TYPE = 127
"""Above every type of record that there is."""


@dataclass(frozen=True, slots=True)
class StateNames:
    """Groups with their kinds, transactional ids, and notes on what could not be read."""

    groups: Mapping[str, str]
    transactional_ids: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_state_names(files: FileSystem, found: Iterable[FoundPartition]) -> StateNames:
    """Reads the partitions of `__consumer_offsets` and `__transaction_state` among `found`."""
    groups: dict[str, str] = {}
    transactional: set[str] = set()
    notes: list[str] = []
    for partition in found:
        topic = partition.topic_partition.topic
        if topic not in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
            continue
        for key, value in _newest(files, partition.path, notes).items():
            if value is None:
                continue
            try:
                decoded = decode_record(topic, key, None)
            except ValueError as error:
                note = f"{partition.topic_partition}: some records are not known here ({error})"
                if note not in notes:
                    notes.append(note)
                continue
            fields = decoded["key"]
            assert isinstance(fields, dict)
            if topic == TRANSACTION_STATE_TOPIC:
                transactional.add(fields["transactional_id"])
            else:
                _add(groups, str(decoded["type"]), fields)
    return StateNames(dict(sorted(groups.items())), tuple(sorted(transactional)), tuple(notes))


def _add(groups: dict[str, str], record_type: str, fields: Mapping[str, str]) -> None:
    name = fields.get("group_id", fields.get("group"))
    if name is None:
        return
    kind = next((kind for prefix, kind in _KINDS.items() if record_type.startswith(prefix)), CLASSIC)
    if groups.get(name, CLASSIC) == CLASSIC:
        groups[name] = kind


def _newest(files: FileSystem, path: str, notes: list[str]) -> dict[bytes, bytes | None]:
    """The newest value of each key in a partition."""
    newest: dict[bytes, bytes | None] = {}
    logs = sorted(entry.name for entry in files.list_directory(path) if entry.name.endswith(".log"))
    for name in logs:
        _read(files.read_file(f"{path}/{name}"), newest, f"{path}/{name}", notes)
    return newest


def _read(data: bytes, newest: dict[bytes, bytes | None], path: str, notes: list[str]) -> None:
    """Takes in the records of a segment."""
    view = memoryview(data)
    position = 0
    while position < len(data):
        try:
            info = read_stored_header(data, position, len(data), check_crc=True)
            batch = view[position : position + info.size_in_bytes]
            position += info.size_in_bytes
            if info.magic == MAGIC_V2 and info.is_control:
                continue
            is_plain = info.magic == MAGIC_V2 and info.compression == Codec.NONE
            # C code reads the records that coordinators write most; False means a batch with others, read in Python
            # below.
            if is_plain and gather_newest(batch[BATCH_OVERHEAD:], newest, LAST_TYPE):
                continue
            for record in iterate_stored_records(batch):
                if record.key is not None:
                    newest[bytes(record.key)] = record.value
        except (BatchError, CompressionError) as error:
            if any(data[position:]):
                notes.append(f"{path} is not whole from byte {position}: {error}")
            return
