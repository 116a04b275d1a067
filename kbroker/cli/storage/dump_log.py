"""`kbroker dump-log`: what is in the files of a data directory, Kafka's or ours; the two are the same.

A file's name says which format it has.  A directory stands for all such files in it.  Damage is reported in place
and makes the exit status 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click

from kbroker.cli.storage import dump_files
from kbroker.cli.storage.dump_segment import SNAPSHOT_SUFFIX, Row, dump_segment

Dump = Callable[[Path], Iterator[Row]]

BY_SUFFIX: dict[str, Dump] = {
    ".index": dump_files.dump_offset_index,
    ".timeindex": dump_files.dump_time_index,
    ".txnindex": dump_files.dump_transaction_index,
    ".snapshot": dump_files.dump_producer_snapshot,
}
BY_NAME: dict[str, Dump] = {
    "leader-epoch-checkpoint": dump_files.dump_epoch_checkpoint,
    "recovery-point-offset-checkpoint": dump_files.dump_offset_checkpoint,
    "log-start-offset-checkpoint": dump_files.dump_offset_checkpoint,
    "replication-offset-checkpoint": dump_files.dump_offset_checkpoint,
    "cleaner-offset-checkpoint": dump_files.dump_offset_checkpoint,
    "partition.metadata": dump_files.dump_partition_metadata,
    "meta.properties": dump_files.dump_properties,
}
RENAMED = re.compile(r"(\.[0-9]+)?\.deleted$|\.cleaned$|\.swap$")
"""Suffixes that Kafka adds to files on their way in or out; kbroker numbers deletions."""


@click.command("dump-log")
@click.argument("paths", nargs=-1, required=True, metavar="FILES…", type=click.Path(exists=True, path_type=Path))
@click.option("--deep", is_flag=True, help="Show the records of segments, not only the batches.")
@click.option("--print-data", is_flag=True, help="Show keys, values and headers too; implies --deep.")
@click.option("--no-decode", is_flag=True, help="Do not decode the records of internal topics.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
def command(paths: tuple[Path, ...], deep: bool, print_data: bool, no_decode: bool, as_json: bool) -> int:
    """Print what is in segments, indexes, producer snapshots, checkpoints and identity files.

    Records of __consumer_offsets, __transaction_state and __cluster_metadata, and those of its snapshots
    (.checkpoint), are decoded when --deep is given.  Other files are left out, with a word.
    """
    segments = partial(dump_segment, deep=deep or print_data, print_data=print_data, decode=not no_decode)
    damaged = False
    chosen = list(_expand(paths))
    unknown = [path for path in chosen if find_dump(path, segments) is None]
    known = ", ".join((".log", SNAPSHOT_SUFFIX, *BY_SUFFIX, *BY_NAME))
    if unknown and len(unknown) == len(chosen):
        raise click.UsageError(f"{unknown[0]}: nothing that dump-log knows ({known})")
    for path in chosen:
        dump = find_dump(path, segments)
        if dump is None:
            click.echo(f"{path}: left out, nothing that dump-log knows ({known})", err=True)
            continue
        if not as_json:
            click.echo(f"{path}")
        for row in _rows(path, dump):
            damaged |= "error" in row
            click.echo(json.dumps({"file": str(path), **row}, ensure_ascii=False) if as_json else _line(row))
    return 1 if damaged else 0


def find_dump(path: Path, segments: Dump) -> Dump | None:
    """What reads a file of this name; None when nothing does."""
    name = RENAMED.sub("", path.name)
    if name in BY_NAME:
        return BY_NAME[name]
    suffix = Path(name).suffix
    return segments if suffix in (".log", SNAPSHOT_SUFFIX) else BY_SUFFIX.get(suffix)


def _expand(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (child for child in sorted(path.iterdir()) if child.is_file() and find_dump(child, iter_none))
        else:
            yield path


def iter_none(_path: Path) -> Iterator[Row]:
    """Stands for the segment reader where only the name matters."""
    return iter(())


def _rows(path: Path, dump: Dump) -> Iterator[Row]:
    try:
        yield from dump(path)
    except ValueError as error:
        yield {"error": str(error)}


def _line(row: Row) -> str:
    indent = "  | " if "record" in row else "  "
    return indent + " ".join(f"{key}: {_cell(value)}" for key, value in row.items())


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    return str(value)
