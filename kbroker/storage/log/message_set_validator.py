"""Validation of what may be, or may become, messages of the formats before record batches (magic 0 and 1).

Produce requests up to version 2 carry message sets, and batches where a client pleases; a topic stores what its
`message.format.version` says.  `validate_records` judges all of these and gives them in the form to be stored:

- magic 2, the rule: one record batch of all messages, compressed as the topic wants;
- magic 0 or 1: messages, whose offsets `stamp` writes, or makes anew within a compressed message of magic 0, whose
  messages have absolute offsets.

Checks, order and codes are those of Kafka 3.9.1 (`ProduceRequest.validateRecords`, `UnifiedLog`, `LogValidator`); where
Kafka fails with an unexpected exception and answers UNKNOWN_SERVER_ERROR, the answer here is INVALID_RECORD, which
clients do not retry.
"""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbroker._fast.log.batch_rules import check_keys, check_times
from kbroker._fast.records.message_conversion import messages_of_records, records_of_messages, rewrite_messages
from kbroker._fast.records.message_set import (
    MessageSet,
    message_set_info,
    number_messages,
    scan_entries,
    stamp_messages,
    walk_messages,
)
from kbroker._fast.records.record_batch import (
    BATCH_OVERHEAD,
    MAGIC_V2,
    BatchError,
    BatchInfo,
    CorruptBatchError,
    read_header,
    seal,
)
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedForMessageFormatError,
)
from kbroker.records.batch import HEADER, STORED_LIMIT_BYTES
from kbroker.records.compression import Codec, DecompressionLimitError, codec_of, compress, decompress
from kbroker.records.layout import (
    MAGIC_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_CRC_START,
    MESSAGE_TIMESTAMP_POSITION,
)
from kbroker.records.legacy import unwrap, wrap
from kbroker.storage.log.log_validator import (
    LATEST_PRODUCE_VERSION,
    LONG_BATCH_BYTES,
    AnalyzedBatch,
    AppendOrigin,
    decompression_limit_bytes,
    level_of,
    takes_long,
    too_large,
    validate_and_analyze,
    validate_rebuilt_size,
)
from kbroker.types import (
    FIRST_OFFSET,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
)

if TYPE_CHECKING:
    from kbroker.config import LogConfig

FIRST_PRODUCE_VERSION_OF_BATCHES = 3
APPEND_TIME_FLAG = 0x08
OFFSET = struct.Struct(">q")
CRC = struct.Struct(">I")
# The most bytes, unpacked, of a compressed set that the event loop converts, which takes a few milliseconds at most.
# Counted as `records.compression` counts, a member of gzip being 64 KiB more.
LOOP_LIMIT_BYTES = 131072
Buffer = memoryview | bytearray


class AnalyzedMessages(AnalyzedBatch):
    """Messages fit to be stored as such; `_inner` are those of a compressed one of magic 0."""

    __slots__ = ("_inner", "_level", "_placed")

    def __init__(
        self, info: BatchInfo, view: Buffer, source_codec: int, target_codec: int, *, needs_rebuild: bool
    ) -> None:
        super().__init__(info, view, source_codec, target_codec, needs_rebuild, len(view))
        self._inner: bytes | None = None
        self._level: int | None = None
        self._placed = 0

    @classmethod
    def absolute(
        cls, info: BatchInfo, inner: bytes, source: int, codec: int, level: int | None, at: Offset
    ) -> AnalyzedMessages:
        """Of magic 0, compressed, for a log that ends at `at`."""
        made = cls(info, bytearray(), source, codec, needs_rebuild=True)
        made._inner, made._level, made._placed = inner, level, -1
        made._wrap(at)
        return made

    @property
    def is_one(self) -> bool:
        return self.target_codec != Codec.NONE

    def stamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> Buffer:
        if not self.target_codec:
            number_messages(self.view, self.size_in_bytes, base_offset)
        elif self._inner is None:
            OFFSET.pack_into(self.view, 0, base_offset + self.info.last_offset_delta)
        elif base_offset != self._placed:
            self._wrap(base_offset)
        return self.view

    def _wrap(self, base_offset: Offset) -> None:
        inner = rewrite_messages(self._inner or b"", 0, first=base_offset)
        last = base_offset + self.info.last_offset_delta
        self.view = wrap(inner, 0, self.target_codec, last, NO_TIMESTAMP, level=self._level)
        self.size_in_bytes = len(self.view)
        self._placed = base_offset


