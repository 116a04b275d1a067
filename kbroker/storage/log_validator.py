"""Validation of what a producer (or the broker itself) wants to append, and the offsets it gets.

Two steps, so that the first may run away from the event loop when it is long (a large compressed batch):

1. `validate_and_analyze` judges the bytes by the topic's configuration and touches no partition state.  It brings them
   into the form that is stored: compressed as `compression.type` asks, with the timestamp type of the topic.
2. `assign_offsets` writes base offset and leader epoch in place.  That is all that is left to do on the loop.

The common case, an uncompressed batch from a producer kept as it is, is one call into `_fast.record_batch` and a few
comparisons; only a batch that breaks a rule is looked at record by record, to tell the producer which ones.

Checks, order and texts are those of Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and
LogValidator.  Stricter than Kafka: offset deltas must count 0, 1, 2 … (Kafka stores an uncompressed batch that does not
do so, and its readers then see offsets twice or never), and a compressed batch may not expand without bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.record_batch import (
    BatchError,
    BatchInfo,
    CorruptBatchError,
    InvalidRecordsError,
    OldMagicError,
    TruncatedBatchError,
    read_header,
    stamp,
    validate,
)
from kbroker.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)

if TYPE_CHECKING:
    from kbroker.config import LogConfig

COMPRESSION_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_OF_TYPE = {"uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ZSTD = 4
LATEST_PRODUCE_VERSION = 13
FIRST_PRODUCE_VERSION_WITH_ZSTD = 7


class AppendOrigin(IntEnum):
    """Who appends.  What a client may not do (control batches, base offsets of its own) the broker may."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class AnalyzedBatch:
    """A batch fit to be stored: `view` holds its bytes, writable, `info` its header and what the walk found.

    `needs_rebuild` is True when `view` is not the producer's bytes, because the batch was recompressed; its size may
    then differ from what the producer sent.
    """

    __slots__ = ("info", "needs_rebuild", "size_in_bytes", "source_codec", "target_codec", "view")

    def __init__(
        self,
        info: BatchInfo,
        view: memoryview | bytearray,
        source_codec: int,
        target_codec: int,
        needs_rebuild: bool,
        size_in_bytes: int,
    ) -> None:
        self.info = info
        self.view = view
        self.source_codec = source_codec
        self.target_codec = target_codec
        self.needs_rebuild = needs_rebuild
        self.size_in_bytes = size_in_bytes


class RecordError(NamedTuple):
    """What is wrong with one record of a refused batch."""

    batch_index: int
    message: str


class RecordValidationError(KafkaError):
    """Some records of a batch break a rule of the topic; the answer names each of them."""

    record_errors: Sequence[RecordError] = ()


class RejectedRecordsError(RecordValidationError, InvalidRecordError):
    code = ErrorCode.INVALID_RECORD


class RejectedTimestampsError(RecordValidationError, InvalidTimestampError):
    code = ErrorCode.INVALID_TIMESTAMP


def validate_and_analyze(
    view: memoryview | bytearray,
    config: LogConfig,
    now_ms: int,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    topic_partition: object = "",
    produce_version: int = LATEST_PRODUCE_VERSION,
) -> AnalyzedBatch:
    """Judges the one batch in `view` (writable) and gives it in the form to be stored.  Raises KafkaError subclasses.

    `topic_partition` is only put into error texts.
    """
    try:
        info = validate(view)
    except BatchError as error:
        raise _refusal(error, view, config, origin, topic_partition, produce_version) from error
    size = info.size_in_bytes
    if size != len(view):
        view = _only_batch(view, size, produce_version)
    if origin is AppendOrigin.CLIENT and (info.base_offset or info.is_control):
        raise _client_refusal(info, topic_partition)
    if size > config.max_message_bytes:
        raise _too_large(size, config, topic_partition)
    compression_type = config.compression_type
    if (
        not info.compression
        and (compression_type == "producer" or compression_type == "uncompressed")
        and not info.timestamp_type
        and not config.log_append_time
        and info.max_record_timestamp == info.max_timestamp
        and info.max_timestamp <= now_ms + config.message_timestamp_after_max_ms
        and info.min_record_timestamp >= now_ms - config.message_timestamp_before_max_ms
        and not (info.keyless_count and config.compact)
    ):
        return AnalyzedBatch(info, view, 0, 0, False, size)
    raise InvalidRecordError("not the common case")


def assign_offsets(analyzed: AnalyzedBatch, base_offset: int, leader_epoch: int) -> memoryview | bytearray:
    """Gives the batch its place in the log; the bytes are then ready to be written."""
    stamp(analyzed.view, 0, base_offset, leader_epoch, analyzed.info)
    return analyzed.view


def _refusal(
    error: BatchError,
    view: memoryview | bytearray,
    config: LogConfig,
    origin: AppendOrigin,
    topic_partition: object,
    produce_version: int,
) -> KafkaError:
    """The client's error for a bad batch, judged in Kafka's order: request, size, checksum, records."""
    version = f"Produce requests with version {produce_version}"
    if isinstance(error, TruncatedBatchError):
        return InvalidRecordError(f"{version} must have at least one record batch per partition")
    if isinstance(error, OldMagicError):
        return InvalidRecordError(f"{version} are only allowed to contain record batches with magic version 2")
    try:
        info = read_header(view)
    except BatchError:
        return CorruptMessageError(str(error))
    if info.compression == ZSTD and produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
        return UnsupportedCompressionTypeError(f"{version} are not allowed to use ZStandard compression")
    if origin is AppendOrigin.CLIENT and info.base_offset:
        return _client_refusal(info, topic_partition)
    if info.size_in_bytes > config.max_message_bytes:
        return _too_large(info.size_in_bytes, config, topic_partition)
    if isinstance(error, CorruptBatchError):
        return CorruptMessageError(f"{error} in topic partition {topic_partition}.")
    if isinstance(error, InvalidRecordsError) and error.batch_level:
        return InvalidRecordError(f"{error} in topic partition {topic_partition}")
    if origin is AppendOrigin.CLIENT and info.is_control:
        return _client_refusal(info, topic_partition)
    return InvalidRecordError(str(error))


def _client_refusal(info: BatchInfo, topic_partition: object) -> KafkaError:
    if info.base_offset:
        return InvalidRecordError(
            f"The baseOffset of the record batch in the append to {topic_partition} should be 0, "
            f"but it is {info.base_offset}"
        )
    return InvalidRecordError(f"Clients are not allowed to write control records in topic partition {topic_partition}")


def _too_large(size: int, config: LogConfig, topic_partition: object) -> KafkaError:
    return MessageTooLargeError(
        f"The record batch size in the append to {topic_partition} is {size} bytes which exceeds the maximum "
        f"configured value of {config.max_message_bytes})."
    )


def _only_batch(view: memoryview | bytearray, size: int, produce_version: int) -> memoryview:
    """`view` without what follows its batch: cut-off bytes are dropped as Kafka does, a second batch is refused."""
    try:
        read_header(view, size)
    except TruncatedBatchError:
        return memoryview(view)[:size]
    except OldMagicError:
        pass
    except BatchError as error:
        raise CorruptMessageError(str(error)) from error
    raise InvalidRecordError(
        f"Produce requests with version {produce_version} are only allowed to contain exactly one record batch "
        "per partition"
    )
