"""Why a broker did not take records, where the client reports nothing but a timeout.

A broker whose disk is full or has failed answers KAFKA_STORAGE_ERROR, which clients repeat until they give up with
`Local: Message timed out`.  The reason is in what the brokers say of themselves: partitions without a leader, and log
directories that are offline or below the reserve.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kbroker.administration.configs import Kind, describe_configs
from kbroker.cli.output import size_text
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.cli.connection import Cluster as Address
    from kbroker.client.admin import ClusterAdmin

RESERVE = "kbroker.disk.reserve.bytes"
SECONDS = 5.0


def reason(address: Address, topic: str) -> str:
    """What is wrong with the topic's partitions, as a part of a sentence; empty when nothing is found."""
    try:
        with replace(address, timeout=SECONDS).admin() as admin:
            return "; ".join(_findings(admin, topic))
    except click.ClickException:
        return ""


def _findings(admin: ClusterAdmin, topic: str) -> list[str]:
    by_leader: dict[int, list[int]] = {}
    for index, info in admin.cluster.topic(topic).partitions.items():
        by_leader.setdefault(info.leader_id, []).append(index)
    found = []
    lost = by_leader.pop(-1, [])
    if lost:
        numbers = ", ".join(map(str, sorted(lost)))
        found.append(f"no broker leads partition {numbers} of {topic}, as when a log directory has failed")
    for leader, partitions in sorted(by_leader.items()):
        found += _directories(admin, leader, topic, partitions)
    return found


def _directories(admin: ClusterAdmin, node: int, topic: str, partitions: list[int]) -> list[str]:
    row = wire.DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=partitions)
    answer = admin.send(wire.DescribeLogDirsResponse, wire.DescribeLogDirsRequest(topics=[row]), node)
    # Below so many free bytes a kbroker refuses records; another broker has no such setting.
    configs = admin.do(describe_configs(admin, Kind.BROKER, [str(node)], [RESERVE], node_id=node))[str(node)]
    reserve = next((int(config.value or 0) for config in configs), 0)
    found = []
    for directory in answer.results:
        where = f"log directory {directory.log_dir} of broker {node}"
        if directory.error_code:
            found.append(f"{where} is offline")
        elif directory.topics and 0 <= directory.usable_bytes < reserve + reserve // 8:  # It opens again there.
            found.append(
                f"{where} has {size_text(directory.usable_bytes)} free, and below {RESERVE} ({size_text(reserve)}) "
                "it takes no records; `kbroker logs list --sort size` shows what fills it"
            )
        elif directory.topics and directory.usable_bytes == 0:
            found.append(f"{where} is full")
    return found