class LongRecordsError(Exception):
    """Judging these records would hold the event loop for long; nothing is known of them yet."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What is validated, and for what."""

    view: Buffer
    config: LogConfig
    now_ms: int
    topic_partition: object
    log_end_offset: Offset
    on_loop: bool

    @property
    def append_time(self) -> int:
        """The time that all records get; NO_TIMESTAMP where they keep their own."""
        return self.now_ms if self.config.log_append_time else NO_TIMESTAMP

    def codec_for(self, source: int) -> int:
        name = self.config.compression_type
        return source if name == "producer" else codec_of(name)


def validate_records(
    view: Buffer,
    config: LogConfig,
    now_ms: int,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    topic_partition: object = "",
    produce_version: int = LATEST_PRODUCE_VERSION,
    log_end_offset: Offset = FIRST_OFFSET,
    on_loop: bool = False,
) -> AnalyzedBatch | None:
    """Judges the records of a Produce request of any version.  Raises KafkaError subclasses; None where there are none.

    `log_end_offset` is where they are likely to begin.  `on_loop`: LongRecordsError for what belongs in a thread.
    """
    if on_loop and _take_long(view, config, produce_version):
        raise LongRecordsError
    if produce_version >= FIRST_PRODUCE_VERSION_OF_BATCHES and config.message_magic == MAGIC_V2:
        return validate_and_analyze(
            view, config, now_ms, origin=origin, topic_partition=topic_partition, produce_version=produce_version
        )
    began = time.perf_counter()
    request = _Request(view, config, now_ms, topic_partition, log_end_offset, on_loop)
    analyzed = _analyze(request, origin, produce_version)
    if analyzed is not None and analyzed.needs_rebuild:
        analyzed.conversion_seconds = time.perf_counter() - began
    return analyzed


def _analyze(request: _Request, origin: AppendOrigin, produce_version: int) -> AnalyzedBatch | None:
    topic_partition = request.topic_partition
    if produce_version >= FIRST_PRODUCE_VERSION_OF_BATCHES:
        return _of_batch(request, origin, produce_version)
    try:
        return _of_entries(request, origin)
    except DecompressionLimitError as error:
        raise MessageTooLargeError(f"{error} in topic partition {topic_partition}") from error
    except CorruptBatchError as error:
        raise CorruptMessageError(f"{error} in topic partition {topic_partition}.") from error
    except BatchError as error:
        raise InvalidRecordError(f"{error} in topic partition {topic_partition}") from error


def _take_long(view: Buffer, config: LogConfig, produce_version: int) -> bool:
    """Whether records belong in a thread: as `takes_long`, and what goes into a format before record batches.

    A compressed set does not say how much it holds: `_unwrap` finds it out.
    """
    if produce_version >= FIRST_PRODUCE_VERSION_OF_BATCHES and config.message_magic == MAGIC_V2:
        return takes_long(view, config)
    if len(view) >= LONG_BATCH_BYTES:
        return True
    is_batch = len(view) <= MESSAGE_ATTRIBUTES_POSITION or view[MAGIC_POSITION] >= MAGIC_V2
    return is_batch and config.message_magic < MAGIC_V2


