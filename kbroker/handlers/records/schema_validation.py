"""What `confluent.key.schema.validation` and `confluent.value.schema.validation` of a topic ask of a batch.

Each key, or value, that is not null names a schema that the registry has; what is behind the name is not looked at.
Here is what needs no waiting; `PartitionAppend` waits for the registry where an id is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker._fast.records.message_conversion import records_of_messages
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2
from kbroker._fast.records.schema_ids import NO_SCHEMA, unknown_schemas
from kbroker.errors import ErrorCode
from kbroker.records.compression import decompress
from kbroker.records.legacy import unwrap
from kbroker.storage.log.log_validator import (
    MAX_RECORD_ERRORS,
    RecordError,
    RecordValidationError,
    RejectedRecordsError,
    decompression_limit_bytes,
)

if TYPE_CHECKING:
    from kbroker.config import LogConfig
    from kbroker.registry.known_ids import KnownIds
    from kbroker.storage.log.log_validator import AnalyzedBatch

Unknown = tuple[int, bool, int]
"""Index of a record, whether it is about the key, and the id, or NO_SCHEMA."""


class UnnamedError(RejectedRecordsError):
    """Records name no schema that the registry has."""


class NoRegistryError(UnnamedError):
    """The broker's settings name no registry."""


class UnaskedError(RecordValidationError):
    """The registry does not say; the producer had better try again: nothing is wrong with its records."""

    code = ErrorCode.REQUEST_TIMED_OUT


def names_schemas(config: LogConfig) -> bool:
    """Whether a topic's keys or values have to."""
    return config.confluent_key_schema_validation or config.confluent_value_schema_validation


def unknown_in(analyzed: AnalyzedBatch, config: LogConfig, known: set[int]) -> list[Unknown]:
    """The keys and values of a judged batch whose id is not among `known`; control batches have none."""
    info = analyzed.info
    if info.magic == MAGIC_V2 and info.is_control:
        return []
    return unknown_schemas(
        _payload(analyzed),
        known,
        keys=config.confluent_key_schema_validation,
        values=config.confluent_value_schema_validation,
        most=MAX_RECORD_ERRORS,
    )


def _payload(analyzed: AnalyzedBatch) -> memoryview | bytes | bytearray:
    """The records, uncompressed, in the form of batches."""
    info, size = analyzed.info, analyzed.size_in_bytes
    view = memoryview(analyzed.view)[:size]
    limit = decompression_limit_bytes(size)
    if info.magic < MAGIC_V2:
        return records_of_messages(unwrap(view, info, limit) if info.compression else view)
    records = view[BATCH_OVERHEAD:]
    return decompress(info.compression, records, limit) if info.compression else records


def next_to_ask(found: Sequence[Unknown], ids: KnownIds | None, topic_partition: object) -> int | None:
    """An id that the registry has to be asked for, None where the batch may be stored.  RecordValidationError."""
    if not found:
        return None
    if ids is None:
        raise NoRegistryError(
            f"{topic_partition} takes records with schemas alone, and this broker has no confluent.schema.registry.url"
        )
    errors = [
        RecordError(index, _text(is_key, schema_id))
        for index, is_key, schema_id in found
        if schema_id == NO_SCHEMA or ids.lacks(schema_id)
    ]
    if errors:
        raise _refused(topic_partition, errors)
    return found[0][2]


def _refused(topic_partition: object, errors: list[RecordError]) -> UnnamedError:
    refused = UnnamedError(
        f"{len(errors)} records in the append to {topic_partition} name no schema of the registry, the first at "
        f"index {errors[0].batch_index} of the batch: {errors[0].message}"
    )
    refused.record_errors = errors
    return refused


def _text(is_key: bool, schema_id: int) -> str:
    side = "key" if is_key else "value"
    if schema_id == NO_SCHEMA:
        return f"The {side} does not begin with a zero byte and the id of a schema"
    return f"The {side} names schema {schema_id}, which the registry does not have"
