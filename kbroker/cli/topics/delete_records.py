"""`kbroker topics delete-records`: old records of any Kafka's topics, which stay themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click

from kbroker.administration.records import delete_records, from_time
from kbroker.cli import completion
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, print_errors, print_json, print_table
from kbroker.cli.places import LOCAL, PLACES, TIME, milliseconds_of, named_partitions
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode
from kbroker.types import EARLIEST, LATEST, JsonObject

if TYPE_CHECKING:
    from kbroker.administration.admin import Place
    from kbroker.client.admin import ClusterAdmin

_TEXTS: dict[int, str] = {
    ErrorCode.POLICY_VIOLATION: "its cleanup.policy does not let records be deleted",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "records of an internal topic are not deleted",
    ErrorCode.REQUEST_TIMED_OUT: "the leader has deleted them, but not yet every replica in sync",
}
"""Of errors for which this API has no text."""


@click.command("delete-records")
@click.argument("topics", metavar=f"{PLACES}…", nargs=-1, required=True, shell_complete=completion.topics)
@click.option("--before-offset", type=click.IntRange(min=0), help="Those before this offset.")
@click.option("--before-time", type=TIME, metavar="TIME", help=f"Those before the first one from TIME on ({LOCAL}).")
@click.option("--all", "everything", is_flag=True, help="All that there are by now.")
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@json_option
@cluster_options
def command(
    cluster: Cluster,
    topics: tuple[str, ...],
    before_offset: int | None,
    before_time: datetime | None,
    everything: bool,
    execute: bool,
    as_json: bool,
) -> int:
    """Delete the oldest records of topics or partitions.  Topics and settings stay; nothing brings the records back."""
    if [before_offset is not None, before_time is not None, everything].count(True) != 1:
        raise click.UsageError("give one of --before-offset, --before-time, --all")
    errors: list[str] = []
    with cluster.admin() as admin:
        places = named_partitions(admin, topics, "TOPIC")
        first, ends = (admin.do(admin.offsets_of(places, at)) for at in (EARLIEST, LATEST))
        wanted = _targets(admin, ends, before_offset, before_time)
        starts = {place: max(wanted[place], first[place]) for place in places}
        if execute:
            errors = _delete(admin, {place: at for place, at in starts.items() if at > first[place]}, first, starts)
    rows: list[JsonObject] = [
        {
            "topic": place[0],
            "partition": place[1],
            "start_offset": first[place],
            "end_offset": ends[place],
            "new_start_offset": starts[place],
            "deleted_offsets": starts[place] - first[place],
        }
        for place in places
    ]
    if as_json:
        print_json({"executed": execute, "partitions": rows})
    else:
        headers = ("TOPIC", "PARTITION", "START", "END", "NEW START", "DELETED OFFSETS")
        print_table(headers, [tuple(row.values()) for row in rows])
        if not execute:
            is_some = any(row["deleted_offsets"] for row in rows)
            click.echo(f"nothing changed: {'add --execute to do it' if is_some else 'no record is before that'}")
    return print_errors(errors)


def _targets(
    admin: ClusterAdmin, ends: Mapping[Place, int], before_offset: int | None, before_time: datetime | None
) -> Mapping[Place, int]:
    """The offsets before which records go; what comes behind the ends from now on stays in any case.

    ClickException for an offset behind an end: a slip would delete all.
    """
    if before_time is not None:
        found = admin.do(from_time(admin, ends, milliseconds_of(before_time)))
        return {place: min(at, ends[place]) for place, at in found.items()}
    if before_offset is None:
        return ends
    for (topic, partition), end in ends.items():
        if before_offset > end:
            raise click.ClickException(f"{topic}-{partition}: offset {before_offset} is behind the end, which is {end}")
    return dict.fromkeys(ends, before_offset)


def _delete(
    admin: ClusterAdmin, targets: Mapping[Place, int], first: Mapping[Place, int], starts: dict[Place, int]
) -> list[str]:
    """Delete, and put into `starts` where the partitions begin then; what was refused."""
    errors = []
    for place, (code, start) in admin.do(delete_records(admin, targets)).items():
        if not code:
            starts[place] = start
            continue
        starts[place] = first[place]
        name = error_name(code)
        errors.append(f"{place[0]}-{place[1]}: {f'{name}: {_TEXTS[code]}' if code in _TEXTS else name}")
    return errors
