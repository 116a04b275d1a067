"""Rows of any shape to records of the trace schema: the templates and expressions of a mapping, as Spark columns.

Nothing that a row holds can fail the query: what cannot be computed becomes null, and a null where the schema wants a
value becomes a malformed row with its reason.  For that the expressions are analysed with `spark.sql.ansi.enabled` off.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from collections.abc import Mapping as Mappings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, DataType, StringType

from kbroker.replay.trace_schema import COMMIT, HEADER, KINDS, PRODUCE, RAW_LIMIT, TRACE_SCHEMA
from kbroker.replay.traces.errors import TraceError
from kbroker.replay.traces.mapping import UNITS, Mapping, RecordRule, TimeRule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BAD_TIME, BAD_DELAY, NO_SOURCE = "bad time", "bad delay", "no source"
BAD_TOPIC, BAD_PARTITION, BAD_SIZE = "bad topic", "bad partition", "bad size"
BAD_KIND, NO_GROUP, BAD_SEQUENCE = "bad kind", "no consumer group", "bad sequence"

TOPIC_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
LARGEST = 2**31 - 1
_FIELDS = ("source", "topic", "key", "value", "size", "partition", "kind", "group", "sequence", "delay_ms", "where")
_NUMBERS = ("size", "partition", "sequence", "delay_ms", "where")
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FRACTION = re.compile(r"\[?'?[.,]'?S+\]?")


def records(rows: DataFrame, mapping: Mapping) -> DataFrame:
    """Each row's records, with `_malformed` (file, position, reason, detail, raw) where one cannot be made.

    `rows` has the columns that the mapping speaks of, and `_file`, `_position`, `_sequence`, `_raw`, `_problem`.
    Raises TraceError when an expression is none, or names a column that is not there.
    """
    with lenient(rows.sparkSession):
        frame = _with_names(rows, mapping)
        frame = _evaluate(frame, mapping)
        rules = mapping.records
        made = F.array(*(_record(frame, rule, number, len(rules)) for number, rule in enumerate(rules)))
        broken = F.coalesce(F.col("_problem"), F.when(F.col("_time").isNull(), BAD_TIME))
        tried = F.lit(f", tried as {mapping.time.unit or mapping.time.format}")
        detail = F.when(F.col("_problem").isNull(), F.concat(F.coalesce(F.col("_time_text"), F.lit("null")), tried))
        frame = frame.withColumn("_broken", broken)
        each = F.when(F.col("_broken").isNotNull(), F.array(_broken_record(frame, len(rules), detail)))
        frame = frame.select(F.explode(each.otherwise(F.filter(made, lambda one: one["_wanted"]))).alias("one"))
        return frame.select(*(F.col(f"one.{name}") for name in (*TRACE_SCHEMA.names, "_malformed")))


@contextmanager
def lenient(spark: SparkSession) -> Iterator[None]:
    """Expressions made inside give null for what they cannot compute."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))


def template(text: str) -> list[tuple[bool, str]]:
    """The pieces of a template: (is an expression, text).  Doubled braces stand for themselves.  Raises TraceError."""
    pieces: list[tuple[bool, str]] = []
    literal, end = "", 0
    for found in _PIECE.finditer(text):
        literal += text[end : found.start()]
        end = found.end()
        if found[0] in ("{{", "}}"):
            literal += found[0][0]
        elif found[1] is None or not found[1].strip():
            raise TraceError(f"{text!r} has a brace without its other half, or nothing between them")
        else:
            if literal:
                pieces.append((False, literal))
            pieces.append((True, found[1]))
            literal = ""
    literal += text[end:]
    return pieces + ([(False, literal)] if literal or not pieces else [])


def arrival_time(column: Column, rule: TimeRule) -> Column:
    """Microseconds out of a column, rounded half upwards; null where it holds no time."""
    if rule.unit is not None:
        shift = 6 - UNITS[rule.unit]
        number = column.try_cast("decimal(38,9)")
        factor = F.lit(10 ** abs(shift)).cast("decimal(10,0)")
        scaled = number * factor if shift >= 0 else number / factor
        return F.floor(scaled + F.lit("0.5").cast("decimal(2,1)")).cast("long")
    text = F.trim(column.cast("string"))
    fraction = F.regexp_extract(text, r"\d\d:\d\d:\d\d[.,](\d{1,18})", 1)
    whole = F.regexp_replace(text, r"(\d\d:\d\d:\d\d)[.,]\d+", "$1")
    nanos = F.rpad(F.substring(fraction, 1, 9), 9, "0").try_cast("long")
    micros = F.coalesce(F.floor((nanos + 500) / 1000), F.lit(0))
    return (F.unix_micros(_moment(whole, rule)) + micros).cast("long")


