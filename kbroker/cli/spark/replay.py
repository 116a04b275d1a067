"""`kbroker replay`: traces sent to a cluster at their own times, what became of them proved and shown.

    kbroker replay TRACE… -o RUN     replays (`kbroker replay run` in full)
    kbroker replay verify RUN        reads everything back
    kbroker replay report RUN        a page, JSON and Parquet; `--compare A B` for two runs

Exit status: 0 done, 1 failed, 2 wrong usage, 3 done, but records failed, rows were malformed with `--strict`, or a
promise was not kept, 130 stopped by Ctrl-C (a replay leaves what it has measured).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connection import bootstrap_option
from kbroker.cli.output import json_option, print_json, print_table, without_spark
from kbroker.cli.profile_option import merged_settings
from kbroker.cli.spark.before_spark import check_cluster, check_outputs
from kbroker.cli.spark.stage_progress import stages_shown
from kbroker.cli.spark.trace import keep_malformed, no_rows, read_rows, reading, running, shape_of, shaping, warn
from kbroker.types import JsonObject, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbroker.replay.player.settings import Delivery

FAILED_STATUS = 3
STOPPED_STATUS = 130
MEANING = """\
late: sent later than --late-ms after its time; latency: from the time at which a record should have been sent to its
acknowledgement; sent error: from that time to when it was sent; queue full: there was no room in the local queue"""


class _ReplayGroup(click.Group):
    """A group in which `run` need not be said."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("replay", cls=_ReplayGroup)
def command() -> None:
    """Replay a trace against a cluster, verify what arrived, and report.

    `kbroker replay TRACE… -o RUN` is short for `kbroker replay run TRACE… -o RUN`.
    """


