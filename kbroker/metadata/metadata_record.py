"""The records that a KRaft cluster's metadata are made of, one by one (KIP-631).

    value of a record    uvarint frame version (1), uvarint api key, uvarint version, fields

Records between BeginTransactionRecord and EndTransactionRecord count together or, with AbortTransactionRecord or
without an end, not at all (KIP-868).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbroker._fast.base.varint import read_varint
from kbroker._fast.wire.codec import DecodeError, Struct
from kbroker.protocol.messages import Message
from kbroker.schemas import family_messages, message

FRAME_VERSION = 1
_NAMES = {schema.api_key: schema.name for schema in family_messages("metadata_records")}


class MetadataLogError(Exception):
    """The metadata log cannot be read to its end; the text says where and why."""


class MetadataRecord(NamedTuple):
    """One record: its name in Kafka's schemas, its version, and its fields."""

    name: str
    version: int
    value: Struct


def metadata_record(value: Message, version: int = 0) -> MetadataRecord:
    """A record with this content."""
    return MetadataRecord(type(value).__name__, version, value)


def encode_record(record: MetadataRecord) -> bytes:
    """The value of a record: frame version, type, version, fields."""
    value = record.value
    assert isinstance(value, Message)
    assert value.api_key is not None
    return bytes(value.program(record.version).encode(value, bytes([FRAME_VERSION, value.api_key, record.version])))


def decode_record(value: bytes | None, where: str) -> MetadataRecord:
    """A record from its value.  MetadataLogError, which names `where` it is."""
    if value is None:
        raise MetadataLogError(f"{where} has no value")
    try:
        frame, position = _unsigned(value, 0)
        api_key, position = _unsigned(value, position)
        version, position = _unsigned(value, position)
    except ValueError as error:
        raise MetadataLogError(f"{where}: {error}") from error
    if frame != FRAME_VERSION:
        raise MetadataLogError(f"{where} has frame version {frame}, known is {FRAME_VERSION}")
    name = _NAMES.get(api_key)
    cls = None if name is None else message(name)
    if cls is None or not cls.min_version <= version <= cls.max_version:
        raise MetadataLogError(
            f"{where} is of type {api_key}{f' ({name})' if name else ''}, version {version}, "
            "which this kbroker does not know: it was written by a newer Kafka than 4.3; upgrade kbroker"
        )
    try:
        fields, end = cls.program(version).decode_from(value, position)
    except DecodeError as error:
        raise MetadataLogError(f"{where}: {error}") from error
    if end != len(value):
        raise MetadataLogError(f"{where}, {name}, has {len(value) - end} bytes too many")
    return MetadataRecord(cls.__name__, version, fields)


def _unsigned(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint, which a signed one spells in zigzag."""
    value, position = read_varint(data, position)
    return (value << 1 if value >= 0 else (-value << 1) - 1), position


class MetadataTransactions:
    """Holds back the records of a transaction until it is known how that ends."""

    def __init__(self) -> None:
        self._begun: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._begun is not None

    @property
    def open_count(self) -> int:
        """How many records of a transaction without an end there are."""
        return len(self._begun or ())

    def completed(self, records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
        """Those that count by now, in order."""
        for record in records:
            match record.name:
                case "BeginTransactionRecord":
                    self._begun = []
                case "AbortTransactionRecord":
                    self._begun = None
                case "EndTransactionRecord":
                    yield from self._begun or ()
                    self._begun = None
                case _ if self._begun is not None:
                    self._begun.append(record)
                case _:
                    yield record
