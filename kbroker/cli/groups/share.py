"""`kbroker share`: shows the members, offsets and lag of share groups of any Kafka (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.administration.groups import share_group_offsets
from kbroker.cli.groups.group_kinds import check_described, group_commands
from kbroker.cli.output import print_table
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin
    from kbroker.types import JsonObject


def _show(group: JsonObject) -> None:
    title = f"{group['group']}: {group['state']}, epoch {group['epoch']}"
    members = [(row["member"], row["client"], row["host"], ", ".join(row["reads"])) for row in group["members"]]
    print_table(("MEMBER", "CLIENT", "HOST", "READS"), members, title=title)
    offsets = [(row["partition"], _known(row["start_offset"]), _known(row["lag"])) for row in group["partitions"]]
    print_table(("PARTITION", "START OFFSET", "LAG"), offsets)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _describe(admin: ClusterAdmin, group_id: str) -> JsonObject:
    request = wire.ShareGroupDescribeRequest(group_ids=[group_id])
    (group,) = admin.do(admin.ask_coordinator(wire.ShareGroupDescribeResponse, request, group_id)).groups
    check_described(admin, group_id, "share", group.error_code, group.error_message)
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
            {"partition": f"{topic}-{index}", "start_offset": row.start_offset, "lag": row.lag}
            for (topic, index), row in admin.do(share_group_offsets(admin, group_id))
        ],
    }


command = group_commands(
    "share",
    "Show the members of share groups, what they read, and the start offset and lag of each partition.",
    _describe,
    _show,
)
