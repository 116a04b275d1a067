"""`kbroker trace`: what is in a trace, and traces of many formats converted to one that replays fast.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 done but rows were malformed and `--strict` was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbroker.cli.output import json_option, parse_pairs, print_json, print_table, without_spark
from kbroker.cli.spark.before_spark import check_cluster, check_java, check_outputs
from kbroker.cli.spark.stage_progress import stages_shown
from kbroker.types import JsonObject, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kbroker.replay.shape import Shape
    from kbroker.replay.traces import Trace

FORMATS = ("csv", "json", "text", "access", "log4j", "parquet", "kafka-log", "kafka")
MEANINGS = {
    "Trace": "sources: who did it, each in order on one executor; malformed: rows that could not be read",
    "Keys": "share of the top 1 %: which part of the records the busiest hundredth of the keys has",
    "Bursts": "records in windows of that length; variance/mean: 1 for arrivals at random, more for bursts",
    "Order": "rows whose time is before that of an earlier row of their source",
}
"""What columns mean that their headings do not say, by the table's title."""
PLOTS = (".png", ".svg", ".pdf")
MALFORMED_STATUS = 3

Function = TypeVar("Function", bound=Callable[..., object])


@click.group("trace")
def command() -> None:
    """Inspect traces and convert them to the format that replays fast."""


