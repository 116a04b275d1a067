"""Groups of the newer kinds over Kafka's protocol: which there are, and who coordinates one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kbroker.cli.output import print_json, print_table
from kbroker.nearest import unknown_hint

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.connection import Connection


def listed_groups(cluster: Cluster, group_type: str) -> list[tuple[str, str]]:
    """Groups of a type with their states, sorted."""
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message

    found = []
    for node_id in cluster.nodes():
        answer = cluster.node(node_id).send(request_message(ApiKey.LIST_GROUPS)(types_filter=[group_type]))
        refuse(answer.error_code, None, f"broker {node_id}")
        found += [(row.group_id, row.group_state) for row in answer.groups]
    return sorted(found)


def every_group(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Groups of all types, each with its type in small letters; empty where a broker knows of no types."""
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message

    for node_id in cluster.nodes():
        for row in cluster.node(node_id).send(request_message(ApiKey.LIST_GROUPS)()).groups:
            yield row.group_id, row.group_type.lower()


def print_groups(groups: list[tuple[str, str]], as_json: bool) -> None:
    """Groups with their states, as JSON or as a table."""
    if as_json:
        print_json([{"group": group, "state": state} for group, state in groups])
    else:
        print_table(("GROUP", "STATE"), groups)


def coordinator_of(cluster: Cluster, group_id: str) -> Connection:
    """The connection to the broker that coordinates a group."""
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message

    find = request_message(ApiKey.FIND_COORDINATOR)(key_type=0, coordinator_keys=[group_id])
    (row,) = cluster.any().send(find).coordinators
    refuse(row.error_code, row.error_message, group_id)
    if row.node_id not in cluster.nodes():
        raise click.ClickException(f"broker {row.node_id}, which coordinates {group_id}, is not known")
    return cluster.node(row.node_id)


def near_group(cluster: Cluster, group_id: str, group_type: str) -> str:
    """`; did you mean X?` for a group of this type that there is not."""
    known = [name for name, _ in listed_groups(cluster, group_type)]
    return unknown_hint([group_id], known)


def refuse(code: int, message: str | None, what: str) -> None:
    """ClickException for an error."""
    if code:
        from kbroker.error_codes import error_name

        raise click.ClickException(f"{what}: {message or error_name(code)}")
