"""`kbroker load`: topics to Parquet with a manifest or to Iceberg tables, and Parquet back into topics.

Exit status: 0 done, 1 failed (run it again: it goes on where it was), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbroker.cli import completion
from kbroker.cli.connection import bootstrap_option
from kbroker.cli.output import json_option, parse_pairs, print_json, print_rows, print_table, without_spark
from kbroker.cli.spark.before_spark import check_cluster, check_java
from kbroker.cli.spark.trace import noted
from kbroker.types import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kbroker.replay.load.lanes import LaneResult
    from kbroker.replay.load.manifest import Manifest

Function = TypeVar("Function", bound=Callable[..., object])
OF_SPARK = ("master", "conf", "packages")
"""Options that are the session's, and of no request."""
PACKAGES = "spark.jars.packages"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.group("load")
def command() -> None:
    """Load topics into Parquet or Iceberg tables, and Parquet into topics."""


def spark_options(function: Function) -> Function:
    """`--master`, `--conf` and `--packages`, for commands that run on Spark."""
    options = [
        click.option("--master", help="Spark master (default: spark-submit's, else local[*])."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark."),
        click.option("--packages", multiple=True, metavar="GROUP:NAME:VERSION[,…]", help="From Maven, for Spark."),
    ]
    return with_options(function, options)


def selection_options(function: Function) -> Function:
    """Which records of which topics, for commands that load what is new."""
    options = [
        click.option("--pattern", help="Topics whose whole name matches this regular expression."),
        click.option(
            "--from-offsets", "starting_offsets", metavar="JSON", help="Where partitions begin at their first load."
        ),
        click.option(
            "--from-time", "starting_time_ms", type=click.IntRange(min=0), metavar="MS", help="The same by time."
        ),
        click.option(
            "--until-offsets", "ending_offsets", metavar="JSON", help="Where to end (default: what is there now)."
        ),
        click.option(
            "--until-time", "ending_time_ms", type=click.IntRange(min=0), metavar="MS", help="The same by time."
        ),
        click.option(
            "--max-rows", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Most in a file."
        ),
        click.option(
            "--isolation", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_committed"
        ),
        click.option("--allow-gaps", is_flag=True, help="Go on where offsets are gone, and note them."),
        click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the data source."),
    ]
    return with_options(function, options)


def with_options(function: Function, options: Sequence[Callable[[Function], Function]]) -> Function:
    """A command with these options, in their order."""
    for option in reversed(options):
        function = option(function)
    return function


def with_packages(given: Options) -> dict[str, str]:
    """Spark's settings by `--conf`, with those of `--packages` among them."""
    conf = parse_pairs(given["conf"], "--conf")
    names = [conf.pop(PACKAGES, ""), *given["packages"]]
    packages = ",".join(name for name in names if name)
    return {**conf, PACKAGES: packages} if packages else conf


@contextmanager
def running(name: str, given: Options, before: Callable[[], object]) -> Iterator[SparkSession]:
    """A session in which what goes wrong is one line for the user; `before` is called before it starts."""
    try:
        from pyspark.errors import PySparkException

        from kbroker.client.errors import ClientError
        from kbroker.replay.load.errors import LoadError, explain
        from kbroker.replay.session import spark_session
    except ModuleNotFoundError as error:
        raise without_spark(error) from None
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        before()
        check_java()
        with spark_session(name, given["master"], with_packages(given)) as spark:
            yield spark
    except (LoadError, ClientError) as error:
        raise click.ClickException(str(error)) from None
    except (PySparkException, Py4JJavaError, RuntimeError, ValueError) as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise click.ClickException((explain(error) or first) + noted(error)) from None


@contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    from tqdm import tqdm

    with tqdm(desc=what, unit=unit, unit_scale=True, disable=not sys.stderr.isatty()) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


@command.command("to-parquet")
@click.argument("topics", nargs=-1, metavar="TOPIC…", shell_complete=completion.topics)
@bootstrap_option(takes_settings=False)
@click.option(
    "--output", "-o", "directory", required=True, metavar="DIRECTORY|URI", help="Where files and manifest are."
)
@selection_options
@click.option("--compression", type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]), default="zstd")
@spark_options
@json_option
def to_parquet_command(as_json: bool, **given: Any) -> int:
    """Load what is new since the last load.  Killed or failed, run it again: each offset is loaded once."""
    check = partial(check_cluster, given["bootstrap"], given["topics"])
    with running("kbroker load to-parquet", given, check) as spark, progress_bar("loading", "offsets") as progress:
        from kbroker.replay.load import LoadRequest, load_topics

        wanted = {name: value for name, value in given.items() if name not in (*OF_SPARK, "options")}
        report = load_topics(spark, LoadRequest(**wanted, options=parse_pairs(given["options"], "--option")), progress)
    if as_json:
        gaps = [[gap.topic, gap.partition, gap.start, gap.end] for gap in report.gaps]
        print_json({"rows": report.rows, "files": report.files, "bytes": report.bytes, "gaps": gaps,
                    "leftovers_removed": report.leftovers})  # fmt: skip
    else:
        print_table(
            ("rows", "files", "bytes", "gaps", "leftovers removed"),
            [(f"{report.rows:,}", report.files, f"{report.bytes:,}", len(report.gaps), report.leftovers)],
        )
    for gap in report.gaps:
        _tell_gap(gap.topic, gap.partition, gap.start, gap.end)
    return 0