@command.command("run")
@reading
@bootstrap_option("--bootstrap")
@click.option("--output", "-o", required=True, metavar="RUN", help="Directory for what is measured.")
@click.option("--executors", type=click.IntRange(min=1), help="Tasks that send together (default: Spark's places).")
@click.option(
    "--create-topics",
    type=click.IntRange(min=1),
    metavar="PARTITIONS",
    help="Create missing topics.",
)
@click.option("--topic-prefix", default="", metavar="TEXT", help="Put before each topic's name.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option("--idempotence/--no-idempotence", default=None, help="Default: on with --acks all.")
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@click.option("--linger-ms", type=click.FloatRange(min=0), default=5.0, show_default=True)
@click.option("--batch-bytes", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option(
    "--delivery-timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="A record that is not acknowledged by then has failed.",
)
@click.option(
    "--queue-records",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Records that wait in an executor at most.",
)
@click.option("--transaction-records", type=click.IntRange(min=1), help="Send in transactions of so many records.")
@click.option(
    "--late-ms",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="What is sent later than this counts as late.",
)
@click.option(
    "--consume-wait-ms",
    type=click.IntRange(min=0),
    default=500,
    show_default=True,
    help="How long a consume operation waits for a record.",
)
@click.option("--ids/--no-ids", default=True, help="Give each record an id in a header, to verify by.")
@click.option("--metrics-url", metavar="URL", help="The broker's Prometheus page, taken once a second.")
@click.option("--name", default="", help="How reports call this run.")
@click.option("--quiet", is_flag=True, help="No progress.")
@shaping
@json_option
def run_command(paths: tuple[str, ...], output: str, as_json: bool, **given: Any) -> int:  # fmt: skip
    """Send a trace's records at their times, without waiting for answers, and measure.

    Latency runs from the time at which a record should have been sent.  Ctrl-C stops and keeps what was measured.
    """
    settings = merged_settings()

    def check() -> None:
        check_outputs(output, overwrite=given["overwrite"])
        check_cluster(given["bootstrap"], settings=settings)

    with (
        running("kbroker replay", paths, given, check) as spark,
        stages_shown(spark, "reading", quiet=given["quiet"]) as has_read,
    ):
        from pyspark.sql import Observation

        from kbroker.replay.player.run import STOPPED, Request, run_replay
        from kbroker.replay.player.settings import NoRowsError
        from kbroker.replay.report.numbers import summary_of
        from kbroker.replay.shape import apply

        delivery = _delivery(given, settings)
        counts = Observation("read")
        trace = read_rows(spark, paths, given)
        shaped = apply(trace.counted(counts).rows, shape_of(given))
        request = Request(
            bootstrap=given["bootstrap"], output=output, delivery=delivery, executors=given["executors"],
            create_partitions=given["create_topics"], topic_prefix=given["topic_prefix"], ids=given["ids"],
            metrics_url=given["metrics_url"], name=given["name"] or Path(output).name, overwrite=given["overwrite"],
        )  # fmt: skip
        try:
            with _Bar(has_read, quiet=given["quiet"]) as bar:
                document = run_replay(spark, shaped, request, bar)
        except NoRowsError:
            malformed = keep_malformed(trace, given["malformed"], given, trace.reasons())
            raise click.ClickException(no_rows(paths, malformed, given["malformed"], trace)) from None
        reasons = trace.reasons() if counts.get["malformed"] else {}
        malformed = keep_malformed(trace, given["malformed"], given, reasons)
    summary = summary_of(output)
    if as_json:
        print_json({**summary, "malformed": malformed, "output": output})
    else:
        _print_summary(summary)
    warn(None, malformed, given["malformed"])
    for text in kept_as_they_were(document, given["create_topics"]):
        click.echo(f"kbroker: {text}", err=True)
    if document["status"] == STOPPED:
        click.echo(f"kbroker: stopped; {output} has what was measured until then", err=True)
        return STOPPED_STATUS
    bad = summary["failed"] or summary["unsent"] or (malformed and given["strict"])
    return FAILED_STATUS if bad else 0


@command.command("verify")
@click.argument("run", metavar="RUN")
@click.option(
    "-b",
    "--bootstrap",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT[,…]",
    help="Where the cluster is now (default: where it was).",
)
@click.option("--details", metavar="DIRECTORY", help="Where the records go that were lost, doubled, changed or moved.")
@click.option("--strict", is_flag=True, help="Exit status 3 for duplicates and order that nothing promised, too.")
@click.option("--overwrite", is_flag=True, help="Replace the details that are there.")
@click.option("--master", help="Spark master (default: spark-submit's, else local[*]).")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")
@json_option
def verify_command(run: str, as_json: bool, **given: Any) -> int:
    """Read everything back, and prove what became of each record, by partition."""
    from kbroker.replay.verify_result import judge

    given |= {"trace_format": "parquet", "mapping": None, "malformed": None}
    path = str(Path(run) / "run.json")
    with running("kbroker replay verify", (path,), given) as spark, stages_shown(spark, "verifying"):
        from kbroker.replay.verify import verify_run

        result = verify_run(
            spark, run, bootstrap=given["bootstrap"], details=given["details"], overwrite=given["overwrite"]
        )
    broken = judge(result, strict=given["strict"])
    if as_json:
        print_json({**result, "broken": broken})
    else:
        names = ("topic", "partition", "acknowledged", "found", "distinct", "lost", "duplicates", "damaged",
                 "out_of_order")  # fmt: skip
        print_table(names, [tuple(row[name] for name in names) for row in result["partitions"]], title="Partitions")
        total = result["total"]
        print_table(tuple(total), [tuple(f"{number:,}" for number in total.values())], title="All")
        click.echo(
            "found: records of this run in the topics; distinct: without doubles; lost: acknowledged and not found; "
            "damaged: found with another key, value or headers; excused: never acknowledged; foreign: records of others"
        )
        click.echo("\n".join(broken) if broken else "Every promise was kept.")
    return FAILED_STATUS if broken else 0


@command.command("report")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("--compare", is_flag=True, help="Two runs side by side.")
@click.option("--output", "-o", metavar="DIRECTORY", help="Where the report goes (default: into the run).")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="A metric of the broker to plot (repeatable).")
@json_option
def report_command(
    runs: tuple[str, ...], compare: bool, output: str | None, metrics: tuple[str, ...], as_json: bool
) -> int:
    """Write report.html, report.json and Parquet of a run; with --compare of two."""
    if len(runs) != (2 if compare else 1):
        raise click.UsageError("--compare takes two runs" if compare else "give one run, or two with --compare")
    if compare and output is None:
        raise click.UsageError("--compare needs --output DIRECTORY")
    try:
        from kbroker.replay.report.page import write_comparison, write_report
        from kbroker.replay.traces.errors import TraceError
    except ModuleNotFoundError as error:
        raise without_spark(error) from None
    try:
        if compare:
            page = write_comparison(runs[0], runs[1], str(output), metrics)
        else:
            page = write_report(runs[0], output or runs[0], metrics)
    except TraceError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json({"page": str(page)})
    else:
        click.echo(str(page))
    return 0


def kept_as_they_were(document: Mapping[str, object], wanted: int | None) -> list[str]:
    """A line for each topic of a run that has fewer partitions than it would have been made with."""
    offsets = document["starting_offsets"]
    assert isinstance(offsets, dict)
    return [
        f"topic {name} was there already, with {len(partitions)} partitions: --create-topics {wanted} makes what is "
        "missing, and changes nothing"
        for name, partitions in offsets.items()
        if wanted is not None and len(partitions) < wanted
    ]


def _delivery(given: Options, client: dict[str, str]) -> Delivery:
    from kbroker.replay.player.settings import Delivery

    idempotence = given["idempotence"] if given["idempotence"] is not None else given["acks"] == "all"
    return Delivery(
        acks=given["acks"], idempotence=idempotence, compression=given["compression"], linger_ms=given["linger_ms"],
        batch_bytes=given["batch_bytes"], timeout_s=given["delivery_timeout"], queue_records=given["queue_records"],
        transaction_records=given["transaction_records"], late_ms=given["late_ms"],
        consume_wait_ms=given["consume_wait_ms"], client=client,
    )  # fmt: skip


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _print_summary(summary: JsonObject) -> None:
    shown: list[tuple[str, Callable[[Any], str]]] = [
        ("offered", "{:,}".format), ("acknowledged", "{:,}".format), ("failed", "{:,}".format),
        ("unsent", "{:,}".format), ("late", "{:,}".format), ("acknowledged_per_second", "{:,.0f}".format),
        ("latency_p50_ms", _short), ("latency_p99_ms", _short),
        ("sent_error_p99_ms", _short), ("queue_full_seconds", _short),
    ]  # fmt: skip
    row = [form(summary[name]) if summary[name] is not None else None for name, form in shown]
    print_table([name.replace("_", " ") for name, _ in shown], [row])
    click.echo(MEANING)
    if summary["errors"]:
        print_table(("error", "records"), sorted(summary["errors"].items()))


class _Bar:
    """The progress of a replay: how many records, at which rates, and what waits."""

    def __init__(self, has_read: Callable[[], None], *, quiet: bool) -> None:
        """`has_read` ends the line of what came before."""
        self._has_read = has_read
        self._quiet = quiet
        self._bar: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, plan: Any, counts: dict[str, int]) -> None:
        if self._quiet or not counts:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._has_read()

            self._bar = tqdm(total=plan.records, unit=" records", unit_scale=True, desc="replay", mininterval=0.5)
        self._bar.update(counts["sent"] - self._bar.n)
        waiting = max(0, counts["sent"] - counts["acknowledged"] - counts["failed"])
        self._bar.set_postfix_str(
            f"{counts['bytes'] / 1e6:.1f} MB, waiting {waiting:,}, late {counts['late']:,}, failed {counts['failed']:,}"
            + (f", queue full {counts['queue_full_us'] / 1e6:.1f} s" if counts["queue_full_us"] else ""),
            refresh=False,
        )
