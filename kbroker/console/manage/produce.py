"""Records, written as a producer with acks=all does."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kbroker.console.manage.context import plural
from kbroker.console.manage.fields import Fields
from kbroker.console.manage.key_partition import partition_of
from kbroker.console.manage.plan import Action, Done, Plan, Table
from kbroker.console.parameters import BadParameterError
from kbroker.console.schemas.subjects import ask, registry_of
from kbroker.errors import KafkaError, refuse
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.compression import Codec
from kbroker.registry.encoders import encoder_from
from kbroker.registry.errors import UnencodableError
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.types import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.console.manage.context import Context
    from kbroker.metadata.image import TopicImage
    from kbroker.registry.encoders import Encoder

MOST_RECORDS = 5_000
MOST_HEADERS = 1_000
ALL_IN_SYNC = -1
CODECS = tuple(codec.name.lower() for codec in Codec)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A record; `timestamp` is None where it is the time of writing."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int | None

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + sum(len(n) + len(v or b"") for n, v in self.headers)


@dataclass(frozen=True, slots=True)
class _Encoding:
    """What encodes keys and values; None where they are taken as they come."""

    key: Encoder | None
    value: Encoder | None

    def key_of(self, row: Fields) -> bytes | None:
        """Of one record.  BadParameterError."""
        return _encoded("key", row, self.key)

    def value_of(self, row: Fields) -> bytes | None:
        """The same of its value."""
        return _encoded("value", row, self.value)


def _encoded(name: str, row: Fields, encoder: Encoder | None) -> bytes | None:
    if encoder is None or row.values.get(name) is None:
        return row.data(name)
    try:
        # A text that is empty is JSON of no kind, and says so.
        return encoder(row.text(name, ""))
    except UnencodableError as error:
        raise BadParameterError(f"the {name}: {error}") from None


async def _encoding(context: Context, fields: Fields) -> _Encoding:
    """By `key_schema` and `value_schema`, ids of the registry.  BadParameterError, NotShownError, KafkaError."""
    made: list[Encoder | None] = []
    for name in ("key_schema", "value_schema"):
        schema_id = fields.number(name, 0, 0, (1 << 31) - 1)
        registry = registry_of(context.parts) if schema_id else None
        made.append(None if registry is None else await ask(partial(encoder_from, registry, schema_id)))
    return _Encoding(*made)


async def _schema_ids(context: Context, fields: Fields) -> dict[str, int]:
    """Those that the fields name, or the latest of the subjects that they name, by the names of the fields."""
    found = {}
    for part in ("key", "value"):
        schema_id = fields.number(f"{part}_schema", 0, 0, (1 << 31) - 1)
        subject = fields.text(f"{part}_subject", "")
        if not schema_id and subject:
            schema_id = (await ask(partial(registry_of(context.parts).version, subject))).schema_id
        if schema_id:
            found[f"{part}_schema"] = schema_id
    return found


def _records(fields: Fields, topic: TopicImage, encoding: _Encoding) -> list[_Wanted]:
    rows = fields.rows("records")
    if not 0 < len(rows) <= MOST_RECORDS:
        raise BadParameterError(f"records must be a list of 1 to {MOST_RECORDS} objects")
    count = len(topic.partitions)
    # As producers do: records without a key stay together.
    together = random.randrange(count)
    found = []
    for row in rows:
        key = encoding.key_of(row)
        partition = row.number("partition", -1, 0, 1 << 31)
        if partition >= count:
            raise BadParameterError(f"{topic.name} has no partition {partition}")
        if partition < 0:
            partition = together if key is None else partition_of(key, count)
        headers = row.rows("headers")
        if len(headers) > MOST_HEADERS:
            raise BadParameterError(f"a record may have {MOST_HEADERS} headers here")
        timestamp = row.number("timestamp", -1, 0)
        found.append(
            _Wanted(
                partition,
                key,
                encoding.value_of(row),
                [(each.text("name", ""), each.data("value")) for each in headers],
                None if timestamp < 0 else timestamp,
            )
        )
    return found


async def plan_writing(context: Context, fields: Fields) -> Plan:
    """Where each record goes, by its key as Kafka's own producers choose."""
    topic = context.topic(fields.text("topic"))
    context.require(Operation.WRITE, ResourceKind.TOPIC, topic.name)
    ids = await _schema_ids(context, fields)
    fields = Fields({**fields.values, **ids})
    encoding = await _encoding(context, fields)
    return await asyncio.get_running_loop().run_in_executor(None, _plan, fields, topic, encoding, ids)


