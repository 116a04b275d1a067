"""`read_trace`: files or topics to a `Trace`, the records of the common schema and the rows that were none."""

from __future__ import annotations

import csv
from collections.abc import Mapping as Mappings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructField, StructType

from kbroker.replay.trace_schema import KINDS, MALFORMED_SCHEMA, RAW_LIMIT, TRACE_SCHEMA
from kbroker.replay.traces.entries import EntryRule
from kbroker.replay.traces.entry_frame import NO_MATCH, entry_frame
from kbroker.replay.traces.errors import TraceError, reason_of
from kbroker.replay.traces.files import FilePlan, TraceFile, list_files, plan_files, read_head
from kbroker.replay.traces.mapping import CsvRule, Mapping, find_mapping
from kbroker.replay.traces.records import lenient, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAD_BYTES = 1 << 20
"""How much of the first file is looked at for the types of JSON columns; a CSV header must be within it."""

_CORRUPT = "_corrupt"


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as read.  `parsed` has all rows, in the trace schema, and `_malformed`, which is set in malformed
    ones."""

    parsed: DataFrame
    mapping: Mapping | None

    @property
    def rows(self) -> DataFrame:
        """The records, in the schema `TRACE_SCHEMA`."""
        return self.parsed.where(F.col("_malformed").isNull()).select(*TRACE_SCHEMA.names)

    @property
    def malformed(self) -> DataFrame:
        """The rows that are none, in the schema `MALFORMED_SCHEMA`."""
        broken = self.parsed.where(F.col("_malformed").isNotNull())
        return broken.select(*(F.col(f"_malformed.{name}") for name in MALFORMED_SCHEMA.names))

    def counted(self, observation: Observation) -> Trace:
        """The same trace, which leaves counts in `observation` when it is run: `rows` and `malformed`."""
        bad = F.col("_malformed").isNotNull()
        counts = (F.count(F.when(~bad, 1)).alias("rows"), F.count(F.when(bad, 1)).alias("malformed"))
        return Trace(self.parsed.observe(observation, *counts), self.mapping)

    def reasons(self) -> dict[str, int]:
        """How many rows are malformed for which reason."""
        counts = self.malformed.groupBy("reason").count().collect()
        return {row["reason"]: row["count"] for row in sorted(counts, key=lambda row: (-row["count"], row["reason"]))}


def read_trace(
    spark: SparkSession,
    paths: Sequence[str],
    trace_format: str | None = None,
    mapping: str | Mapping | None = None,
    *,
    options: Mappings[str, str] | None = None,
    split_bytes: int | None = None,
) -> Trace:
    """Reads a trace.

    paths        files, directories or globs; for format `kafka` the topics to subscribe to
    trace_format csv, json, text, access, log4j, parquet, kafka-log or kafka; None: what the mapping says
    mapping      a mapping, its file, or the name of one that comes with the project.  Without one, Parquet files must
                 have the common schema, and access, log4j, kafka-log and kafka have mappings of their own
    options      further options of the data source, for kafka-log and kafka (`kafka.bootstrap.servers`, …)

    Raises TraceError, here for what the mapping or the files' heads show, in the query for files that cannot be read.
    """
    if trace_format == "parquet" and mapping is None:
        return Trace(_validated(_with_raw(_parquet(spark, paths))), None)
    chosen = mapping if isinstance(mapping, Mapping) else find_mapping(mapping, trace_format)
    kind = chosen.format
    if kind == "parquet":
        rows = _with_raw(_parquet(spark, paths))
    elif kind in ("kafka-log", "kafka"):
        rows = _topics(spark, paths, kind, options or {})
    else:
        plan = plan_files(
            paths,
            spark.sparkContext.defaultParallelism,
            whole=kind == "csv" and chosen.csv.multiline,
            split_bytes=split_bytes,
        )
        rows = _text(spark, plan, chosen)
    return Trace(records(rows, chosen), chosen)


def _text(spark: SparkSession, plan: FilePlan, mapping: Mapping) -> DataFrame:
    limit = mapping.file.max_entry_bytes
    if mapping.format == "csv":
        return _csv(spark, plan, mapping.csv, limit)
    if mapping.format == "json":
        return _json(spark, plan, mapping, limit)
    return entry_frame(spark, plan, EntryRule(mapping.text.opening, limit=limit), fields=mapping.text.fields)


def _csv(spark: SparkSession, plan: FilePlan, rule: CsvRule, limit: int) -> DataFrame:
    names = list(rule.columns)
    if rule.header:
        with ThreadPoolExecutor(16) as pool:
            headers = list(pool.map(lambda file: _csv_header(file, rule), plan.files))
        names = names or headers[0]
        for file, header in zip(plan.files, headers, strict=True):
            if header != headers[0]:
                raise TraceError(f"{file.path} has the columns {', '.join(header)}, but {plan.files[0].path} has "
                                 f"{', '.join(headers[0])}: convert them one by one")  # fmt: skip
    if not names:
        raise TraceError("a CSV file without header needs csv.columns in its mapping")
    if len({name.lower() for name in names}) < len(names):
        raise TraceError(f"two columns have the same name: {', '.join(names)}; give csv.columns in the mapping")
    entries = entry_frame(spark, plan, EntryRule(quoted=rule.multiline, limit=limit), header=rule.header)
    schema = StructType([*(StructField(name, StringType()) for name in names), StructField(_CORRUPT, StringType())])
    options = {
        "sep": rule.delimiter,
        "quote": rule.quote,
        "escape": rule.escape,
        "columnNameOfCorruptRecord": _CORRUPT,
        "multiLine": str(rule.multiline).lower(),
        "maxCharsPerColumn": "-1",
        "nullValue": "",
    }
    with lenient(spark):
        # A schema in words would need quoting of names; `from_csv` takes only words, so the quoting is here.
        words = ", ".join(f"`{field.name.replace('`', '``')}` STRING" for field in schema.fields)
        parsed = F.from_csv(F.col("_raw").cast("string"), words, options)
        return _unpacked(entries.withColumn("_row", parsed), names)


def _unpacked(frame: DataFrame, names: list[str]) -> DataFrame:
    row = F.col("_row")
    broken = row.isNull() | row[_CORRUPT].isNotNull()
    problem = F.coalesce(F.col("_problem"), F.when(broken, NO_MATCH))
    kept = [name for name in frame.columns if name not in ("_problem", "_row")]
    return frame.select(*kept, problem.alias("_problem"), *(row.getField(name).alias(name) for name in names))


def _csv_header(file: TraceFile, rule: CsvRule) -> list[str]:
    head = read_head(file, HEAD_BYTES)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(f"{file.path} is UTF-16: convert it to UTF-8 (iconv -f utf-16 -t utf-8)")
    text = head.decode("utf-8-sig", "replace")
    if not text.strip():
        raise TraceError(f"{file.path} is empty: there is no header to take the columns' names from")
    reader = csv.reader(text.splitlines(keepends=True), delimiter=rule.delimiter, quotechar=rule.quote)
    names = [name.strip() for name in next(reader)]
    return [name or f"_c{index}" for index, name in enumerate(names)]


def _json(spark: SparkSession, plan: FilePlan, mapping: Mapping, limit: int) -> DataFrame:
    head = read_head(plan.files[0], HEAD_BYTES).decode("utf-8-sig", "replace")
    lines = head.splitlines()
    sample = lines[:-1] if len(lines) > 1 and len(head) >= HEAD_BYTES // 4 else lines
    inferred = spark.read.options(columnNameOfCorruptRecord=_CORRUPT).json(spark.sparkContext.parallelize(sample, 1))
    declared = mapping.json.columns
    fields = [field for field in inferred.schema.fields if field.name not in {_CORRUPT, *declared}]
    for name, kind in declared.items():
        try:
            fields.append(StructField(name, DataType.fromDDL(kind)))
        except PySparkException as error:
            raise TraceError(f"mapping {mapping.name}: json.columns.{name}: {str(error).splitlines()[0]}") from None
    if not fields:
        raise TraceError(f"{plan.files[0].path} has no JSON objects in its first lines, one to a line")
    schema = StructType([*fields, StructField(_CORRUPT, StringType())])
    entries = entry_frame(spark, plan, EntryRule(limit=limit))
    with lenient(spark):
        parsed = F.from_json(F.col("_raw").cast("string"), schema, {"columnNameOfCorruptRecord": _CORRUPT})
        return _unpacked(entries.withColumn("_row", parsed), [field.name for field in fields])


def _parquet(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    files = list_files(paths)
    try:
        frame = spark.read.parquet(*(file.path for file in files))
    except (PySparkException, Py4JJavaError) as error:
        raise TraceError(f"{files[0].path} is not Parquet, or not readable: {reason_of(error)}") from None
    order = spark.createDataFrame(
        [(file.path.rpartition("://")[2], index) for index, file in enumerate(files)], "path string, number long"
    )
    path = F.url_decode(F.regexp_replace(F.col("_metadata.file_path"), r"^file:/*|^[a-z0-9]+://", "/"))
    plain = F.when(F.col("_metadata.file_path").startswith("file:"), path).otherwise(
        F.regexp_replace(F.col("_metadata.file_path"), r"^[a-z0-9]+://", "")
    )
    placed = frame.select("*", plain.alias("_file"), F.col("_metadata.row_index").alias("_position"))
    joined = placed.join(F.broadcast(order), placed["_file"] == order["path"], "left")
    sequence = F.coalesce(F.col("number"), F.lit(0)) * (1 << 40) + F.col("_position")
    return joined.withColumn("_sequence", sequence).drop("path", "number")


def _with_raw(frame: DataFrame) -> DataFrame:
    """Gives rows of columnar files their JSON as raw text, which Spark makes only where it is selected."""
    own = [name for name in frame.columns if not name.startswith("_")]
    if not own:
        raise TraceError("the files have no columns")
    raw = F.to_json(F.struct(*(F.col(f"`{name}`") for name in own))).cast("binary")
    return frame.withColumns({"_raw": raw, "_problem": F.lit(None).cast("string")})


def _validated(frame: DataFrame) -> DataFrame:
    """Rows that should be in the common schema: those that are not come out as malformed."""
    there = {field.name: field.dataType for field in frame.schema.fields}
    for field in TRACE_SCHEMA.fields:
        if field.name not in there:
            columns = ", ".join(name for name in there if not name.startswith("_"))
            raise TraceError(f"there is no column {field.name!r}; the columns are: {columns}; give a mapping")
        if there[field.name].simpleString() != field.dataType.simpleString():
            raise TraceError(f"column {field.name} is {there[field.name].simpleString()}, must be "
                             f"{field.dataType.simpleString()}: give a mapping")  # fmt: skip
    required = [field.name for field in TRACE_SCHEMA.fields if not field.nullable]
    reason = F.when(~F.col("kind").isin(*KINDS), "bad kind")
    reason = F.when(F.col("value_size") < 0, "bad size").otherwise(reason)
    for name in reversed(required):
        reason = F.when(F.col(name).isNull(), f"no {name}").otherwise(reason)
    raw = F.substring(F.col("_raw").cast("string"), 1, RAW_LIMIT)
    malformed = F.struct(
        F.col("_file").alias("file"),
        F.col("_position").alias("position"),
        reason.alias("reason"),
        F.lit(None).cast("string").alias("detail"),
        raw.alias("raw"),
    )
    return frame.select(*TRACE_SCHEMA.names, F.when(reason.isNotNull(), malformed).alias("_malformed"))


def _topics(spark: SparkSession, paths: Sequence[str], kind: str, options: Mappings[str, str]) -> DataFrame:
    """Records of segment directories or of a cluster's topics; their place is the offset."""
    from kbroker.replay import register

    register(spark)
    reader = spark.read.options(**options).option("includeHeaders", "true")
    try:
        if kind == "kafka":
            frame = reader.format("kbroker").option("subscribe", ",".join(paths)).load()
        else:
            frame = reader.format("kbroker-log").option("path", ",".join(paths)).load()
    except (PySparkException, Py4JJavaError) as error:
        raise TraceError(f"{', '.join(paths)}: {reason_of(error)}") from None
    return frame.withColumns(
        {
            "_file": F.concat_ws("-", "topic", F.col("partition").cast("string")),
            "_position": F.col("offset"),
            "_sequence": F.col("offset"),
            "_raw": F.col("value"),
            "_problem": F.lit(None).cast("string"),
        }
    )