def _tell_gap(topic: str, partition: int, start: int, end: int) -> None:
    click.echo(f"kbroker: {topic}-{partition}: offsets {start} to {end - 1} are gone", err=True)


@command.command("to-iceberg")
@click.argument("topics", nargs=-1, metavar="TOPIC…", shell_complete=completion.topics)
@bootstrap_option(takes_settings=False)
@click.option("--catalog", default="lake", show_default=True, help="The name of Spark's catalog.")
@click.option("--namespace", default="topics", show_default=True, help="Where the tables are, one for each topic.")
@click.option("--warehouse", metavar="URI", help="Where the catalog keeps its tables.")
@click.option(
    "--catalog-option",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property of the catalog (type=hadoop, jdbc, hive, rest; uri=…).",
)
@selection_options
@spark_options
@json_option
@click.pass_context
def to_iceberg_command(context: click.Context, /, **_given: object) -> int:
    """Load what is new into an Iceberg table for each topic.  Killed or failed, run it again: each record once."""
    given = _with_catalog(context.params)
    check = partial(check_cluster, given["bootstrap"], given["topics"])
    with running("kbroker load to-iceberg", given, check) as spark, progress_bar("loading", "offsets") as progress:
        from kbroker.replay.load import IcebergRequest, load_iceberg

        left = (*OF_SPARK, "options", "warehouse", "properties", "as_json")
        wanted = {name: value for name, value in given.items() if name not in left}
        request = IcebergRequest(**wanted, options=parse_pairs(given["options"], "--option"))
        reports = load_iceberg(spark, request, progress)
    names = ("table", "rows", "commits", "snapshot", "gaps")
    rows = [(one.table, one.rows, one.commits, one.snapshot, len(one.gaps)) for one in reports]
    print_rows([dict(zip(names, row, strict=True)) for row in rows], names, given["as_json"])
    for report in reports:
        for gap in report.gaps:
            _tell_gap(*gap)
    return 0


def _with_catalog(given: Options) -> Options:
    """The options with the settings of the catalog among those of `--conf`."""
    try:
        from pyspark import __version__

        from kbroker.replay.load.errors import LoadError
        from kbroker.replay.load.iceberg import settings
    except ModuleNotFoundError as error:
        raise without_spark(error) from None
    properties = {"type": "hadoop", **parse_pairs(given["properties"], "--catalog-option")}
    if given["warehouse"]:
        properties["warehouse"] = given["warehouse"]
    try:
        found = settings(__version__, given["catalog"], properties, parse_pairs(given["conf"], "--conf"))
    except LoadError as error:
        raise click.ClickException(str(error)) from None
    return {**given, "conf": tuple(f"{name}={value}" for name, value in found.items())}


