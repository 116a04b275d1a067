"""Validation of what a producer (or the broker itself) wants to append, and the offsets it gets.

Two steps, so that the first may run on a thread when it takes long (a large compressed batch):

1. `validate_and_analyze` judges the bytes by the topic's configuration and touches no partition state.  It brings them
   into the form that is stored: compressed as `compression.type` asks, with the timestamp type of the topic.
2. `assign_offsets` writes base offset and leader epoch in place.  That is all that is left to do on the loop.

The common case, an uncompressed batch from a producer kept as it is, is two calls into `_fast`, of which the second
has the rules of the fast path; only a batch that breaks a rule is looked at record by record, to tell the producer
which ones.

Checks, order and texts are those of Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and
LogValidator.  Two rules are stricter than Kafka's.  Offset deltas must count 0, 1, 2 … (Kafka stores an uncompressed
batch with others, and its consumers then see offsets twice or never).  A compressed batch may not expand without bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.log.batch_rules import (
    ClientFault,
    check_codec,
    check_keys,
    check_stored_as_sent,
    check_times,
    find_client_fault,
)
from kbroker._fast.log.log_fields import AppendRules
from kbroker._fast.records.compressed_walk import walk_compressed
from kbroker._fast.records.record_batch import (
    BATCH_OVERHEAD,
    MAGIC_V2,
    BatchError,
    BatchInfo,
    CorruptBatchError,
    InvalidRecordsError,
    OldMagicError,
    TruncatedBatchError,
    read_header,
    seal,
    stamp,
    stamp_timestamps,
    validate,
)
from kbroker._fast.records.record_stream import RecordWalker, walk_decompressed
from kbroker.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from kbroker.records.codec_libraries import native_codecs_loaded
from kbroker.records.compression import (
    Codec,
    CompressionError,
    DecompressionLimitError,
    codec_of,
    compress,
    compressor,
    iter_decompress,
)
from kbroker.records.layout import ATTRIBUTES_LOW_POSITION
from kbroker.storage.log.detached_batch import DETACHED_BYTES, DetachedBatch
from kbroker.types import NO_TIMESTAMP, LeaderEpoch, Offset

if TYPE_CHECKING:
    from kbroker.config import LogConfig

COMPRESSION_MASK = 0x07
KEEPS_UNCOMPRESSED = frozenset({"producer", "uncompressed"})
CREATE_TIME = "CreateTime"
ZSTD = Codec.ZSTD
MIN_LONG = -(2**63)
MAX_LONG = 2**63 - 1
LATEST_PRODUCE_VERSION = 13

# An answer names at most so many records of a refused batch (Kafka names all, however many).
MAX_RECORD_ERRORS = 2000

# From this size on, judging a batch by way of a codec may take longer than the event loop can spare.
LONG_BATCH_BYTES = 65536
EXPANSION_RATIO = 128
MIN_EXPANSION_BYTES = EXPANSION_RATIO * LONG_BATCH_BYTES


class AppendOrigin(IntEnum):
    """Who appends.  What a client may not do (control batches, base offsets of its own) the broker may."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class AnalyzedBatch:
    """A batch fit to be stored: `view` holds its bytes, writable, `info` its header and what the walk found.

    `needs_rebuild` is True when `view` is not the producer's bytes, because the batch was recompressed; its size may
    then differ from what the producer sent.  `detached` is the file that a thread has written a large batch to.
    """

    __slots__ = (
        "detached",
        "conversion_seconds",
        "info",
        "needs_rebuild",
        "size_in_bytes",
        "source_codec",
        "target_codec",
        "view",
    )

    def __init__(
        self,
        info: BatchInfo,
        view: memoryview | bytearray,
        source_codec: int,
        target_codec: int,
        needs_rebuild: bool,
        size_in_bytes: int,
    ) -> None:
        self.detached: DetachedBatch | None = None
        # How long it took to bring it from one message format to another; 0 where that was not needed.
        self.conversion_seconds = 0.0
        self.info = info
        self.view = view
        self.source_codec = source_codec
        self.target_codec = target_codec
        self.needs_rebuild = needs_rebuild
        self.size_in_bytes = size_in_bytes

    @property
    def is_one(self) -> bool:
        """Whether a reader finds all of it at one place."""
        return True

    def stamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> memoryview | bytearray:
        """Gives the batch its place in the log; the bytes are then ready to be written."""
        stamp(self.view, 0, base_offset, leader_epoch, self.info)
        return self.view


class RecordError(NamedTuple):
    """What is wrong with one record of a refused batch."""

    batch_index: int
    message: str


