"""`kbroker share`: share groups of any Kafka (KIP-932): who is in them, where they are, and how far behind.

It asks by Kafka's protocol (ListGroups, ShareGroupDescribe, DescribeShareGroupOffsets).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.cli import completion
from kbroker.cli.connection import bootstrap_option, timeout_option, wire_cluster
from kbroker.cli.groups.wire_groups import coordinator_of, listed_groups, near_group, print_groups, refuse
from kbroker.cli.output import json_option, print_json, print_table
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster


@click.group("share")
def command() -> None:
    """List and describe share groups."""


@command.command("list")
@bootstrap_option()
@timeout_option
@json_option
def list_groups(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List the share groups of a cluster, and their states."""
    with wire_cluster(bootstrap, timeout) as cluster:
        print_groups(listed_groups(cluster, "share"), as_json)


@command.command("describe")
@click.argument("groups", nargs=-1, required=True, shell_complete=completion.share_groups)
@bootstrap_option()
@timeout_option
@json_option
def describe_groups(groups: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show the members of share groups, what they read, and the start offset and lag of each partition."""
    with wire_cluster(bootstrap, timeout) as cluster:
        described = [_described(cluster, group) for group in groups]
    if as_json:
        print_json(described)
        return
    for each in described:
        title = f"{each['group']}: {each['state']}, epoch {each['epoch']}"
        members = [(row["member"], row["client"], row["host"], ", ".join(row["reads"])) for row in each["members"]]
        print_table(("MEMBER", "CLIENT", "HOST", "READS"), members, title=title)
        offsets = [(row["partition"], _known(row["start_offset"]), _known(row["lag"])) for row in each["partitions"]]
        print_table(("PARTITION", "START OFFSET", "LAG"), offsets)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _described(cluster: Cluster, group_id: str) -> JsonObject:
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message

    connection = coordinator_of(cluster, group_id)
    (group,) = connection.send(request_message(ApiKey.SHARE_GROUP_DESCRIBE)(group_ids=[group_id])).groups
    if group.error_code:
        near = near_group(cluster, group_id, "share")
        refuse(
            group.error_code, (group.error_message or "").rstrip(".") + near if near else group.error_message, group_id
        )
    message = request_message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    asked = message.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    (offsets,) = connection.send(message(groups=[asked])).groups
    refuse(offsets.error_code, offsets.error_message, group_id)
    return {
        "group": group_id,
        "state": group.group_state,
        "epoch": group.group_epoch,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.client_host,
                "epoch": member.member_epoch,
                "reads": [
                    f"{topic.topic_name}-{index}"
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                ],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "partition": f"{topic.topic_name}-{partition.partition_index}",
                "start_offset": partition.start_offset,
                "lag": partition.lag,
            }
            for topic in offsets.topics
            for partition in topic.partitions
        ],
    }