def _moment(text: Column, rule: TimeRule) -> Column:
    formats = rule.format.split(" | ")
    if len(formats) > 1:
        return F.coalesce(*(_moment(text, replace(rule, format=each)) for each in formats))
    zone = F.lit(f" {rule.zone}")
    if rule.format != "iso":
        pattern = _FRACTION.sub("", rule.format)
        if re.search(r"[VzOXxZ]", re.sub(r"'[^']*'", "", pattern)):
            return F.try_to_timestamp(text, F.lit(pattern))
        return F.try_to_timestamp(F.concat(text, zone), F.lit(f"{pattern} VV"))
    spaced = F.regexp_replace(text, r"^(\d{4}-\d\d-\d\d)T", "$1 ")
    utc = F.regexp_replace(spaced, r"\s*(?:Z|UTC)$", "+00:00")
    zoned = F.regexp_replace(utc, r"\s*([+-]\d\d):?(\d\d)$", "$1:$2")
    has_zone = zoned.rlike(r"[+-]\d\d:\d\d$")
    return F.when(has_zone, F.try_to_timestamp(zoned, F.lit("yyyy-MM-dd HH:mm:ssxxx"))).otherwise(
        F.try_to_timestamp(F.concat(spaced, zone), F.lit("yyyy-MM-dd HH:mm:ss VV"))
    )


def _with_names(rows: DataFrame, mapping: Mapping) -> DataFrame:
    """Adds what a mapping may name beside its own columns: the row itself, its file, its place."""
    own = {name.lower() for name in rows.columns}
    groups: dict[str, Column] = {}
    if mapping.file.pattern is not None:
        # Spark's expressions do not take Python's spelling of named groups; both count groups alike.
        pattern = re.compile(mapping.file.pattern)
        java = mapping.file.pattern.replace("(?P<", "(?<")
        groups = {name: F.regexp_extract(F.col("_file"), java, index) for name, index in pattern.groupindex.items()}
    offered = {
        "line": F.col("_raw"),
        "file": F.col("_file"),
        "file_name": F.regexp_extract(F.col("_file"), r"([^/]*)$", 1),
        "position": F.col("_position"),
        **groups,
    }
    return rows.withColumns({name: column for name, column in offered.items() if name.lower() not in own})


class _Expressions:
    """The expressions of a mapping, by their text: a column each, and its type.

    All are analysed at once, because each analysis costs Spark some tens of milliseconds.  Only if that fails, they are
    analysed one by one, to name the wrong one.
    """

    def __init__(self, frame: DataFrame, mapping: Mapping) -> None:
        places: dict[str, str] = {}
        for where, text in _texts(frame, mapping):
            places.setdefault(text, where)
        try:
            self._columns = {text: F.expr(text) for text in places}
            chosen = (column.alias(f"_{number}") for number, column in enumerate(self._columns.values()))
            with _silent():
                fields = frame.select(*chosen).schema.fields
        except (ParseException, AnalysisException):
            for text, where in places.items():
                _check_expression(frame, where, text)
            raise
        self._types = {text: field.dataType for text, field in zip(places, fields, strict=True)}

    def __getitem__(self, text: str) -> Column:
        return self._columns[text]

    def kind(self, text: str) -> DataType:
        return self._types[text]


def _texts(frame: DataFrame, mapping: Mapping) -> Iterator[tuple[str, str]]:
    """Each expression of a mapping and where it stands."""
    where = f"mapping {mapping.name}"
    for number, rule in enumerate(mapping.records):
        table = f"{where}: {'record' if number == 0 else 'extra'}"
        for name in _FIELDS:
            text = getattr(rule, name)
            if text is not None:
                yield from ((f"{table}.{name}", piece) for is_one, piece in _pieces(name, text, table) if is_one)
        headers = rule.headers
        if isinstance(headers, str):
            yield f"{table}.headers", template(headers)[0][1]
        for text in headers.values() if isinstance(headers, Mappings) else ():
            yield from ((f"{table}.headers", piece) for is_one, piece in template(text) if is_one)
    yield f"{where}: time.column", _quoted(mapping.time.column, frame)