def _of_entries(request: _Request, origin: AppendOrigin) -> AnalyzedBatch | None:
    view, config = request.view, request.config
    count, size, magic, codec, alike, oversized = scan_entries(view, config.max_message_bytes)
    if oversized:
        raise too_large(oversized, config, request.topic_partition)
    if not count:
        return None
    if count > 1 and (codec or magic == MAGIC_V2):
        raise InvalidRecordError("Compressed outer record has more than one batch")
    if not alike:
        raise InvalidRecordError(
            f"Batch magic byte is not the same as the first batch's magic byte {magic} in topic partition "
            f"{request.topic_partition}"
        )
    whole = memoryview(view)[:size]
    if magic == MAGIC_V2:
        return _of_batch(replace(request, view=whole), origin)
    if codec:
        return _of_wrapper(request, whole, read_stored_header(whole))
    found = walk_messages(whole, magic)
    _validate_messages(request, found, found.append_time_count > 0)
    target = request.codec_for(Codec.NONE)
    if config.message_magic == MAGIC_V2:
        return _batch(request, whole, found, Codec.NONE, target)
    if magic == config.message_magic and not target:
        if magic:
            stamp_messages(whole, size, request.append_time)
        info = message_set_info(magic, count, _largest(request, found), config.log_append_time)
        return AnalyzedMessages(info, whole, Codec.NONE, Codec.NONE, needs_rebuild=False)
    return _messages(
        request,
        rewrite_messages(whole, config.message_magic, first=0, append_time=request.append_time),
        found,
        0,
        target,
    )


def _of_wrapper(request: _Request, whole: memoryview, info: BatchInfo) -> AnalyzedBatch:
    config, codec = request.config, info.compression
    inner = _unwrap(request, whole, info)
    found = walk_messages(inner, info.magic, inner=True)
    if not found.count:
        raise InvalidRecordError("Found invalid compressed record set with no inner records")
    if info.magic and info.last_offset and info.last_offset < found.last_offset:
        raise InvalidRecordError(
            f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{info.last_offset}' is less "
            f"than the last inner message offset '{found.last_offset}' and it is not zero."
        )
    if info.magic and info.timestamp_type:
        # The wrapper's time is that of all.
        inner = rewrite_messages(inner, info.magic, append_time=max(info.max_timestamp, 0))
        found = walk_messages(inner, info.magic)
    _validate_messages(request, found, bool(info.magic and info.timestamp_type))
    target = request.codec_for(codec)
    if config.message_magic == MAGIC_V2:
        return _batch(request, inner, found, codec, target)
    # Inner messages whose offsets do not begin at 0 came from a client that numbers wrongly: they are numbered anew.
    in_place = info.last_offset == found.last_offset or not info.last_offset
    if info.magic == config.message_magic == 1 and target == codec and found.in_order and in_place:
        _stamp_wrapper(whole, info, request.append_time, found.max_timestamp)
        made = message_set_info(1, found.count, _largest(request, found), config.log_append_time)
        return AnalyzedMessages(made, whole, codec, codec, needs_rebuild=False)
    messages = rewrite_messages(inner, config.message_magic, first=0, append_time=request.append_time)
    return _messages(request, messages, found, codec, target)


def _unwrap(request: _Request, whole: memoryview, info: BatchInfo) -> bytes:
    limit = decompression_limit_bytes(len(whole))
    if not request.on_loop:
        return unwrap(whole, info, limit)
    try:
        return unwrap(whole, info, LOOP_LIMIT_BYTES)
    except DecompressionLimitError as error:
        raise LongRecordsError from error


def _of_batch(request: _Request, origin: AppendOrigin, produce_version: int = LATEST_PRODUCE_VERSION) -> AnalyzedBatch:
    """A record batch, for a topic of any format."""
    config = request.config
    analyzed = validate_and_analyze(
        request.view,
        config,
        request.now_ms,
        origin=origin,
        topic_partition=request.topic_partition,
        produce_version=produce_version,
    )
    info, magic = analyzed.info, config.message_magic
    if magic == MAGIC_V2:
        return analyzed
    if info.is_transactional or info.producer_id >= 0:
        kind = "Transactional" if info.is_transactional else "Idempotent"
        raise UnsupportedForMessageFormatError(f"{kind} records cannot be used with magic version {magic}")
    codec = analyzed.target_codec
    if codec == Codec.ZSTD:
        # The older formats have no such codec; Kafka stores it, and no client can read it.
        codec = Codec.NONE
    payload = memoryview(analyzed.view)[BATCH_OVERHEAD : analyzed.size_in_bytes]
    if info.compression:
        payload = memoryview(decompress(info.compression, payload, STORED_LIMIT_BYTES))
    messages, _, headers_count = messages_of_records(payload, info, magic)
    if headers_count:
        raise UnsupportedForMessageFormatError(f"Magic v{magic} does not support record headers")
    return _messages(request, messages, walk_messages(messages, magic), analyzed.source_codec, codec)