def reading(function: Function) -> Function:
    """The options of commands that read a trace: where it is and what it is."""
    options = [
        click.argument("paths", nargs=-1, required=True, metavar="PATH…"),
        click.option("--format", "trace_format", type=click.Choice(FORMATS), help="What the files are; kafka: topics."),
        click.option("--mapping", metavar="FILE", help="Which column is what: a file, or the name of one of ours."),
        click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
                     help="For kafka-log and kafka: an option of the data source (kafka.bootstrap.servers=…)."),
        click.option("--malformed", metavar="DIRECTORY", help="Where rows go that cannot be read, with the reason."),
        click.option("--malformed-format", type=click.Choice(["parquet", "json"]), default="parquet"),
        click.option("--strict", is_flag=True, help="Exit status 3 when a row is malformed."),
        click.option("--overwrite", is_flag=True, help="Replace outputs that are there."),
        click.option("--master", help="Spark master (default: spark-submit's, else local[*])."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def shaping(function: Function) -> Function:
    """The options of `shape_of`, for each command that shapes a trace."""
    options = [
        click.option("--skip", type=click.FloatRange(min=0), default=0.0, help="Leave out the first seconds."),
        click.option("--first", type=click.FloatRange(min=0, min_open=True), help="Keep so many seconds."),
        click.option("--order", type=click.Choice(["keep", "sort", "hold", "refuse"]), default="keep",
                     help="When time goes back in a source: sort by time, hold the time, or refuse."),
        click.option("--anonymise", "secret_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     metavar="SECRET-FILE", help="Hash keys and sources with the secret in this file; drop values."),
        click.option("--sources", type=click.FloatRange(min=0, min_open=True), default=1.0,
                     help="So many sources for each one."),
        click.option("--jitter", type=click.FloatRange(min=0), default=0.0, help="Seconds a copied source is late."),
        click.option("--distinct-keys", is_flag=True, help="Copied sources have keys of their own."),
        click.option("--loops", type=click.IntRange(min=1), default=1, help="Run the trace so many times over."),
        click.option("--speed", type=click.FloatRange(min=0, min_open=True), default=1.0, help="2: twice as fast."),
        click.option("--synthesise", type=click.FloatRange(0, 1), metavar="RATIO",
                     help="Make values of the recorded size, of which compression leaves this part."),
        click.option("--seed", type=int, default=0, show_default=True, help="Decides about jitter and values."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def shape_of(given: Options) -> Shape:
    """The shape that the options of `shaping` say."""
    from kbroker.replay.shape import Shape

    secret = given["secret_file"].read_bytes().strip() if given["secret_file"] is not None else None
    return Shape(
        skip=given["skip"], first=given["first"], order=given["order"], secret=secret, sources=given["sources"],
        jitter=given["jitter"], distinct_keys=given["distinct_keys"], loops=given["loops"], speed=given["speed"],
        values=given["synthesise"], seed=given["seed"],
    )  # fmt: skip


@command.command("inspect")
@reading
@json_option
@click.option("--plot", metavar="FILE", help="Draw a picture: .png, .svg or .pdf.")
def inspect_command(paths: tuple[str, ...], as_json: bool, plot: str | None, **given: Any) -> int:
    """Show a trace's rate over time, sizes, keys, skew and burstiness."""
    if plot is not None and Path(plot).suffix.lower() not in PLOTS:
        raise click.UsageError(f"--plot {plot}: the file must end in {', '.join(PLOTS)}")
    with running("kbroker trace inspect", paths, given) as spark, stages_shown(spark, "reading"):
        from kbroker.replay.trace_plot import plot_trace
        from kbroker.replay.trace_statistics import describe_trace

        trace = read_rows(spark, paths, given)
        statistics = describe_trace(trace.rows)
        malformed = keep_malformed(trace, given["malformed"], given, trace.reasons())
        if not statistics["rows"]:
            raise click.ClickException(no_rows(paths, malformed, given["malformed"], trace))
        statistics = {**statistics, "malformed": malformed}
        if plot is not None:
            plot_trace(statistics, plot, ", ".join(Path(path).name for path in paths))
    if as_json:
        print_json(statistics)
    else:
        _print(statistics)
    warn(statistics["order"], malformed, given["malformed"])
    return MALFORMED_STATUS if malformed and given["strict"] else 0


@command.command("convert")
@reading
@click.option("--output", "-o", required=True, metavar="DIRECTORY", help="Where the Parquet files go.")
@shaping
@json_option
def convert_command(paths: tuple[str, ...], output: str, as_json: bool, **given: Any) -> int:
    """Write a trace as Parquet in the common schema, shaped if wanted.

    The output appears when it is complete.  Malformed rows go to OUTPUT.malformed, or where --malformed says.
    """
    side = given["malformed"] or f"{output.rstrip('/')}.malformed"
    free = partial(check_outputs, output, side, overwrite=given["overwrite"])
    with running("kbroker trace convert", paths, given, free) as spark, stages_shown(spark, "converting"):
        from pyspark.sql import Observation

        from kbroker.replay.shape import apply
        from kbroker.replay.trace_output import complete_directory

        shape = shape_of(given)
        read, written = Observation("read"), Observation("written")
        trace = read_rows(spark, paths, given)
        with complete_directory(output, overwrite=given["overwrite"]) as directory:
            shaped = apply(trace.counted(read).rows, shape)
            _counting(shaped, written).write.parquet(directory)
            # What the shaping needs to know of the trace is read in a pass of its own, which counts nothing twice.
            counts, rows = read.get, written.get["rows"]
            reasons = trace.reasons() if counts["malformed"] or not rows else {}
            malformed = keep_malformed(trace, side, given, reasons)
            if not rows:
                raise click.ClickException(no_rows(paths, malformed, side, trace))
    if as_json:
        print_json({"records": rows, "malformed": malformed, "output": output})
    else:
        print_table(("records", "malformed", "output"), [(rows, sum(malformed.values()), output)])
    warn(None, malformed, side)
    return MALFORMED_STATUS if malformed and given["strict"] else 0


@contextmanager
def running(
    name: str, paths: tuple[str, ...], given: Options, before: Callable[[], object] | None = None
) -> Iterator[SparkSession]:
    """A session in which what goes wrong with the trace is one line for the user; `before` is called before that."""
    try:
        from pyspark.errors import PySparkException

        from kbroker.replay.session import spark_session
        from kbroker.replay.traces.errors import TraceError, reason_of
    except ModuleNotFoundError as error:
        raise without_spark(error) from None
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        _check(paths, given)
        if before is not None:
            before()
        check_java()
        with spark_session(name, given["master"], parse_pairs(given["conf"], "--conf")) as spark:
            yield spark
    except TraceError as error:
        raise click.ClickException(str(error)) from None
    except (PySparkException, Py4JJavaError, RuntimeError) as error:
        raise click.ClickException(reason_of(error) + noted(error)) from None


def noted(error: BaseException) -> str:
    """What was added to an error on its way: where Spark's log is."""
    return "".join(getattr(error, "__notes__", ()))


def _check(paths: tuple[str, ...], given: Options) -> None:
    """Finds out what is wrong with the words of the command before Spark takes its time to start."""
    from kbroker.replay.traces import find_mapping
    from kbroker.replay.traces.files import list_files

    chosen = given["trace_format"]
    if chosen != "parquet" or given["mapping"] is not None:
        chosen = find_mapping(given["mapping"], chosen).format
    if chosen not in ("kafka", "kafka-log"):
        list_files(paths)
    options = parse_pairs(given.get("options", ()), "--option")
    if chosen == "kafka" and "kafka.bootstrap.servers" in options:
        check_cluster(options["kafka.bootstrap.servers"], paths)
    check_outputs(given["malformed"], overwrite=given["overwrite"])


def read_rows(spark: SparkSession, paths: tuple[str, ...], given: Options) -> Trace:
    """The rows of the trace's files.  ClickException for a wrong option."""
    from kbroker.replay.traces import read_trace

    options = parse_pairs(given["options"], "--option")
    return read_trace(spark, paths, given["trace_format"], given["mapping"], options=options)


def _counting(frame: DataFrame, observation: Any) -> DataFrame:
    from pyspark.sql import functions

    return frame.observe(observation, functions.count(functions.lit(1)).alias("rows"))


def keep_malformed(trace: Trace, path: str | None, given: Options, reasons: dict[str, int]) -> dict[str, int]:
    """Writes the malformed rows, if there are any, where the user wants them; the reasons and their counts."""
    from kbroker.replay.trace_output import write_complete

    if reasons and path is not None:
        write_complete(trace.malformed, path, overwrite=given["overwrite"], file_format=given["malformed_format"])
    return reasons


def no_rows(paths: tuple[str, ...], malformed: dict[str, int], side: str | None, trace: Trace) -> str:
    """The message for a trace without a row."""
    where = ", ".join(paths)
    if not malformed:
        return f"{where}: the trace has no rows"
    seen = f"see {side}" if side is not None else "--malformed DIRECTORY keeps them"
    if "bad time" in malformed and trace.mapping is not None:
        rule = trace.mapping.time
        seen = f"times were tried as {rule.unit or rule.format}; {seen}"
    return f"{where}: no row could be read: {_reasons(malformed)}; {seen}"


def _reasons(malformed: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in malformed.items())


def warn(order: JsonObject | None, malformed: dict[str, int], side: str | None) -> None:
    """Print what is wrong with the rows: malformed ones, and time that goes back."""
    if malformed:
        seen = f"see {side}" if side is not None else "--malformed DIRECTORY keeps them"
        click.echo(f"kbroker: {sum(malformed.values()):,} rows are malformed: {_reasons(malformed)}; {seen}", err=True)
    if order is not None and order["rows_back_in_time"]:
        click.echo(
            f"kbroker: time goes back in {order['sources']:,} sources, {order['rows_back_in_time']:,} rows, by up to "
            f"{order['largest_step_back_us'] / 1e6:g} s: shape with --order sort or hold",
            err=True,
        )


def _print(statistics: dict[str, object]) -> None:
    for title, rows in _tables(statistics):
        headers, *cells = rows
        print_table([str(header) for header in headers], cells, title=title)
        if (meaning := MEANINGS.get(title.partition(" (")[0])) is not None:
            click.echo(meaning)
        click.echo()


def _tables(s: JsonObject) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    from kbroker.replay.trace_plot import bytes_text, duration_text, time_text, window_text

    rate = f"{s['rows_per_second']:,.6g}" if s["rows_per_second"] else None
    yield "Trace", [
        ("records", "bytes", "starts", "ends", "length", "records/s", "sources", "topics", "malformed"),
        (f"{s['rows']:,}", bytes_text(s["bytes"]), time_text(s["first_us"]), time_text(s["last_us"]),
         duration_text(s["seconds"]), rate, f"{s['sources']['count']:,}", s["topic_count"],
         sum(s["malformed"].values())),
    ]  # fmt: skip
    for title, counts in (("Kinds", s["kinds"]), ("Topics", s["topics"]), ("Busiest sources", s["sources"]["busiest"])):
        yield title, [("", "records", "share"), *((k, f"{n:,}", f"{n / s['rows']:.2%}") for k, n in counts.items())]
    names = [name for name in s["sizes"] if name != "histogram"]
    yield "Sizes of values", [tuple(names), tuple(bytes_text(s["sizes"][name]) for name in names)]
    step = s["rate"]["step_seconds"]
    yield f"Rate over time (in tenths of the trace, from steps of {duration_text(step)})", [
        ("from", "records/s", "MB/s", ""), *_tenths(s["rate"])
    ]  # fmt: skip
    keys = s["keys"]
    top = keys.get("top_1_percent")
    yield (
        "Keys",
        [
            ("distinct", "records without key", "share of the top 1 %"),
            (f"{keys['distinct']:,}", f"{keys['rows_without_key']:,}", f"{top['share']:.2%}" if top else None),
        ],
    )
    if keys["distinct"]:
        yield "Busiest keys", [
            ("key", "records", "share"),
            *((one["key"], f"{one['rows']:,}", f"{one['share']:.2%}") for one in keys["top"]),
        ]  # fmt: skip
    variation = s["bursts"]["gap_variation"]
    shown = f"; gaps vary by {variation:.3g}" if variation is not None else ""
    yield f"Bursts (1 is at random{shown})", [
        ("window", "mean", "peak", "peak/mean", "variance/mean"),
        *((window_text(w["window_ms"]), f"{w['mean']:.4g}", f"{w['peak']:,}", f"{w['peak_over_mean']:.4g}",
           f"{w['dispersion']:.4g}") for w in s["bursts"]["windows"]),
    ]  # fmt: skip
    order = s["order"]
    yield "Order", [
        ("rows back in time", "share", "largest step back", "sources"),
        (f"{order['rows_back_in_time']:,}", f"{order['share']:.2%}",
         duration_text(order["largest_step_back_us"] / 1e6), order["sources"]),
    ]  # fmt: skip


def _tenths(rate: JsonObject) -> list[tuple[object, ...]]:
    step, steps = rate["step_seconds"], len(rate["rows"])
    parts = [(steps * part // 10, steps * (part + 1) // 10) for part in range(10)]
    parts = [(begin, end) for begin, end in parts if end > begin]
    means = [sum(rate["rows"][begin:end]) / ((end - begin) * step) for begin, end in parts]
    sizes = [sum(rate["bytes"][begin:end]) / ((end - begin) * step) for begin, end in parts]
    most = max(means)
    return [
        (f"{begin * step:,.6g} s", f"{mean:,.4g}", f"{size / 1e6:.3g}", "█" * round(30 * mean / most) or "▏")
        for (begin, _), mean, size in zip(parts, means, sizes, strict=True)
    ]
