"""`kbroker logs repair`: checks the files of a partition of a stopped broker, and takes damage out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.cli import completion
from kbroker.cli.output import json_option, print_json
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from kbroker.storage.log.segment_view import Hole


@click.command("repair")
@click.argument("topic", shell_complete=completion.topics)
@click.argument("partition", type=click.IntRange(min=0))
@click.option("-d", "--directory", required=True, metavar="DIR", help="The log directory of the stopped broker.")
@click.option("--skip", is_flag=True, help="Take out what cannot be read; the rest keeps its offsets.")
@click.option("--truncate", is_flag=True, help="End the log in front of the first damage.")
@json_option
def repair_log(topic: str, partition: int, directory: str, skip: bool, truncate: bool, as_json: bool) -> int:
    """Check every byte of a partition's segments; with --skip or --truncate, repair them.

    Files that change are kept as NAME.damaged.  Exit status 1 when there is damage and it was only shown.
    """
    from kbroker.storage.directories.directory_description import opened
    from kbroker.storage.directories.log_dirs import LogDirError
    from kbroker.storage.files.filesystem import SYSTEM_FILES
    from kbroker.storage.reports.log_repair import PartitionFiles
    from kbroker.types import TopicPartition

    if skip and truncate:
        raise click.UsageError("--skip and --truncate exclude each other")
    try:
        with opened(directory) as log_dir:
            path = f"{log_dir.path}/{topic}-{partition}"
            if not SYSTEM_FILES.exists(path):
                raise click.ClickException(f"there is no {topic}-{partition} in {directory}")
            partition_files = PartitionFiles(path, SYSTEM_FILES)
            findings = list(partition_files.check())
            rows = [_row(finding.segment.path, hole) for finding in findings for hole in finding.holes]
            done = []
            if skip:
                done = [
                    f"{finding.segment.path}: {partition_files.skip(finding)} bytes taken out" for finding in findings
                ]
            elif truncate and findings:
                end = partition_files.truncate(findings[0], TopicPartition(topic, partition))
                done = [f"{topic}-{partition} ends at offset {end} now"]
    except LogDirError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json({"topic": topic, "partition": partition, "damages": rows, "done": done})
    else:
        _print(rows, done)
    return 1 if rows and not done else 0


def _row(path: str, hole: Hole) -> JsonObject:
    return {
        "path": path,
        "position": hole.position,
        "size_bytes": hole.end_position - hole.position,
        "offset": hole.offset,
        "end_offset": hole.end_offset,
        "reason": hole.reason,
    }


def _print(rows: list[JsonObject], done: list[str]) -> None:
    for row in rows:
        upto = "on" if row["end_offset"] is None else f"to {row['end_offset'] - 1}"
        where = f"{row['path']} at position {row['position']}, {row['size_bytes']} bytes"
        click.echo(f"{where}, offsets from {row['offset']} {upto}: {row['reason']}")
    for line in done:
        click.echo(line)
    if not rows:
        click.echo("no damage")
    elif not done:
        click.echo("nothing changed: add --skip or --truncate to repair it")
