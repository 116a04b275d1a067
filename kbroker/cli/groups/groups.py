"""`kbroker groups`: list, describe, reset and delete consumer groups of any Kafka."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kbroker.cli import completion
from kbroker.cli.connection import (
    Cluster,
    admin_api,
    client_error,
    cluster_options,
    describe_error,
    result_of,
    results_of,
)
from kbroker.cli.groups.group_kinds import where_shown
from kbroker.cli.groups.group_offsets import (
    Partition,
    commit_offsets,
    committed_offsets,
    end_offsets,
    list_offsets,
    members_in_the_way,
)
from kbroker.cli.groups.zookeeper_groups import (
    SERVERS,
    Servers,
    describe_old_groups,
    list_old_groups,
    move_offsets,
    zookeeper_config_option,
)
from kbroker.cli.output import json_option, print_errors, print_json, print_table
from kbroker.nearest import did_you_mean
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class Reset(NamedTuple):
    """Where `reset-offsets` moves a group: exactly one is set."""

    to_earliest: bool
    to_latest: bool
    to_offset: int | None
    to_datetime: datetime | None
    shift_by: int | None


zookeeper_option = click.option(
    "--zookeeper", metavar=SERVERS, help="Of Kafka 0.8's consumers, which keep their groups in ZooKeeper."
)


@click.group("groups")
def command() -> None:
    """List, describe, reset and delete consumer groups; move those of Kafka 0.8 out of ZooKeeper."""


command.add_command(move_offsets)


@command.command("list")
@zookeeper_option
@zookeeper_config_option
@json_option
@cluster_options
def list_groups(cluster: Cluster, as_json: bool, zookeeper: str | None, zookeeper_config: str | None) -> int:
    """List groups with their states."""
    if zookeeper is not None:
        return list_old_groups(Servers(zookeeper, zookeeper_config, cluster.timeout), as_json)
    admin = cluster.admin()
    result = result_of(admin.list_consumer_groups(request_timeout=cluster.timeout), cluster.timeout)
    groups = [
        {
            "group": group.group_id,
            "state": group.state.name.lower() if group.state is not None else None,
            "type": group.type.name.lower() if group.type is not None else None,
            "simple": group.is_simple_consumer_group,
        }
        for group in sorted(result.valid, key=lambda group: str(group.group_id))
    ]
    if as_json:
        print_json(groups)
    else:
        print_table(("GROUP", "STATE", "TYPE"), [(g["group"], g["state"], g["type"]) for g in groups])
    return print_errors(describe_error(error) for error in result.errors)


@command.command("describe")
@click.argument("names", nargs=-1, required=True, shell_complete=completion.consumer_groups)
@zookeeper_option
@zookeeper_config_option
@json_option
@cluster_options
def describe_groups(
    cluster: Cluster, names: tuple[str, ...], as_json: bool, zookeeper: str | None, zookeeper_config: str | None
) -> int:
    """Describe groups: state, committed offsets, lag and members."""
    if zookeeper is not None:
        return describe_old_groups(Servers(zookeeper, zookeeper_config, cluster.timeout), cluster, names, as_json)
    admin = cluster.admin()
    try:
        futures = admin.describe_consumer_groups(list(names), request_timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None
    found, errors = results_of(futures, cluster.timeout)
    groups = []
    for name, group in found.items():
        # Kafka describes an unknown group, and one of another kind, as a dead one; its offsets tell that it never was.
        is_dead = group.state.name == "DEAD"
        if is_dead and (elsewhere := where_shown(cluster, name)):
            errors.append(f"{name}: {elsewhere}")
            continue
        committed = committed_offsets(admin, cluster, name)
        if is_dead and not committed:
            errors.append(f"{name}: GROUP_ID_NOT_FOUND: there is no such group{cluster.near_group(name)}")
            continue
        groups.append(_group(group, committed, end_offsets(admin, cluster, committed)))
    if as_json:
        print_json(groups)
    else:
        for described in groups:
            _print_group(described)
    return print_errors(errors)


def _group(group: Any, committed: dict[Partition, int], ends: dict[Partition, int]) -> JsonObject:
    owners: dict[Partition, Any] = {}
    for member in group.members:
        if member.assignment is not None:
            owners.update({(tp.topic, tp.partition): member for tp in member.assignment.topic_partitions})
    partitions = []
    for partition in sorted({*committed, *owners}):
        offset, end = committed.get(partition), ends.get(partition)
        owner = owners.get(partition)
        partitions.append(
            {
                "topic": partition[0],
                "partition": partition[1],
                "committed_offset": offset,
                "end_offset": end,
                "lag": max(0, end - offset) if offset is not None and end is not None else None,
                "member": owner.member_id if owner is not None else None,
            }
        )
    return {
        "group": group.group_id,
        "state": group.state.name.lower(),
        "assignor": group.partition_assignor or None,
        "coordinator": group.coordinator.id if group.coordinator is not None else None,
        "partitions": partitions,
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": len(member.assignment.topic_partitions) if member.assignment is not None else 0,
            }
            for member in group.members
        ],
    }


def _print_group(group: JsonObject) -> None:
    click.echo(
        f"{group['group']}  {group['state']}  assignor {group['assignor'] or 'none'}  "
        f"coordinator {group['coordinator']}  members {len(group['members'])}"
    )
    if group["partitions"]:
        print_table(
            ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"),
            [tuple(partition.values()) for partition in group["partitions"]],
        )
    if group["members"]:
        print_table(
            ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"),
            [tuple(member.values()) for member in group["members"]],
        )


@command.command("reset-offsets")
@click.argument("group", shell_complete=completion.consumer_groups)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,…]",
    help="Which topics or partitions.",
    shell_complete=completion.topics,
)
@click.option("--all-topics", is_flag=True, help="Every partition that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", is_flag=True, help="Past the last record.")
@click.option("--to-offset", type=click.IntRange(min=0), help="This offset, within what the partition has.")
@click.option(
    "--to-datetime",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d"]),
    help="The first record from this time on (local time unless it has an offset).",
)
@click.option("--shift-by", type=int, help="Forward by so many offsets, or backward when negative.")
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@json_option
@cluster_options
def reset_offsets(
    cluster: Cluster,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: datetime | None,
    shift_by: int | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Move a group's committed offsets.  The group must have no members."""
    reset = Reset(to_earliest, to_latest, to_offset, to_datetime, shift_by)
    if sum(value is not None and value is not False for value in reset) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by")
    if bool(topics) == all_topics:
        raise click.UsageError("give --topic, or --all-topics")
    admin = cluster.admin()
    committed = committed_offsets(admin, cluster, group)
    partitions = sorted(committed) if all_topics else _named_partitions(admin, cluster, topics)
    if not partitions:
        near = cluster.near_group(group)
        raise click.ClickException(f"{group}: nothing to reset, the group has committed no offsets{near}")
    targets = _targets(admin, cluster, partitions, committed, reset)
    if execute:
        commit_offsets(admin, cluster, group, targets)
    rows = [
        {"topic": topic, "partition": partition, "old_offset": committed.get((topic, partition)), "new_offset": offset}
        for (topic, partition), offset in targets.items()
    ]
    if as_json:
        print_json({"group": group, "executed": execute, "partitions": rows})
    else:
        print_table(("TOPIC", "PARTITION", "OLD OFFSET", "NEW OFFSET"), [tuple(row.values()) for row in rows])
        if not execute:
            members = members_in_the_way(admin, cluster, group)
            click.echo(f"nothing changed: {members or 'add --execute to do it'}")


