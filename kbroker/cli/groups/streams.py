"""`kbroker streams`: streams groups of any Kafka (KIP-1071): their topologies, members and tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.cli.groups.group_kinds import check_described, group_commands
from kbroker.cli.output import print_table
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin
    from kbroker.types import JsonObject


def _show(group: JsonObject) -> None:
    title = (
        f"{group['group']}: {group['state']}, epoch {group['epoch']}, assignment of epoch {group['assignment_epoch']}, "
        f"topology {group['topology_epoch']}"
    )
    subtopologies = [
        (row["subtopology"], _joined(row["reads"]), _joined(row["writes"]), _joined(row["changelogs"]))
        for row in group["subtopologies"]
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
        for row in group["members"]
    ]
    print_table(("MEMBER", "PROCESS", "CLIENT", "HOST", "EPOCH", "ACTIVE", "STANDBY", "AS TARGETED"), members)


def _joined(words: Iterable[str]) -> str:
    return ", ".join(words)


def _describe(admin: ClusterAdmin, group_id: str) -> JsonObject:
    request = wire.StreamsGroupDescribeRequest(group_ids=[group_id])
    (group,) = admin.do(admin.ask_coordinator(wire.StreamsGroupDescribeResponse, request, group_id)).groups
    check_described(admin, group_id, "streams", group.error_code, group.error_message)
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


command = group_commands(
    "streams",
    "Show the topologies of streams groups, their members, and the tasks that these run and are to run.",
    _describe,
    _show,
)