class UnfitRequestError(InvalidRecordError):
    """Not what a produce request of its version may carry, to any topic."""


class UnreadableBatchError(CorruptMessageError):
    """No batch of the request can be separated from the next: the request comes to no log."""


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
    rules: AppendRules | None = None,
) -> AnalyzedBatch:
    """Judges the one batch in `view` (writable) and gives it in the form to be stored.  Raises KafkaError subclasses.

    `topic_partition` is only put into error texts.  `rules`: those of `config`, where the caller has them; most batches
    need no closer look then.
    """
    try:
        info = validate(view)
    except BatchError as error:
        _validate_header(
            view, _header_of(view, error, produce_version), error, config, origin, topic_partition, produce_version
        )
        raise InvalidRecordError(str(error)) from error
    size = info.size_in_bytes
    if rules is not None and size == len(view) and check_stored_as_sent(rules, info, size, now_ms):
        return AnalyzedBatch(info, view, 0, 0, False, size)
    _validate_header(view, info, None, config, origin, topic_partition, produce_version)
    if size != len(view):
        # What follows is a batch that was cut off, which Kafka drops.
        view = memoryview(view)[:size]
    return _analyze_fully(view, info, config, now_ms, topic_partition)


def assign_offsets(analyzed: AnalyzedBatch, base_offset: Offset, leader_epoch: LeaderEpoch) -> memoryview | bytearray:
    """See `AnalyzedBatch.stamp`."""
    return analyzed.stamp(base_offset, leader_epoch)


def append_rules(config: LogConfig) -> AppendRules | None:
    """What `_fast.log.fast_append` asks of a batch; None where it takes none, as the broker changes what it stores,
    or looks into the records."""
    keeps = config.compression_type in KEEPS_UNCOMPRESSED and config.message_timestamp_type == CREATE_TIME
    if config.confluent_key_schema_validation or config.confluent_value_schema_validation:
        return None  # Its records are read, and the registry may have to be asked.
    if not keeps or config.message_magic < MAGIC_V2:
        return None
    return AppendRules(
        min(config.max_message_bytes, DETACHED_BYTES - 1),
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
        config.roll_bytes,
        config.compact,
        LONG_BATCH_BYTES,
        MIN_EXPANSION_BYTES if config.compression_type == "producer" else 0,
    )


def takes_long(view: memoryview | bytearray, config: LogConfig) -> bool:
    """Whether a batch belongs in a thread: it is large, and a codec has to run over it, or to write it takes long."""
    return len(view) >= LONG_BATCH_BYTES and (
        len(view) >= DETACHED_BYTES
        or view[ATTRIBUTES_LOW_POSITION] & COMPRESSION_MASK != 0
        or config.compression_type not in KEEPS_UNCOMPRESSED
    )


def decompression_limit_bytes(size_bytes: int) -> int:
    """What a compressed batch of `size_bytes` may expand to.

    The smallest bound is what the event loop can afford, since batches below LONG_BATCH_BYTES are validated there.  A
    client whose honest data compresses better gets MESSAGE_TOO_LARGE, upon which Java's producer splits the batch and
    goes on.
    """
    return max(MIN_EXPANSION_BYTES, EXPANSION_RATIO * size_bytes)


def _analyze_fully(
    view: memoryview | bytearray, info: BatchInfo, config: LogConfig, now_ms: int, topic_partition: object
) -> AnalyzedBatch:
    """All that the common case does not need: codecs, the topic's timestamp type, and who is to blame."""
    source = info.compression
    target = _target_codec(info, config)
    stored: memoryview | bytearray = view
    if source or target != source:
        try:
            if source == target:
                _walk(view, info)
            else:
                stored = _recompress(view, info, config, target, topic_partition)
        except DecompressionLimitError as error:
            raise MessageTooLargeError(f"{error} in topic partition {topic_partition}") from error
        except CompressionError as error:
            raise InvalidRecordError(f"{error} in topic partition {topic_partition}") from error
        except InvalidRecordsError as error:
            raise InvalidRecordError(str(error)) from error
    _validate_records(view, info, source, config, now_ms, topic_partition)
    _settle_timestamps(stored, info, config, now_ms)
    return AnalyzedBatch(info, stored, source, target, stored is not view, len(stored))


def _target_codec(info: BatchInfo, config: LogConfig) -> int:
    source = info.compression
    if source > ZSTD:
        raise UnsupportedCompressionTypeError(f"Unknown compression type id: {source}")
    if config.compression_type == "producer" or (source == Codec.NONE and info.is_control):
        return source
    return codec_of(config.compression_type)


