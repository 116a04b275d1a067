"""`kbroker mirror`: one cluster's topics in another, once or for ever.

Exit status: 0 done, 1 failed (run it again: it goes on where it was), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.output import json_option, parse_pairs
from kbroker.cli.spark.before_spark import check_cluster
from kbroker.cli.spark.load import CODECS, OF_SPARK, progress_bar, running, show_lanes, spark_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kbroker.replay.load.lanes import LaneResult
    from kbroker.replay.mirror import MirrorRequest

_NOT_OF_THE_REQUEST = (*OF_SPARK, "source_options", "target_options")


@click.command("mirror")
@click.argument("topics", nargs=-1, metavar="TOPIC…")
@click.option("--from", "source", required=True, metavar="HOST:PORT[,…]", help="The cluster that has the topics.")
@click.option("--to", "target", required=True, metavar="HOST:PORT[,…]", help="The cluster that gets them.")
@click.option("--state", required=True, metavar="DIRECTORY|URI", help="Where this job keeps how far it is.")
@click.option("--pattern", help="Topics whose whole name matches this regular expression.")
@click.option("--rename", default="{topic}", show_default=True, help="The target's name for a topic.")
@click.option("--from-offsets", "starting_offsets", metavar="JSON", help="Where partitions begin (default: earliest).")
@click.option("--from-time", "starting_time_ms", type=click.IntRange(min=0), metavar="MS", help="The same by time.")
@click.option("--isolation", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_committed")
@click.option("--compression", type=click.Choice(CODECS), default="none", help="Of the target's record batches.")
@click.option("--allow-gaps", is_flag=True, help="Go on where the source has lost offsets; the state names them.")
@click.option(
    "--slice",
    "slice_records",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="Records of a partition between two states.",
)
@click.option("--source-option", "source_options", multiple=True, metavar="KEY=VALUE", help="kafka.… of the reader.")
@click.option("--target-option", "target_options", multiple=True, metavar="KEY=VALUE", help="kafka.… of the writer.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until it is interrupted.")
@click.option(
    "--trigger",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="With --follow: how often.",
)
@spark_options
@json_option
def command(as_json: bool, follow: bool, trigger: float, **given: Any) -> int:
    """Mirror topics with keys, headers, timestamps and partitions.  Killed or failed, run it again: each record once.

    Missing topics are made with the source's partitions and settings.  No other producer may write to the target's.
    """

    def check() -> None:
        check_cluster(given["source"], given["topics"])
        check_cluster(given["target"])

    with running("kbroker mirror", given, check) as spark:
        from kbroker.replay.mirror import MirrorRequest, mirror_once

        request = MirrorRequest(
            **{name: value for name, value in given.items() if name not in _NOT_OF_THE_REQUEST},
            source_options=parse_pairs(given["source_options"], "--source-option"),
            target_options=parse_pairs(given["target_options"], "--target-option"),
        )
        if follow:
            _follow(spark, request, trigger)
            return 0
        with progress_bar("mirroring", "partitions") as progress:
            results = mirror_once(spark, request, progress)
    show_lanes(results, as_json)
    return 0


def _follow(spark: SparkSession, request: MirrorRequest, trigger: float) -> None:
    from kbroker.replay.mirror import mirror_follow

    total = 0

    def tell(results: list[LaneResult]) -> None:
        nonlocal total
        written = sum(one.written for one in results)
        found = sum(one.found for one in results)
        total += written
        if written or found:
            note = f", {found:,} were there already" if found else ""
            print(f"mirrored {written:,} records{note}; {total:,} since the start", file=sys.stderr, flush=True)  # noqa: T201

    with mirror_follow(spark, request, trigger_s=trigger, on_batch=tell) as query:
        query.awaitTermination()
