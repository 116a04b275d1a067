"""`kbroker groups`: list, describe, reset and delete consumer groups of any Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import click

from kbroker.administration import groups as administration
from kbroker.administration.admin import Place
from kbroker.administration.groups import DEAD, GroupDescription, GroupMember
from kbroker.cli import completion
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.groups.group_kinds import where_shown
from kbroker.cli.groups.group_offsets import commit, members_in_the_way, state_text
from kbroker.cli.groups.zookeeper_groups import (
    SERVERS,
    Servers,
    describe_old_groups,
    list_old_groups,
    move_offsets,
    zookeeper_config_option,
)
from kbroker.cli.output import json_option, print_errors, print_json, print_lines, print_rows, print_table
from kbroker.cli.places import LOCAL, PLACES, TIME, milliseconds_of, named_partitions
from kbroker.cli.refusals import text_of
from kbroker.client.errors import ClientError
from kbroker.errors import ErrorCode, KafkaError
from kbroker.types import LATEST, JsonObject

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin

OF_CONSUMERS = ("consumer", "")
"""Protocol types of groups that are listed; empty where a group only keeps offsets."""


class Reset(NamedTuple):
    """Where `reset-offsets` moves a group: exactly one is set."""

    to_earliest: bool
    to_latest: bool
    to_offset: int | None
    to_datetime: datetime | None
    shift_by: int | None

    @property
    def where_and_value(self) -> tuple[str, int]:
        """What `reset_targets` takes."""
        if self.to_offset is not None:
            return "offset", self.to_offset
        if self.to_datetime is not None:
            return "time", milliseconds_of(self.to_datetime)
        if self.shift_by is not None:
            return "shift", self.shift_by
        return ("earliest" if self.to_earliest else "latest"), 0


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
    groups, errors = [], []
    with cluster.admin() as admin:
        for node_id in admin.cluster.nodes():
            try:
                groups += admin.do(administration.list_groups(admin, node_id))
            except KafkaError as error:
                errors.append(f"broker {node_id}: {text_of(error)}")
            except ClientError as error:
                errors.append(str(error))
    rows = [
        {
            "group": group.group_id,
            "state": state_text(group.group_state),
            "type": group.group_type.lower() or "unknown",
            "simple": not group.protocol_type,
        }
        for group in sorted(groups, key=lambda each: each.group_id)
        if group.protocol_type in OF_CONSUMERS
    ]
    print_rows(rows, ("GROUP", "STATE", "TYPE"), as_json, itemgetter("group", "state", "type"))
    return print_errors(errors)


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
    groups, errors = [], []
    with cluster.admin() as admin:
        for name in names:
            try:
                groups.append(_described(admin, name))
            except KafkaError as error:
                errors.append(f"{name}: {text_of(error)}")
            except click.ClickException as error:
                errors.append(f"{name}: {error.message}")
    if as_json:
        print_json(groups)
    else:
        for described in groups:
            _print_group(described)
    return print_errors(errors)


def _described(admin: ClusterAdmin, name: str) -> JsonObject:
    """A group for people.  ClickException for one that is of another kind; KafkaError."""
    group = admin.do(administration.describe_group(admin, name))
    if group.state == DEAD and (elsewhere := where_shown(admin, name)):
        raise click.ClickException(elsewhere)
    committed = admin.do(administration.committed_offsets(admin, name))
    # A group that is dead may have left offsets; one without any never was.
    if group.state == DEAD and not committed:
        raise KafkaError.of(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no such group{_near(admin, name)}")
    ends = admin.do(admin.offsets_of(committed, LATEST, skips=True))
    return _group(name, group, admin.do(admin.coordinator_of(name)), committed, ends)


def _group(
    name: str, group: GroupDescription, coordinator: int, committed: Mapping[Place, int], ends: Mapping[Place, int]
) -> JsonObject:
    owners: dict[Place, GroupMember] = {place: member for member in group.members for place in member.places}
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
        "group": name,
        "state": state_text(group.state),
        "assignor": group.assignor or None,
        "coordinator": coordinator,
        "partitions": partitions,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": len(member.places),
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
    metavar=PLACES,
    help="Which topics or partitions.",
    shell_complete=completion.topics,
)
@click.option("--all-topics", is_flag=True, help="Every partition that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", is_flag=True, help="Past the last record.")
@click.option("--to-offset", type=click.IntRange(min=0), help="This offset, within what the partition has.")
@click.option(
    "--to-datetime",
    type=TIME,
    help=f"The first record from this time on ({LOCAL}).",
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
    with cluster.admin() as admin:
        committed = admin.do(administration.committed_offsets(admin, group))
        partitions = sorted(committed) if all_topics else named_partitions(admin, topics, "--topic")
        if not partitions:
            near = _near(admin, group)
            raise click.ClickException(f"{group}: nothing to reset, the group has committed no offsets{near}")
        missing = [each for each in partitions if each not in committed]
        if shift_by is not None and missing:
            raise click.ClickException(f"{missing[0][0]}-{missing[0][1]}: nothing committed that --shift-by could move")
        targets = admin.do(administration.reset_targets(admin, partitions, committed, *reset.where_and_value))
        if execute:
            commit(admin, group, targets)
        members = "" if execute or as_json else members_in_the_way(admin, group)
    rows = [
        {"topic": topic, "partition": partition, "old_offset": committed.get((topic, partition)), "new_offset": offset}
        for (topic, partition), offset in targets.items()
    ]
    if as_json:
        print_json({"group": group, "executed": execute, "partitions": rows})
    else:
        print_table(("TOPIC", "PARTITION", "OLD OFFSET", "NEW OFFSET"), [tuple(row.values()) for row in rows])
        if not execute:
            click.echo(f"nothing changed: {members or 'add --execute to do it'}")


def _near(admin: ClusterAdmin, name: str) -> str:
    """The group that may have been meant where there is none of this name."""
    return admin.near(name, lambda: [row.group_id for row in admin.groups() if row.protocol_type in OF_CONSUMERS])


@command.command("delete")
@click.argument("names", nargs=-1, required=True, shell_complete=completion.consumer_groups)
@json_option
@cluster_options
def delete_groups(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> int:
    """Delete groups and their offsets.  They must have no members."""
    gone, errors = [], []
    with cluster.admin() as admin:
        for name in names:
            try:
                admin.do(administration.delete_group(admin, name))
                gone.append(name)
            except KafkaError as error:
                near = _near(admin, name) if error.code is ErrorCode.GROUP_ID_NOT_FOUND else ""
                errors.append(f"{name}: {text_of(error)}{near}")
    print_lines([{"group": name, "result": "deleted"} for name in gone], "{group}: {result}".format_map, as_json)
    return print_errors(errors)