def _walk(view: memoryview | bytearray, info: BatchInfo) -> None:
    """Judges the records of a compressed batch: in C where its codec is read there and all is well."""
    native = info.compression in native_codecs_loaded()
    if not (native and walk_compressed(info, view, decompression_limit_bytes(len(view)))):
        walk_decompressed(info, _payload(view, info))


def _payload(view: memoryview | bytearray, info: BatchInfo, codec: int | None = None) -> Iterator[bytes | memoryview]:
    """The records of a batch, decompressed, in chunks."""
    limit_bytes = decompression_limit_bytes(len(view))
    return iter_decompress(info.compression if codec is None else codec, memoryview(view)[BATCH_OVERHEAD:], limit_bytes)


def _recompress(
    view: memoryview | bytearray, info: BatchInfo, config: LogConfig, target: int, topic_partition: object
) -> bytearray:
    """The same records under another codec; `info` becomes the new batch's.  The records are walked in passing."""
    out = bytearray(memoryview(view)[:BATCH_OVERHEAD])
    level = level_of(target, config)
    if info.compression:
        walker = RecordWalker(info)
        encoder = compressor(target, level)
        for chunk in _payload(view, info):
            walker.feed(chunk)
            out += encoder.compress(chunk)
            validate_rebuilt_size(len(out), config, topic_partition)
        out += encoder.flush()
    else:
        # Such a batch was walked before, as a whole.
        out += compress(target, memoryview(view)[BATCH_OVERHEAD:], level)
    validate_rebuilt_size(len(out), config, topic_partition)
    if info.compression:
        walker.finish()
    seal(out, target, info)
    return out


def validate_rebuilt_size(size: int, config: LogConfig, topic_partition: object) -> None:
    """Raises MessageTooLargeError where a batch that was made anew is larger than the topic allows."""
    if size > config.max_message_bytes:
        raise MessageTooLargeError(
            f"Message batch size is {size} bytes in append to partition {topic_partition}, which exceeds the maximum "
            f"configured size of {config.max_message_bytes}."
        )


def level_of(codec: int, config: LogConfig) -> int | None:
    """The level at which a topic's batches are compressed; None for codecs without levels."""
    if codec == Codec.GZIP:
        return config.compression_gzip_level
    if codec == Codec.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec == ZSTD else None


def _settle_timestamps(view: memoryview | bytearray, info: BatchInfo, config: LogConfig, now_ms: int) -> None:
    """Writes the topic's timestamp type and the true maximum, where the batch has others."""
    if config.message_timestamp_type != CREATE_TIME:
        stamp_timestamps(view, 0, 1, now_ms, info)
    elif info.timestamp_type:
        stamp_timestamps(view, 0, 0, info.max_timestamp, info)
    elif info.max_record_timestamp != info.max_timestamp:
        stamp_timestamps(view, 0, 0, info.max_record_timestamp, info)


def _validate_records(
    view: memoryview | bytearray,
    info: BatchInfo,
    source: int,
    config: LogConfig,
    now_ms: int,
    topic_partition: object,
) -> None:
    """Raises, with the records concerned, when timestamps or keys break the topic's rules."""
    append_time = config.message_timestamp_type != CREATE_TIME
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    keyless = not check_keys(config.compact, info.keyless_count)
    claimed = info.max_timestamp if info.timestamp_type else None
    bounds = now_ms, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if append_time:
        untimely = claimed is not None
    elif claimed is not None:
        # Of a batch that claims append time, the header's time is every record's.
        untimely = claimed == NO_TIMESTAMP or not check_times(claimed, claimed, *bounds)
    else:
        untimely = not check_times(info.min_record_timestamp, info.max_record_timestamp, *bounds)
    if not untimely and not keyless:
        return
    walker = RecordWalker(
        info,
        collect=MAX_RECORD_ERRORS,
        every=untimely and claimed is not None,
        require_key=keyless,
        earliest=MIN_LONG if append_time else max(earliest, MIN_LONG),
        latest=MAX_LONG if append_time else min(latest, MAX_LONG),
    )
    for chunk in _payload(view, info, source):
        walker.feed(chunk)
    errors: list[RecordError] = []
    for index, timestamp, key_length, value_length in walker.findings:
        if keyless and key_length < 0:
            text = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
        elif claimed is not None and (append_time or claimed == NO_TIMESTAMP):
            kind = "PartialDefaultRecord" if source else "DefaultRecord"
            text = (
                f"Invalid timestamp type in message {kind}(offset={index}, timestamp={claimed}, "
                f"key={max(key_length, 0)} bytes, value={max(value_length, 0)} bytes). "
                "Producer should not set timestamp type to LogAppendTime."
            )
        else:
            text = (
                f"Timestamp {timestamp if claimed is None else claimed} of message with offset {index} is out of "
                f"range. The timestamp should be within [{earliest}, {latest}]"
            )
        errors.append(RecordError(index, text))
    raise _rejection(errors, untimely, info.keyless_count)


