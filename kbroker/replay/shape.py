"""Shaping: transformations from a trace (`trace_schema`) to a trace, deterministic from a seed.

Each is a function from DataFrame to DataFrame that runs nothing by itself.  What a row becomes depends on the row, on
the trace's ends and on the seed, never on how rows lie in partitions.  Where the ends are needed (`change_speed`,
`loop`, `cut` by length) the query reads its input twice: persist it, or convert it to Parquet first, when it is costly.

All but `order_time` leave the order within a source as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kbroker.replay.synthetic_values import fill_batch
from kbroker.replay.trace_schema import MICROSECONDS, TRACE_SCHEMA
from kbroker.replay.traces.errors import TraceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LARGEST_FRACTION = 1000
KEY_BYTES, SOURCE_BYTES = 16, 8
_SEED = "_seed"


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything that can be done to a trace, in the order in which `apply` does it.  The defaults change nothing.

    skip, first      seconds from the start: leave out the first `skip`, then keep `first`
    start, end       the same as times in microseconds (start ≤ arrival_time < end)
    order            what to do about time that goes back in a source: keep, sort, hold or refuse
    secret           the key for the hash of keys and sources; None leaves them as they are
    sources, jitter  how many sources there are for each one, and how many seconds at most a copy is late
    distinct_keys    copies of a source have keys of their own
    loops            how often the trace runs
    speed            2 is twice as fast, 0.5 takes twice as long
    values           synthesise values where the trace has only sizes, of this part of their size when compressed
    seed             what decides about jitter and values
    """

    skip: float = 0
    first: float | None = None
    start: int | None = None
    end: int | None = None
    order: str = "keep"
    secret: bytes | None = None
    sources: float = 1
    jitter: float = 0
    distinct_keys: bool = False
    loops: int = 1
    speed: float = 1
    values: float | None = None
    seed: int = 0


def apply(trace: DataFrame, shape: Shape) -> DataFrame:
    """The trace as `shape` says.  Raises TraceError for numbers that make no sense."""
    trace = cut(trace, start=shape.start, end=shape.end, skip=shape.skip, first=shape.first)
    trace = order_time(trace, shape.order)
    if shape.secret is not None:
        trace = anonymise(trace, shape.secret)
    if shape.sources != 1:
        trace = scale_sources(
            trace, shape.sources, jitter=shape.jitter, seed=shape.seed, distinct_keys=shape.distinct_keys
        )
    if shape.loops != 1:
        trace = loop(trace, shape.loops)
    if shape.speed != 1:
        trace = change_speed(trace, shape.speed)
    if shape.values is not None:
        trace = synthesise_values(trace, shape.values, seed=shape.seed)
    return trace


def change_speed(trace: DataFrame, speed: float | Fraction) -> DataFrame:
    """Time since the trace's start divided by `speed`, to the microsecond below; the start stays.

    The speed is taken as a fraction with a denominator of at most 1000, and the division is exact: where it leaves no
    rest, each gap is scaled exactly.
    Raises TraceError.
    """
    exact = Fraction(speed).limit_denominator(LARGEST_FRACTION)
    if exact <= 0:
        raise TraceError(f"speed is {speed}, must be over 0 (at least 0.001)")
    since = F.col("arrival_time") - F.col("_first")
    # Whole parts and rest apart, so that no product overflows for traces of years.
    scaled = F.expr(f"(({exact.denominator}L * (_since div {exact.numerator}L)) + "
                    f"({exact.denominator}L * (_since % {exact.numerator}L)) div {exact.numerator}L)")  # fmt: skip
    changed = _with_ends(trace).withColumn("_since", since)
    return _columns(changed.withColumn("arrival_time", F.col("_first") + scaled))


def cut(
    trace: DataFrame,
    *,
    start: int | None = None,
    end: int | None = None,
    skip: float = 0,
    first: float | None = None,
) -> DataFrame:
    """Rows with start ≤ arrival_time < end (microseconds), and of the whole trace's time those between `skip` seconds
    after its first row and `first` seconds later.  Raises TraceError."""
    if skip < 0 or (first is not None and first <= 0):
        raise TraceError("a cut must skip 0 seconds or more and keep more than 0")
    if skip or first is not None:
        begin = F.col("_first") + round(skip * MICROSECONDS)
        trace = _with_ends(trace).where(F.col("arrival_time") >= begin)
        if first is not None:
            trace = trace.where(F.col("arrival_time") < begin + round(first * MICROSECONDS))
        trace = _columns(trace)
    if start is not None:
        trace = trace.where(F.col("arrival_time") >= start)
    if end is not None:
        trace = trace.where(F.col("arrival_time") < end)
    return trace


