"""Records as a viewer sees them: from the bytes of whole batches to bounded values.  Pure, for a thread.

What a producer wrote is untrusted: it becomes text or base64, cut where it is long, and nothing else.
"""

from __future__ import annotations

import base64
import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BatchError
from kbroker.console.decoded_record import Decode, DecodedRecord, parts_of
from kbroker.console.json_text import without_escapes
from kbroker.console.record_filter import RecordFilter
from kbroker.errors import KafkaError
from kbroker.records.compression import Codec, CompressionError
from kbroker.records.control import ControlType, parse_control_key
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records
from kbroker.schemas import internal_records

if TYPE_CHECKING:
    from kbroker._fast.records.batch_info import BatchInfo
    from kbroker.console.masking import Mask
    from kbroker.records.batch import Record
    from kbroker.registry.display import Display

MAX_HEADERS = 100
MOST_SHOWN_BYTES = 32 << 20
"""Of keys, values and headers in one answer."""
UNPACKED_BYTES = 64 << 20
"""The most that a batch may hold unpacked: beyond it is not shown."""

_TEXT_CONTROLS = "\t\n\r"


@dataclass(frozen=True, slots=True)
class Field:
    """A key, a value, or one of a header.  `text` is base64 where `is_binary`, and the first part where `is_cut`.

    `schema` names the schema by which the text was decoded, to JSON where `is_decoded`; `problem` says why it was not,
    or what it breaks of its schema."""

    text: str
    size_bytes: int
    is_binary: bool
    is_cut: bool
    schema: str = ""
    problem: str = ""
    is_decoded: bool = False


@dataclass(frozen=True, slots=True)
class Header:
    """One header of a record."""

    name: str
    value: Field | None


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record.  `control`: what kind of control record it is, empty for those of producers.  `meaning`: what a
    record of an internal topic says, where it can be read."""

    offset: int
    timestamp: int
    key: Field | None
    value: Field | None
    headers: Sequence[Header]
    header_count: int
    size_bytes: int
    control: str
    compression: str
    is_transactional: bool
    producer_id: int
    meaning: object = None

    @property
    def shown_bytes(self) -> int:
        """About what its texts take; what is decoded may be far longer than the bytes of the record."""
        fields = (self.key, self.value, *(each.value for each in self.headers))
        return sum(len(each.text) for each in fields if each) + sum(len(each.name) for each in self.headers)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records with offsets from `start` up to but not including `stop` that `chosen` holds for: the first `count` of
    them, or the last `count` with `newest`, as far as they have `room` bytes.  `aborted`: producer ids and first
    offsets of transactions whose records are left out; None: all records are wanted, and control records too.
    `display` decodes by schemas.  `is_readable`: JSON is given with its characters in the place of their escapes, else
    as it was written.  `mask`: what the viewer may not see."""

    topic: str
    start: int
    stop: int
    count: int
    newest: bool
    chosen: RecordFilter
    field_bytes: int
    aborted: Sequence[tuple[int, int]] | None
    room: int = MOST_SHOWN_BYTES
    display: Display | None = None
    partition: int = 0
    is_readable: bool = False
    mask: Mask | None = None


@dataclass(slots=True)
class Found:
    """`next_offset`: where the look ended; `is_full`: for want of room.  `problem`: why a batch could not be read,
    which was passed over."""

    rows: deque[RecordRow]
    next_offset: int
    looked_at: int = 0
    shown_bytes: int = 0
    is_full: bool = False
    problem: str = ""
    _open: set[int] = field(default_factory=set)

    def keep(self, row: RecordRow, wanted: Wanted) -> None:
        """One more row; of the newest, the oldest ones give way, so that memory holds no more than is shown."""
        self.rows.append(row)
        self.shown_bytes += row.shown_bytes
        while wanted.newest and len(self.rows) > 1:
            is_over = self.shown_bytes > wanted.room
            if not is_over and len(self.rows) <= wanted.count:
                break
            self.is_full = self.is_full or is_over
            self.shown_bytes -= self.rows.popleft().shown_bytes


def look(data: bytes, wanted: Wanted) -> Found:
    """Go through whole batches; what is behind the last whole one is left."""
    found = Found(deque(), wanted.start)
    aborted = sorted(wanted.aborted or (), key=lambda each: each[1], reverse=True)
    try:
        for info in iterate_stored_batches(data):
            if info.base_offset >= wanted.stop:
                break
            while aborted and aborted[-1][1] <= info.last_offset:
                found._open.add(aborted.pop()[0])
            if not _look_at(data, info, wanted, found):
                return found
            found.next_offset = max(found.next_offset, info.last_offset + 1)
    except BatchError:
        pass  # The data ends within a batch.
    found.next_offset = min(found.next_offset, max(wanted.stop, wanted.start))
    return found


