"""The options of writing to a broker (`write_table`), as values: the checks of Spark's own Kafka connector.

Columns: `value` (string or binary, must be there), `key` (the same), `topic` (string; the option `topic` goes before
it), `partition` (int), `headers` (array of struct<key: string, value: binary>), `timestamp` with the option
`includeTimestamp`, which Spark's connector does not have: it writes the time of writing.  Other columns are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kbroker.client.cluster import ClientSettings
from kbroker.client.producer import ACKS_ALL, MAX_IN_FLIGHT, ProducerSettings
from kbroker.records.compression import Codec, codec_of
from kbroker.replay.sources.option_values import OptionError, OptionValues
from kbroker.replay.sources.read_options import parse_bootstrap_option, parse_client
from kbroker.replay.sources.write_table import WRITING

ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}
# The bounds of Kafka's settings `compression.<codec>.level`; gzip's -1 is its default, and 0 is none of them.
LEVELS = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131_072, 22)}
BATCH_BYTES = 256 << 10
REQUEST_BYTES = 1 << 20
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TEXT = (StringType, BinaryType)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All that a task that writes needs to know; picklable."""

    bootstrap: str
    client: ClientSettings
    producer: ProducerSettings
    topic: str | None
    batch_bytes: int
    include_timestamp: bool
    ignore_keys: bool = False


def parse_write(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    """OptionError, which says what to change, for anything that is wrong with the options or the columns."""
    values = OptionValues(options)
    WRITING.check(values)
    topic = (values.text("topic") or "").strip() or None
    with_timestamp = values.flag("includeTimestamp", False)
    check_columns(schema, topic, with_timestamp)
    acks = ACKS[values.choice("kafka.acks", ACKS, "all")]
    idempotent = values.flag("kafka.enable.idempotence", acks == ACKS_ALL)
    if idempotent and acks != ACKS_ALL:
        raise OptionError("kafka.enable.idempotence true needs kafka.acks all")
    request_bytes = values.count("kafka.max.request.size", REQUEST_BYTES, least=1024)
    in_flight = values.count("kafka.max.in.flight.requests.per.connection", MAX_IN_FLIGHT)
    if in_flight > MAX_IN_FLIGHT:
        raise OptionError(f"kafka.max.in.flight.requests.per.connection is at most {MAX_IN_FLIGHT}, not {in_flight}")
    codec = _codec(values)
    client = parse_client(values)
    return WriteOptions(
        bootstrap=parse_bootstrap_option(values),
        client=replace(client, patience_s=values.count("kafka.max.block.ms", round(client.patience_s * 1000)) / 1000),
        producer=ProducerSettings(
            acks=acks,
            idempotent=idempotent,
            codec=codec,
            level=_level(values, codec),
            max_in_flight=in_flight,
            max_request_bytes=request_bytes,
            buffer_bytes=values.count("kafka.buffer.memory", 32 << 20, least=1024),
            request_timeout_s=values.count("kafka.request.timeout.ms", 30_000) / 1000,
            delivery_timeout_s=values.count("kafka.delivery.timeout.ms", 120_000) / 1000,
        ),
        topic=topic,
        batch_bytes=min(values.count("kafka.batch.size", BATCH_BYTES, least=1), request_bytes),
        include_timestamp=with_timestamp,
        ignore_keys=values.flag("kafka.partitioner.ignore.keys", False),
    )


def check_columns(schema: StructType, topic: str | None, with_timestamp: bool) -> None:
    """The rules of Spark's connector on columns and their types.  Raises OptionError."""
    names = schema.fieldNames()
    if "value" not in names:
        raise OptionError(f"there is no column named value to write: the columns are {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise OptionError("nothing says where to write: give the option topic, or a column named topic")
    if with_timestamp and "timestamp" not in names:
        raise OptionError("includeTimestamp is true, but there is no column named timestamp")
    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        if wanted is None or (field.name == "timestamp" and not with_timestamp):
            continue
        fits = isinstance(field.dataType, wanted)
        if fits and isinstance(field.dataType, ArrayType):
            fits = _plain(field.dataType) == _plain(_HEADERS)
        if not fits:
            expected = (
                _HEADERS.simpleString()
                if field.name == "headers"
                else " or ".join(kind().simpleString() for kind in wanted)
            )
            raise OptionError(f"column {field.name} is {field.dataType.simpleString()}, it has to be {expected}")


def _plain(kind: DataType) -> str:
    return kind.simpleString()


def _codec(values: OptionValues) -> Codec:
    name = (values.text("kafka.compression.type") or "none").strip().lower()
    try:
        return codec_of(name)
    except ValueError:
        raise OptionError(
            f"kafka.compression.type is one of {', '.join(codec.name.lower() for codec in Codec)}, not {name!r}"
        ) from None


def _level(values: OptionValues, codec: Codec) -> int | None:
    """The level for this codec; those of other codecs are looked at, too.  OptionError beyond the bounds."""
    levels: dict[Codec, int | None] = {}
    for each, (least, most) in LEVELS.items():
        option = f"kafka.compression.{each.name.lower()}.level"
        level = levels[each] = values.number(option, least=least)
        if level is not None and (level > most or (each is Codec.GZIP and level == 0)):
            raise OptionError(f"option {option} is at most {most}, and not {level}")
    return levels.get(codec)