def _pieces(name: str, text: str, table: str) -> list[tuple[bool, str]]:
    """The pieces of a field: of a number's one expression, which may stand without braces."""
    if name not in _NUMBERS:
        return template(text)
    pieces = template(text) if text.startswith("{") else [(True, text)]
    if len(pieces) != 1:
        raise TraceError(f"{table}.{name}: {text!r} must be one expression")
    return pieces


def _evaluate(frame: DataFrame, mapping: Mapping) -> DataFrame:
    """Adds a column for the time and for each field of each record."""
    columns: dict[str, Column] = {}
    expressions = _Expressions(frame, mapping)
    for number, rule in enumerate(mapping.records):
        for name in _FIELDS:
            text = getattr(rule, name)
            if text is not None:
                columns[f"_{number}_{name}"] = _field(expressions, name, text)
        columns[f"_{number}_headers"] = _headers(expressions, rule.headers)
    text = _quoted(mapping.time.column, frame)
    time, kind = expressions[text], expressions.kind(text).typeName()
    if kind == "timestamp":
        columns["_time"] = F.unix_micros(time)
    elif kind in ("timestamp_ntz", "date"):
        # As text, so that the zone is the mapping's and not the session's.
        shown = F.date_format(time.cast("timestamp_ntz"), "yyyy-MM-dd HH:mm:ss.SSSSSS")
        columns["_time"] = arrival_time(shown, replace(mapping.time, format="iso", unit=None))
    else:
        columns["_time"] = arrival_time(time, mapping.time)
    columns["_time_text"] = time.cast("string")
    return frame.withColumns(columns)


def _quoted(name: str, frame: DataFrame) -> str:
    """A column's name as an expression, where it is one; any other text is an expression already."""
    return f"`{name}`" if name in frame.columns else name


def _field(expressions: _Expressions, name: str, text: str) -> Column:
    pieces = _pieces(name, text, "")
    if name in _NUMBERS:
        return expressions[pieces[0][1]]
    if len(pieces) == 1:
        is_expression, piece = pieces[0]
        if name in ("key", "value"):
            return _as_bytes(expressions, piece) if is_expression else F.lit(piece).cast("binary")
        return (expressions[piece] if is_expression else F.lit(piece)).cast("string")
    parts = (expressions[piece] if is_expression else F.lit(piece) for is_expression, piece in pieces)
    joined = F.concat(*(part.cast("string") for part in parts))
    return joined.cast("binary") if name in ("key", "value") else joined


def _as_bytes(expressions: _Expressions, text: str) -> Column:
    """Bytes stay bytes; numbers are their text, arrays and objects their JSON."""
    column, kind = expressions[text], expressions.kind(text)
    if isinstance(kind, BinaryType):
        return column
    if kind.typeName() in ("array", "map", "struct"):
        return F.to_json(column).cast("binary")
    return (column if isinstance(kind, StringType) else column.cast("string")).cast("binary")


def _headers(expressions: _Expressions, headers: object) -> Column:
    wanted = f"array<{HEADER.simpleString()}>"
    if headers is None:
        return F.array().cast(wanted)
    if isinstance(headers, str):
        given = expressions[template(headers)[0][1]]
        return F.coalesce(given.cast(wanted), F.array().cast(wanted))
    assert isinstance(headers, Mappings)
    pairs = (
        F.struct(F.lit(key).alias("key"), _field(expressions, "value", text).alias("value"))
        for key, text in headers.items()
    )
    return F.array(*pairs).cast(wanted)


def _check_expression(frame: DataFrame, where: str, text: str) -> None:
    """TraceError when the text is no expression over the frame's columns."""
    try:
        with _silent():
            frame.select(F.expr(text))
    except ParseException as error:
        raise TraceError(f"{where}: {text!r} is not an expression: {_first_line(error)}") from None
    except AnalysisException as error:
        if "UNRESOLVED_COLUMN" in str(error.getCondition()):
            there = ", ".join(name for name in frame.columns if not name.startswith("_"))
            named = re.search(r"name `(.+?)` cannot", str(error))
            name = named[1] if named else text
            raise TraceError(f"{where}: there is no column {name!r}; the columns are: {there}") from None
        raise TraceError(f"{where}: {text!r}: {_first_line(error)}") from None