def _look_at(data: bytes, info: BatchInfo, wanted: Wanted, found: Found) -> bool:
    """Whether to go on behind this batch."""
    if wanted.aborted is not None:
        if info.is_control:
            if _control(data, info) is ControlType.ABORT:
                found._open.discard(info.producer_id)
            return True
        if info.is_transactional and info.producer_id in found._open:
            return True
    decode = _decoder(info, wanted)
    try:
        for record in iterate_stored_records(data, info, limit_bytes=UNPACKED_BYTES):
            if not wanted.start <= record.offset < wanted.stop:
                continue
            found.looked_at += 1
            looked = DecodedRecord(record, wanted.partition, decode, wanted.mask)
            if not wanted.chosen.is_open and not wanted.chosen.holds(looked):
                continue
            if not wanted.newest:
                found.is_full = found.shown_bytes >= wanted.room
                if len(found.rows) >= wanted.count or found.is_full:
                    found.next_offset = record.offset
                    return False
            found.keep(_row(looked, info, wanted), wanted)
    except (BatchError, CompressionError, ValueError) as error:
        found.problem = f"The batch at offset {info.base_offset} cannot be read: {error}."
    return True


def _control(data: bytes, info: BatchInfo) -> ControlType:
    try:
        record = next(iterate_stored_records(data, info, limit_bytes=UNPACKED_BYTES), None)
        return ControlType.UNKNOWN if record is None else parse_control_key(record.key)
    except (BatchError, CompressionError):
        return ControlType.UNKNOWN


def _decoder(info: BatchInfo, wanted: Wanted) -> Decode | None:
    """What decodes the records of a batch; those of brokers begin with a zero byte, too."""
    display, topic = wanted.display, wanted.topic
    if display is None or info.is_control or internal_records.decodes(topic):
        return None
    return lambda record, is_key: display.show(
        topic, record.key if is_key else record.value, record.headers, is_key=is_key
    )


def _row(looked: DecodedRecord, info: BatchInfo, wanted: Wanted) -> RecordRow:
    record = looked.record
    most, is_readable = wanted.field_bytes, wanted.is_readable
    control = ""
    meaning = None
    if info.is_control:
        control = _control_name(record)
    elif internal_records.decodes(wanted.topic):
        try:
            meaning = internal_records.decode_record(wanted.topic, record.key, record.value)
        except (ValueError, KafkaError):
            meaning = None
    return RecordRow(
        record.offset,
        record.timestamp,
        shown_field(looked, most, is_key=True, is_readable=is_readable),
        shown_field(looked, most, is_key=False, is_readable=is_readable),
        [
            Header(name[:most], field_of(value, most, is_readable=is_readable))
            for name, value in record.headers[:MAX_HEADERS]
        ],
        len(record.headers),
        sum(len(part) for part in parts_of(record)),
        control,
        _codec_name(info.compression),
        info.is_transactional,
        info.producer_id,
        meaning,
    )


def _control_name(record: Record) -> str:
    try:
        return parse_control_key(record.key).name.lower().replace("_", " ")
    except BatchError:
        return "unknown"


def _codec_name(number: int) -> str:
    try:
        return Codec(number).name.lower()
    except ValueError:
        return str(number)


def shown_field(looked: DecodedRecord, most: int, *, is_key: bool, is_readable: bool = False) -> Field | None:
    """The key or value of a record, decoded where a schema says how."""
    data = looked.bytes_of(is_key=is_key)
    shown = looked.shown(is_key=is_key)
    if data is None or shown is None:
        return field_of(data, most, is_readable=is_readable)
    if not shown.is_decoded:
        field = field_of(data, most, is_readable=is_readable)
        return field and replace(field, schema=shown.schema, problem=shown.problem)
    text = shown.text
    return Field(text[:most], len(data), False, len(text) > most, shown.schema, shown.problem, is_decoded=True)


def field_of(data: bytes | None, most: int, *, is_readable: bool = False) -> Field | None:
    """Bytes as text, where they are text in UTF-8, else as base64.  `is_readable`: see `Wanted`."""
    if data is None:
        return None
    cut = data[:most]
    try:
        # A character that is cut in two is no reason to take the whole for binary.
        text = codecs.getincrementaldecoder("utf-8")().decode(cut, final=len(cut) == len(data))
        is_binary = not _is_readable(text)
    except UnicodeDecodeError:
        is_binary = True
    if is_binary:
        text = base64.b64encode(cut).decode()
    elif is_readable:
        text = without_escapes(text)
    return Field(text, len(data), is_binary, len(cut) < len(data))


def _is_readable(text: str) -> bool:
    # Megabytes of it: not one character after the other.
    for each in _TEXT_CONTROLS:
        text = text.replace(each, " ")
    return text.isprintable()
