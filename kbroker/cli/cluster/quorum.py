"""The controllers' quorum of a KRaft cluster, as its active controller describes it (DescribeQuorum, KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.administration.quorum import end_of_log, partition_of, quorum_request
from kbroker.cli.output import print_table
from kbroker.errors import KafkaError
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin
    from kbroker.types import JsonObject


def quorum_of(admin: ClusterAdmin) -> JsonObject | None:
    """The quorum; None where the brokers have none, or do not describe it."""
    from kbroker.client.errors import ClientError

    try:
        found = partition_of(admin.send(wire.DescribeQuorumResponse, quorum_request()))
    except (ClientError, KafkaError):
        return None
    end = end_of_log(found)
    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "voters": [_row(each, end) for each in found.current_voters],
        "observers": [_row(each, end) for each in found.observers],
    }


def _row(state: wire.DescribeQuorumResponse.ReplicaState, end: int) -> JsonObject:
    return {
        "id": state.replica_id,
        "end": state.log_end_offset,
        "lag": end - state.log_end_offset,
        "fetched_ms": state.last_fetch_timestamp,
    }


def fenced_brokers(admin: ClusterAdmin) -> list[int]:
    """The brokers that are registered and may be given no work; none where the brokers do not tell."""
    from kbroker.client.errors import ClientError

    try:
        asked = wire.DescribeClusterRequest(include_fenced_brokers=True)
        answer = admin.send(wire.DescribeClusterResponse, asked)
    except (ClientError, KafkaError):
        return []
    return sorted(each.broker_id for each in answer.brokers if each.is_fenced)


def print_quorum(found: JsonObject) -> None:
    """The quorum for people."""
    click.echo(f"\ncontroller {found['leader']} is active, in epoch {found['epoch']}")
    rows = [("voter", each) for each in found["voters"]] + [("observer", each) for each in found["observers"]]
    print_table(
        ("NODE", "ROLE", "METADATA LOG ENDS", "LAG"),
        [(each["id"], role, each["end"], each["lag"]) for role, each in rows],
    )
