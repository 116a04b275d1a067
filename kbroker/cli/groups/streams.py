"""`kbroker streams`: streams groups of any Kafka (KIP-1071): their topologies, members and tasks.

It asks by Kafka's protocol (ListGroups, StreamsGroupDescribe).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from kbroker.cli import completion
from kbroker.cli.connection import bootstrap_option, timeout_option, wire_cluster
from kbroker.cli.groups.wire_groups import coordinator_of, listed_groups, near_group, print_groups, refuse
from kbroker.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.schemas import wire
    from kbroker.types import JsonObject


@click.group("streams")
def command() -> None:
    """List and describe streams groups."""


@command.command("list")
@bootstrap_option()
@timeout_option
@json_option
def list_groups(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List the streams groups of a cluster, and their states."""
    with wire_cluster(bootstrap, timeout) as cluster:
        print_groups(listed_groups(cluster, "streams"), as_json)


@command.command("describe")
@click.argument("groups", nargs=-1, required=True, shell_complete=completion.streams_groups)
@bootstrap_option()
@timeout_option
@json_option
def describe_groups(groups: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show the topologies of streams groups, their members, and the tasks that these run and are to run."""
    with wire_cluster(bootstrap, timeout) as cluster:
        described = [_described(cluster, group) for group in groups]
    if as_json:
        print_json(described)
        return
    for each in described:
        title = (
            f"{each['group']}: {each['state']}, epoch {each['epoch']}, assignment of epoch {each['assignment_epoch']}, "
            f"topology {each['topology_epoch']}"
        )
        subtopologies = [
            (row["subtopology"], _joined(row["reads"]), _joined(row["writes"]), _joined(row["changelogs"]))
            for row in each["subtopologies"]
        ]
        print_table(("SUBTOPOLOGY", "READS", "WRITES", "CHANGELOGS"), subtopologies, title=title)
        members = [
            (
                row["member"],
                row["process"],
                row["client"],
                row["host"],
                row["epoch"],
                _joined(row["active"]),
                _joined(row["standby"]),
                "yes" if row["has_target"] else "no",
            )
            for row in each["members"]
        ]
        print_table(("MEMBER", "PROCESS", "CLIENT", "HOST", "EPOCH", "ACTIVE", "STANDBY", "AS TARGETED"), members)


def _joined(words: Iterable[str]) -> str:
    return ", ".join(words)


def _described(cluster: Cluster, group_id: str) -> JsonObject:
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message

    connection = coordinator_of(cluster, group_id)
    (group,) = connection.send(request_message(ApiKey.STREAMS_GROUP_DESCRIBE)(group_ids=[group_id])).groups
    if group.error_code:
        near = near_group(cluster, group_id, "streams")
        refuse(
            group.error_code, (group.error_message or "").rstrip(".") + near if near else group.error_message, group_id
        )
    topology = group.topology
    return {
        "group": group_id,
        "state": group.group_state,
        "epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": None if topology is None else topology.epoch,
        "subtopologies": [
            {
                "subtopology": each.subtopology_id,
                "reads": [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)],
                "writes": list(each.repartition_sink_topics),
                "changelogs": [topic.name for topic in each.state_changelog_topics],
            }
            for each in (() if topology is None else topology.subtopologies or ())
        ],
        "members": [
            {
                "member": member.member_id,
                "process": member.process_id,
                "client": member.client_id,
                "host": member.client_host,
                "epoch": member.member_epoch,
                "active": _tasks(member.assignment.active_tasks),
                "standby": _tasks(member.assignment.standby_tasks),
                "has_target": _tasks(member.assignment.active_tasks) == _tasks(member.target_assignment.active_tasks)
                and _tasks(member.assignment.standby_tasks) == _tasks(member.target_assignment.standby_tasks),
            }
            for member in group.members
        ],
    }


def _tasks(rows: Iterable[wire.StreamsGroupDescribeResponse.TaskIds]) -> list[str]:
    return [f"{row.subtopology_id}_{partition}" for row in rows for partition in row.partitions]