def _batch(
    request: _Request, messages: bytes | memoryview, found: MessageSet, source: int, target: int
) -> AnalyzedBatch:
    """One record batch of judged messages."""
    config = request.config
    payload: bytes | bytearray = records_of_messages(messages)
    if target:
        payload = compress(target, payload, level_of(target, config))
    out = bytearray(
        HEADER.pack(
            0,
            0,
            NO_LEADER_EPOCH,
            MAGIC_V2,
            0,
            APPEND_TIME_FLAG if config.log_append_time else 0,
            found.count - 1,
            found.first_timestamp,
            _largest(request, found),
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            found.count,
        )
    )
    out += payload
    validate_rebuilt_size(len(out), config, request.topic_partition)
    seal(out, target)
    return AnalyzedBatch(read_header(out), out, source, target, True, len(out))


def _messages(request: _Request, messages: bytes, found: MessageSet, source: int, target: int) -> AnalyzedBatch:
    """Messages of the topic's format, numbered from 0 on, as they are stored there."""
    config = request.config
    magic = config.message_magic
    largest = _largest(request, found, magic)
    info = message_set_info(magic, found.count, largest, config.log_append_time)
    level = level_of(target, config)
    made: AnalyzedMessages
    if not target:
        made = AnalyzedMessages(info, bytearray(messages), source, target, needs_rebuild=True)
    elif magic == 0:
        made = AnalyzedMessages.absolute(info, messages, source, target, level, request.log_end_offset)
    else:
        flags = APPEND_TIME_FLAG if config.log_append_time else 0
        view = wrap(messages, magic, target, found.count - 1, largest, flags, level)
        made = AnalyzedMessages(info, view, source, target, needs_rebuild=True)
    if target:
        validate_rebuilt_size(made.size_in_bytes, config, request.topic_partition)
    return made


def _largest(request: _Request, found: MessageSet, magic: int = MAGIC_V2) -> int:
    """The largest time of what is stored in format `magic`."""
    if request.config.log_append_time:
        return request.now_ms
    return found.max_timestamp if magic else NO_TIMESTAMP


def _validate_messages(request: _Request, found: MessageSet, claims_append_time: bool) -> None:
    """Raises where keys or times break the topic's rules."""
    config = request.config
    if config.log_append_time:
        if claims_append_time:
            raise InvalidTimestampError("Producer should not set timestamp type to LogAppendTime.")
    else:
        earliest = request.now_ms - config.message_timestamp_before_max_ms
        latest = request.now_ms + config.message_timestamp_after_max_ms
        if found.max_timestamp != NO_TIMESTAMP and not check_times(
            found.min_timestamp,
            found.max_timestamp,
            request.now_ms,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        ):
            raise InvalidTimestampError(f"The timestamp should be within [{earliest}, {latest}]")
    if not check_keys(config.compact, found.keyless_count):
        raise InvalidRecordError(
            f"Compacted topic cannot accept message without key in topic partition {request.topic_partition}"
        )


def _stamp_wrapper(view: memoryview, info: BatchInfo, append_time: int, max_timestamp: int) -> None:
    """Writes kind and value of a compressed message's time, and its checksum, where they are others."""
    flag = APPEND_TIME_FLAG if append_time != NO_TIMESTAMP else 0
    timestamp = append_time if flag else max_timestamp
    if info.timestamp_type == bool(flag) and info.max_timestamp == timestamp:
        return
    view[MESSAGE_ATTRIBUTES_POSITION] = view[MESSAGE_ATTRIBUTES_POSITION] & ~APPEND_TIME_FLAG | flag
    OFFSET.pack_into(view, MESSAGE_TIMESTAMP_POSITION, timestamp)
    CRC.pack_into(view, MESSAGE_CRC_POSITION, zlib.crc32(view[MESSAGE_CRC_START:]))