def _plan(fields: Fields, topic: TopicImage, encoding: _Encoding, ids: dict[str, int]) -> Plan:
    """Pure, for a thread, as there may be megabytes of records."""
    compression = fields.choice("compression", CODECS)
    records = _records(fields, topic, encoding)
    by_partition: dict[int, list[_Wanted]] = {}
    for record in records:
        by_partition.setdefault(record.partition, []).append(record)
    warnings = []
    if topic.is_internal:
        warnings.append("It is an internal topic: what is no record of the broker's own there can break it.")
    if "compact" in topic.configs.get("cleanup.policy", "") and any(each.key is None for each in records):
        warnings.append("The topic is compacted, and takes no records without a key.")
    empty = sum(each.value is None for each in records)
    if empty:
        warnings.append(
            f"{plural(empty, 'record has', 'records have')} no value: on a compacted topic they delete keys."
        )
    rows = [
        (index, len(each), sum(record.size_bytes for record in each)) for index, each in sorted(by_partition.items())
    ]
    resolved = [
        {**row.values, "partition": record.partition}
        for row, record in zip(fields.rows("records"), records, strict=True)
    ]
    return Plan(
        f"Produce to {topic.name}",
        [
            f"{plural(len(records), 'record is', 'records are')} written to {topic.name}, "
            f"{'as they are' if compression == 'none' else f'compressed by {compression}'}, and acknowledged by all "
            "replicas that are in sync.",
            *(f"Each {name.removesuffix('_schema')} is written by schema {number}." for name, number in ids.items()),
            "Consumers get them at once; no record can be taken back.",
        ],
        {"topic": topic.name, "compression": compression, **ids, "records": resolved},
        [uuid_to_text(topic.topic_id), len(topic.partitions)],
        warnings,
        Table(("Partition", "Records", "Bytes"), rows),
        button="Produce",
    )


async def write(context: Context, fields: Fields, plan: Plan) -> Done:
    """One batch for each partition."""
    topic = context.topic(fields.text("topic"))
    rows, failures = [], []
    work = partial(_batches, fields, topic, await _encoding(context, fields))
    for index, count, records in await asyncio.get_running_loop().run_in_executor(None, work):
        try:
            first = await context.client.patiently(partial(_write_batch, context, topic, index, records))
        except KafkaError as error:
            failures.append(f"Partition {index}: {error.code.name}: {error}")
        else:
            rows.append((index, count, first))
    written = sum(row[1] for row in rows)
    return Done(
        [f"{plural(written, 'record is', 'records are')} written."] if rows else [],
        Table(("Partition", "Records", "First offset"), rows),
        failures,
    )


def _batches(fields: Fields, topic: TopicImage, encoding: _Encoding) -> list[tuple[int, int, bytes]]:
    """Of each partition its number, the number of records, and their batch.  For a thread, which compresses them."""
    codec = Codec[fields.choice("compression", CODECS).upper()]
    now_ms = int(time.time() * 1000)
    batches: dict[int, RecordBatchBuilder] = {}
    for each in _records(fields, topic, encoding):
        batch = batches.setdefault(each.partition, RecordBatchBuilder(compression=codec))
        batch.append(each.key, each.value, now_ms if each.timestamp is None else each.timestamp, each.headers)
    return [(index, batch.count, bytes(batch.build())) for index, batch in sorted(batches.items())]


async def _write_batch(context: Context, topic: TopicImage, index: int, records: bytes) -> int:
    """The first offset.  KafkaError."""
    request = wire.ProduceRequest
    data = request.PartitionProduceData(index=index, records=memoryview(records))
    answer = await context.client.ask(
        wire.ProduceResponse,
        request(
            transactional_id=None,
            acks=ALL_IN_SYNC,
            timeout_ms=context.client.timeout_ms,
            topic_data=[request.TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])],
        ),
        context.client.leader_of(topic.name, index),
    )
    row = answer.responses[0].partition_responses[0]
    refuse(row.error_code, row.error_message)
    return row.base_offset


ACTIONS = {"produce": Action(plan_writing, write)}
