"""`format("kbroker")`: topics of a broker as DataFrames, without a jar."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from kbroker.replay.sources.batch_reader import BatchReader
from kbroker.replay.sources.option_values import OptionValues
from kbroker.replay.sources.read_options import parse
from kbroker.replay.sources.spark_schema import columns_of, schema_of
from kbroker.replay.sources.stream_reader import StreamReader


class KbrokerSource(DataSource):
    """Options, columns and their meanings are those of Spark's Kafka connector: see `read_options`."""

    @classmethod
    def name(cls) -> str:
        return "kbroker"

    def schema(self) -> StructType:
        return schema_of(OptionValues(self.options).flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(parse(self.options, streaming=True), columns_of(schema))
