"""`format("kbroker")`: topics of a broker as DataFrames, without a jar."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kbroker.replay.sources.batch_reader import BatchReader
from kbroker.replay.sources.option_values import OptionError, OptionValues
from kbroker.replay.sources.read_options import ReadOptions, parse
from kbroker.replay.sources.spark_schema import columns_of, schema_of
from kbroker.replay.sources.stream_reader import RefusedStream, StreamReader
from kbroker.replay.sources.workers import FromSpark
from kbroker.replay.sources.write_options import parse_write
from kbroker.replay.sources.writer import BatchWriter, StreamWriter


def stream_reader(options: ReadOptions, columns: tuple[str, ...]) -> StreamReader:
    """The reader that this Spark makes most of."""
    try:
        from kbroker.replay.sources.admission import AdmittingStreamReader
    except ImportError:
        return StreamReader(options, columns)
    return AdmittingStreamReader(options, columns)


class KbrokerSource(FromSpark, DataSource):
    """Options and columns mean what they do in Spark's Kafka connector: see `read_options` and `write_options`."""

    @classmethod
    def name(cls) -> str:
        return "kbroker"

    def schema(self) -> StructType:
        return schema_of(OptionValues(self.options).flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            return stream_reader(parse(self.options, streaming=True), columns_of(schema))
        except OptionError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("mode overwrite is not possible: a topic is only ever appended to; use mode append")
        return BatchWriter(parse_write(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # Output mode complete: each trigger writes the whole result, and what was written before stays, as with Spark's
        # own connector.
        return StreamWriter(parse_write(self.options, schema))