def loop(trace: DataFrame, times: int, *, gap: float | None = None) -> DataFrame:
    """The trace `times` times over, one after the other; sequences go on, so that order holds across the rounds.

    gap  seconds from a round's last row to the next one's first; None: the mean gap between rows
    Raises TraceError.
    """
    if times < 1:
        raise TraceError(f"loops is {times}, must be 1 or more")
    span = F.col("_last") - F.col("_first")
    mean = F.greatest(F.lit(1), F.expr("(_last - _first) div greatest(_rows - 1, 1)"))
    pause = mean if gap is None else F.lit(round(gap * MICROSECONDS))
    rounds = F.explode(F.sequence(F.lit(0), F.lit(times - 1))).alias("_round")
    looped = _with_ends(trace).select("*", rounds)
    step = F.col("_last_sequence") - F.col("_first_sequence") + 1
    fits = F.col("_last_sequence").cast("double") + step.cast("double") * (times - 1) < float(2**63 - 1)
    message = F.lit(f"TraceError: sequences of {times} rounds do not fit in 63 bits: order the trace by time first")
    number = F.when(fits, F.col("sequence") + step * F.col("_round")).otherwise(F.raise_error(message).cast("long"))
    return _columns(
        looped.withColumns(
            {"arrival_time": F.col("arrival_time") + F.col("_round") * (span + pause), "sequence": number}
        )
    )


def scale_sources(
    trace: DataFrame, factor: float, *, jitter: float = 0, seed: int = 0, distinct_keys: bool = False
) -> DataFrame:
    """`factor` sources for each one: the source itself, and copies called `name~1`, `name~2`, ….

    With 2.5 each source has one copy and every second one, as the seed decides, another; with 0.5 every second source
    stays.  A copy is late by up to `jitter` seconds, each by its own constant time, so that its order and its gaps are
    those of its source.  With `distinct_keys` the keys of a copy are followed by `~1`, ….
    Raises TraceError.
    """
    if factor <= 0 or jitter < 0:
        raise TraceError("the number of sources must be scaled by more than 0, and jitter be 0 or more")
    whole = int(factor)
    share = F.pmod(F.xxhash64(F.lit(seed), F.lit("share"), F.col("source")), F.lit(1_000_000)) / 1_000_000
    copies = F.lit(whole) + F.when(share < factor - whole, 1).otherwise(0)
    numbers = F.filter(F.sequence(F.lit(0), F.lit(whole)), lambda number: number < copies)
    scaled = trace.select("*", F.explode(numbers).alias("_copy"))
    copied = F.col("_copy") > 0
    suffix = F.concat(F.lit("~"), F.col("_copy").cast("string"))
    late = F.pmod(
        F.xxhash64(F.lit(seed), F.lit("late"), F.col("source"), F.col("_copy")),
        F.lit(max(1, round(jitter * MICROSECONDS) + 1)),
    )
    columns: dict[str, Column] = {
        "arrival_time": F.col("arrival_time") + F.when(copied, late).otherwise(0),
        "source": F.when(copied, F.concat(F.col("source"), suffix)).otherwise(F.col("source")),
    }
    if distinct_keys:
        columns["key"] = F.when(copied, F.concat(F.col("key"), suffix.cast("binary"))).otherwise(F.col("key"))
    return _columns(scaled.withColumns(columns))


def order_time(trace: DataFrame, how: str) -> DataFrame:
    """What becomes of rows whose time is before that of an earlier row of the same source.

    keep    nothing: order and times disagree
    sort    the time decides: `sequence` is numbered anew by time, and within equal times by the old `sequence`
    hold    the sequence decides: such a row comes at the time of the latest row before it
    refuse  the query fails with a TraceError that names the first such row it meets
    """
    if how == "keep":
        return trace
    if how == "sort":
        by_time = Window.partitionBy("source").orderBy("arrival_time", "sequence")
        return trace.withColumn("sequence", F.row_number().over(by_time).cast("long") - 1).select(*TRACE_SCHEMA.names)
    before = Window.partitionBy("source").orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)
    latest = F.max("arrival_time").over(before)
    if how == "hold":
        return trace.withColumn("arrival_time", F.greatest("arrival_time", latest))
    if how == "refuse":
        message = F.concat(
            F.lit("TraceError: time goes back in source "), F.col("source"), F.lit(" at sequence "),
            F.col("sequence").cast("string"), F.lit(" by "), (latest - F.col("arrival_time")).cast("string"),
            F.lit(" us: sort (by time) or hold (at the latest time)"),
        )  # fmt: skip
        checked = F.when(F.col("arrival_time") < latest, F.raise_error(message).cast("long"))
        return trace.withColumn("arrival_time", F.coalesce(checked, F.col("arrival_time")))
    raise TraceError(f"order is {how!r}, must be keep, sort, hold or refuse")