@contextmanager
def _silent() -> Iterator[None]:
    """PySpark logs what it cannot analyse, and raises it as well."""
    log = logging.getLogger("SQLQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", lines[0]) if lines else type(error).__name__


def _record(frame: DataFrame, rule: RecordRule, number: int, of: int) -> Column:
    def at(name: str, kind: str) -> Column:
        text = getattr(rule, name)
        return F.lit(None).cast(kind) if text is None else F.col(f"_{number}_{name}")

    value = at("value", "binary")
    size = F.floor(F.round(at("size", "double").cast("double"), 6) + 0.5).cast("long")
    partition = at("partition", "double").cast("double")
    kind = (
        F.coalesce(F.lower(at("kind", "string")), F.lit(PRODUCE))
        if rule.kind is None
        else F.lower(at("kind", "string"))
    )
    delay = (
        F.lit(0)
        if rule.delay_ms is None
        else F.floor(at("delay_ms", "double").cast("double") * 1000 + 0.5).cast("long")
    )
    own = F.col("_sequence") if rule.sequence is None else at("sequence", "long").cast("long")
    sequence = own * of + number
    time = F.col("_time") + delay
    source, topic, group = at("source", "string"), at("topic", "string"), at("group", "string")
    bad_size = F.lit(rule.size is not None) & ~F.coalesce(size.between(0, LARGEST), F.lit(False))
    bad_partition = F.lit(rule.partition is not None) & ~F.coalesce(partition.between(0, LARGEST), F.lit(False))
    checks: list[tuple[Column, str, Column]] = [
        (delay.isNull(), BAD_DELAY, F.lit(None)),
        (F.coalesce(source, F.lit("")) == "", NO_SOURCE, F.lit(None)),
        (~F.coalesce(topic.rlike(TOPIC_PATTERN), F.lit(False)), BAD_TOPIC, topic),
        (bad_size, BAD_SIZE, at("size", "string").cast("string")),
        (bad_partition, BAD_PARTITION, at("partition", "string").cast("string")),
        (~F.coalesce(kind.isin(*KINDS), F.lit(False)), BAD_KIND, kind),
        ((kind == COMMIT) & group.isNull(), NO_GROUP, F.lit(None)),
        (sequence.isNull(), BAD_SEQUENCE, F.lit(None)),
    ]
    reason, detail = F.lit(None).cast("string"), F.lit(None).cast("string")
    for test, text, about in reversed(checks):
        reason = F.when(test, text).otherwise(reason)
        detail = F.when(test, about.cast("string")).otherwise(detail)
    wanted = F.lit(True) if rule.where is None else F.coalesce(at("where", "boolean").cast("boolean"), F.lit(False))
    return F.struct(
        time.cast("long").alias("arrival_time"),
        source.cast("string").alias("source"),
        sequence.cast("long").alias("sequence"),
        topic.cast("string").alias("topic"),
        partition.cast("int").alias("partition"),
        at("key", "binary").alias("key"),
        value.alias("value"),
        F.coalesce(F.octet_length(value), size.cast("int")).cast("int").alias("value_size"),
        F.col(f"_{number}_headers").alias("headers"),
        kind.alias("kind"),
        group.cast("string").alias("group"),
        F.when(reason.isNotNull(), _malformed(reason, detail)).alias("_malformed"),
        wanted.alias("_wanted"),
    )


def _malformed(reason: Column, detail: Column) -> Column:
    return F.struct(
        F.col("_file").alias("file"),
        F.col("_position").alias("position"),
        reason.alias("reason"),
        detail.cast("string").alias("detail"),
        F.make_valid_utf8(F.substring(F.col("_raw"), 1, RAW_LIMIT).cast("string")).alias("raw"),
    )


def _broken_record(frame: DataFrame, of: int, detail: Column) -> Column:
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in TRACE_SCHEMA.fields]
    return F.struct(*nothing, _malformed(F.col("_broken"), detail).alias("_malformed"), F.lit(True).alias("_wanted"))