def _rejection(errors: list[RecordError], untimely: bool, keyless_count: int) -> RecordValidationError:
    error: RecordValidationError
    if untimely:
        error = RejectedTimestampsError("One or more records have been rejected due to invalid timestamp")
    else:
        first = ", ".join(f"RecordError(batchIndex={e.batch_index}, message='{e.message}')" for e in errors[:3])
        error = RejectedRecordsError(
            f"One or more records have been rejected due to {keyless_count} record errors in total, "
            f"and only showing the first three errors at most: [{first}]"
        )
    error.record_errors = errors
    return error


def _header_of(view: memoryview | bytearray, error: BatchError, produce_version: int) -> BatchInfo:
    """The header of a batch with an error.  Raises where there is none of format 2."""
    version = f"Produce requests with version {produce_version}"
    if isinstance(error, TruncatedBatchError):
        raise UnfitRequestError(f"{version} must have at least one record batch per partition") from error
    if isinstance(error, OldMagicError):
        raise UnfitRequestError(f"{version} are only allowed to contain record batches with magic version 2") from error
    try:
        return read_header(view)
    except BatchError as unreadable:
        raise UnreadableBatchError(str(unreadable)) from unreadable


def _validate_header(
    view: memoryview | bytearray,
    info: BatchInfo,
    error: BatchError | None,
    config: LogConfig,
    origin: AppendOrigin,
    topic_partition: object,
    produce_version: int,
) -> None:
    """Raises for the first rule, in Kafka's order, that a batch breaks by its header: of the request, then base offset,
    size, checksum, counts, kind and sequence.  `error`: what `validate` has found."""
    if not check_codec(info.compression, produce_version):
        raise UnsupportedCompressionTypeError(
            f"Produce requests with version {produce_version} are not allowed to use ZStandard compression"
        ) from error
    if info.size_in_bytes != len(view):
        _validate_alone(view, info.size_in_bytes, produce_version)
    fault = find_client_fault(info) if origin is AppendOrigin.CLIENT else ClientFault.CLIENT_FAULT_NONE
    if fault == ClientFault.CLIENT_FAULT_BASE_OFFSET:
        raise _client_refusal(fault, info, topic_partition) from error
    if info.size_in_bytes > config.max_message_bytes:
        raise too_large(info.size_in_bytes, config, topic_partition) from error
    if isinstance(error, CorruptBatchError):
        raise CorruptMessageError(f"{error} in topic partition {topic_partition}.") from error
    if isinstance(error, InvalidRecordsError) and error.batch_level:
        raise InvalidRecordError(f"{error} in topic partition {topic_partition}") from error
    if fault:
        raise _client_refusal(fault, info, topic_partition) from error


def _client_refusal(fault: int, info: BatchInfo, topic_partition: object) -> KafkaError:
    if fault == ClientFault.CLIENT_FAULT_BASE_OFFSET:
        return InvalidRecordError(
            f"The baseOffset of the record batch in the append to {topic_partition} should be 0, "
            f"but it is {info.base_offset}"
        )
    if fault == ClientFault.CLIENT_FAULT_CONTROL:
        return InvalidRecordError(
            f"Clients are not allowed to write control records in topic partition {topic_partition}"
        )
    return InvalidRecordError(
        f"Invalid sequence number {info.base_sequence} in record batch with producerId {info.producer_id}"
    )


def too_large(size: int, config: LogConfig, topic_partition: object) -> KafkaError:
    """The refusal of a batch as it came."""
    return MessageTooLargeError(
        f"The record batch size in the append to {topic_partition} is {size} bytes which exceeds the maximum "
        f"configured value of {config.max_message_bytes})."
    )


def _validate_alone(view: memoryview | bytearray, size: int, produce_version: int) -> None:
    """Raises where another whole batch follows the one of `size` bytes."""
    try:
        read_header(view, size)
    except TruncatedBatchError:
        return
    except OldMagicError:
        pass
    except BatchError as error:
        raise UnreadableBatchError(str(error)) from error
    raise UnfitRequestError(
        f"Produce requests with version {produce_version} are only allowed to contain exactly one record batch "
        "per partition"
    )