def anonymise(
    trace: DataFrame,
    secret: bytes,
    *,
    keys: bool = True,
    sources: bool = True,
    values: bool = True,
    headers: bool = True,
) -> DataFrame:
    """Hides who and what, and keeps the shape: equal keys stay equal, and so do sources.

    keys, sources    become their BLAKE2b hash under `secret`: 16 bytes, and 16 hexadecimal digits.  Without the secret
                     candidates cannot be tried out; with it the hashes are the same in each run
    values, headers  are taken away; sizes of values stay, for `synthesise_values`
    Raises TraceError.
    """
    if not 16 <= len(secret) <= 64:
        raise TraceError(f"the secret has {len(secret)} bytes, must have 16 to 64")
    columns = [name for name, chosen in (("key", keys), ("source", sources)) if chosen]
    if columns:
        trace = trace.mapInArrow(partial(_each, partial(_hash_columns, secret, columns)), TRACE_SCHEMA)
    hidden: dict[str, Column] = {}
    if values:
        hidden["value"] = F.lit(None).cast("binary")
    if headers:
        hidden["headers"] = F.array().cast(TRACE_SCHEMA["headers"].dataType)
    return trace.withColumns(hidden).select(*TRACE_SCHEMA.names)


def synthesise_values(trace: DataFrame, ratio: float, *, seed: int = 0) -> DataFrame:
    """Gives rows that have a size and no value one of exactly that size, of which compression leaves about `ratio`.

    The bytes depend on the seed, the source and the sequence.  See `synthetic_values`.
    Raises TraceError.
    """
    if not 0 <= ratio <= 1:
        raise TraceError(f"the ratio is {ratio}, must be between 0 (nothing stays) and 1 (nothing compresses)")
    seeded = trace.select(*TRACE_SCHEMA.names, F.xxhash64(F.lit(seed), "source", "sequence").alias(_SEED))
    filled = StructType([*TRACE_SCHEMA.fields])
    return seeded.mapInArrow(partial(_each, partial(_fill, ratio)), filled)


def _each(
    change: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from change(batch)


def _fill(ratio: float, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield from fill_batch(batch, _SEED, ratio)


def _hash_columns(secret: bytes, columns: list[str], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for name in columns:
        index = batch.schema.get_field_index(name)
        column = batch.column(index)
        # Keys repeat: each different one of a batch is hashed once.
        coded = column.dictionary_encode()
        hashed = pa.array([_hash(secret, name, value) for value in coded.dictionary.to_pylist()], column.type)
        batch = batch.set_column(index, batch.schema.field(index), hashed.take(coded.indices))
    yield batch


def _hash(secret: bytes, name: str, value: bytes | str) -> bytes | str:
    data = value.encode() if isinstance(value, str) else value
    size = SOURCE_BYTES if isinstance(value, str) else KEY_BYTES
    # `person` parts the two uses: a key does not hash to the same as a source of that name.
    digest = hashlib.blake2b(data, key=secret, digest_size=size, person=name.encode())
    return digest.hexdigest() if isinstance(value, str) else digest.digest()


def _with_ends(trace: DataFrame) -> DataFrame:
    """Adds the trace's first and last time, first and last sequence, and number of rows to each row."""
    ends = trace.agg(
        F.min("arrival_time").alias("_first"),
        F.max("arrival_time").alias("_last"),
        F.min("sequence").alias("_first_sequence"),
        F.max("sequence").alias("_last_sequence"),
        F.count("*").alias("_rows"),
    )
    return trace.crossJoin(F.broadcast(ends))


def _columns(trace: DataFrame) -> DataFrame:
    return trace.select(*TRACE_SCHEMA.names)


__all__ = [
    "Shape", "anonymise", "apply", "change_speed", "cut", "loop", "order_time", "scale_sources", "synthesise_values",
]  # fmt: skip
