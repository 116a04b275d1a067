"""The schema of both data sources, Spark's side: the columns of Spark's Kafka connector."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kbroker.replay.columns import COLUMNS, TYPES
from kbroker.replay.sources.option_values import OptionError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
assert _SPARK_TYPES.keys() == TYPES.keys()


def schema_of(include_headers: bool) -> StructType:
    """The schema without a user's own."""
    names = (*COLUMNS, "headers") if include_headers else COLUMNS
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in names])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns to fill.  Columns that a user's own schema leaves out are not decoded; it may not add others.

    Raises OptionError."""
    for field in schema.fields:
        expected = _SPARK_TYPES.get(field.name)
        if expected is None:
            raise OptionError(f"the schema has a column {field.name!r}: there are {', '.join(_SPARK_TYPES)}")
        if field.dataType != expected:
            raise OptionError(
                f"the schema's column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}: "
                "convert it with DataFrame operations"
            )
    return tuple(field.name for field in schema.fields)