def _named_partitions(admin: AdminClient, cluster: Cluster, topics: tuple[str, ...]) -> list[Partition]:
    try:
        known = admin.list_topics(timeout=cluster.timeout).topics
    except Exception as error:
        raise client_error(error) from None
    partitions: list[Partition] = []
    for item in topics:
        name, colon, numbers = item.partition(":")
        if name not in known:
            raise click.ClickException(
                f"{name}: UNKNOWN_TOPIC_OR_PARTITION: there is no such topic{did_you_mean(name, known)}"
            )
        there = set(known[name].partitions)
        wanted = there
        if colon:
            if not all(number.isdigit() for number in numbers.split(",")):
                raise click.UsageError(f"--topic {item}: must be topic or topic:0,1,…")
            wanted = {int(number) for number in numbers.split(",")}
        if wanted - there:
            raise click.ClickException(f"{name}: there is no partition {min(wanted - there)}")
        partitions.extend((name, partition) for partition in sorted(wanted))
    return partitions


def _targets(
    admin: AdminClient, cluster: Cluster, partitions: list[Partition], committed: dict[Partition, int], reset: Reset
) -> dict[Partition, int]:
    specs = admin_api().OffsetSpec
    first = list_offsets(admin, cluster, partitions, specs.earliest())
    last = list_offsets(admin, cluster, partitions, specs.latest())
    at_time: dict[Partition, int] = {}
    if reset.to_datetime is not None:
        timestamp_ms = int(reset.to_datetime.timestamp() * 1000)
        at_time = list_offsets(admin, cluster, partitions, specs.for_timestamp(timestamp_ms))
    targets: dict[Partition, int] = {}
    for partition in partitions:
        if partition not in first or partition not in last:
            raise click.ClickException(f"{partition[0]}-{partition[1]}: the broker knows no offsets of it")
        low, high = first[partition], last[partition]
        targets[partition] = min(max(_target(reset, partition, low, high, committed, at_time), low), high)
    return targets


def _target(
    reset: Reset,
    partition: Partition,
    low: int,
    high: int,
    committed: dict[Partition, int],
    at_time: dict[Partition, int],
) -> int:
    if reset.to_earliest:
        return low
    if reset.to_offset is not None:
        return reset.to_offset
    if reset.shift_by is not None:
        if partition not in committed:
            raise click.ClickException(f"{partition[0]}-{partition[1]}: nothing committed that --shift-by could move")
        return committed[partition] + reset.shift_by
    if reset.to_datetime is not None:
        # No record is that young: continue with what comes next.
        return high if at_time.get(partition, -1) < 0 else at_time[partition]
    return high


def _with_near(error: str, cluster: Cluster) -> str:
    """The error of a group, with the name that may have been meant where there is no such group."""
    name, _, text = error.partition(": ")
    return error.rstrip(".") + cluster.near_group(name) if text.startswith("GROUP_ID_NOT_FOUND") else error


@command.command("delete")
@click.argument("names", nargs=-1, required=True, shell_complete=completion.consumer_groups)
@json_option
@cluster_options
def delete_groups(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> int:
    """Delete groups and their offsets.  They must have no members."""
    admin = cluster.admin()
    try:
        futures = admin.delete_consumer_groups(list(names), request_timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None
    gone, errors = results_of(futures, cluster.timeout)
    errors = [_with_near(error, cluster) for error in errors]
    if as_json:
        print_json([{"group": name, "result": "deleted"} for name in gone])
    else:
        for name in gone:
            click.echo(f"{name}: deleted")
    return print_errors(errors)