@command.command("to-topic")
@click.argument("directory", metavar="DIRECTORY|URI")
@bootstrap_option(takes_settings=False)
@click.option("--state", required=True, metavar="DIRECTORY|URI", help="Where this job keeps how far it is.")
@click.option("--topic", help="Where all goes (default, for a load: where it came from).")
@click.option("--only", metavar="TOPIC", help="Of a load: only what came from this topic.")
@click.option("--partitions", type=click.Choice(["keep", "key"]), default="keep", show_default=True)
@click.option("--timestamps/--no-timestamps", default=True, help="Keep the records' times, or take that of writing.")
@click.option("--headers/--no-headers", default=True, help="Keep headers.")
@click.option("--create", type=click.IntRange(min=1), metavar="N", help="Make missing topics with N partitions.")
@click.option("--compression", type=click.Choice(CODECS), default="none", help="Of the record batches.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="A setting of the client (kafka.…).")
@spark_options
@json_option
def to_topic_command(as_json: bool, **given: Any) -> int:
    """Write Parquet files to topics that nothing else writes to.  Killed or failed, run it again: each row once."""
    check = partial(check_cluster, given["bootstrap"])
    with running("kbroker load to-topic", given, check) as spark, progress_bar("writing", "partitions") as progress:
        from kbroker.replay.load import RestoreRequest, restore

        wanted = {name: value for name, value in given.items() if name not in (*OF_SPARK, "options")}
        request = RestoreRequest(**wanted, options=parse_pairs(given["options"], "--option"))
        results = restore(spark, request, progress)
    show_lanes(results, as_json)
    return 0


def show_lanes(results: list[LaneResult], as_json: bool) -> None:
    """What was written, by partition."""
    rows = [(one.topic, one.partition, one.written, one.found, one.position) for one in results]
    names = ("topic", "partition", "written", "found", "position")
    print_rows([dict(zip(names, row, strict=True)) for row in rows], names, as_json)


def _manifest_at(directory: str, given: Options) -> Manifest:
    try:
        from kbroker.replay.load.errors import LoadError
        from kbroker.replay.load.files import local_path
        from kbroker.replay.load.hadoop_folder import is_remote
        from kbroker.replay.load.manifest import Manifest
    except ModuleNotFoundError as error:
        raise without_spark(error) from None
    if is_remote(directory):
        with running("kbroker load show", given, lambda: None) as spark:
            from kbroker.replay.load.export import existing_manifest

            return existing_manifest(spark, directory)
    try:
        return Manifest.existing(local_path(directory))
    except LoadError as error:
        raise click.ClickException(str(error)) from None


@command.command("show")
@click.argument("directory", metavar="DIRECTORY|URI")
@spark_options
@json_option
def show_command(directory: str, as_json: bool, **given: Any) -> int:
    """Show what a load holds, by partition.  A directory needs no Spark."""
    manifest = _manifest_at(directory, given)
    names = ("topic", "partition", "start", "end", "rows", "files", "bytes", "gaps")
    rows = []
    for (topic, partition), end in sorted(manifest.ends().items()):
        files = [row for row in manifest.files if (row.topic, row.partition) == (topic, partition)]
        gaps = [row for row in manifest.gaps if (row.topic, row.partition) == (topic, partition)]
        start = min(row.start for row in manifest.ranges() if (row.topic, row.partition) == (topic, partition))
        named = [row for row in files if row.path is not None]
        figures = (sum(row.rows for row in named), len(named), sum(row.bytes for row in named), len(gaps))
        rows.append((topic, partition, start, end, *figures))
    print_rows([dict(zip(names, row, strict=True)) for row in rows], names, as_json)
    return 0
