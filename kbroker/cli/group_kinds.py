"""Which command shows a group that `kbroker groups` does not: streams and share groups have their own."""

from __future__ import annotations

import click

from kbroker.cli.connection import Cluster, wire_cluster

COMMANDS = {"streams": "kbroker streams", "share": "kbroker share"}
"""The groups' types in ListGroups, and who shows them."""


def where_shown(cluster: Cluster, group_id: str) -> str:
    """What a group of another kind is, and the command that shows it; empty where it is none or nobody can be asked."""
    try:
        kind = _kind(cluster, group_id)
    except click.ClickException:
        return ""
    command = COMMANDS.get(kind)
    return f"it is a {kind} group; `{command} describe {group_id}` shows it" if command is not None else ""


def _kind(cluster: Cluster, group_id: str) -> str:
    """A group's type as its broker lists it, in small letters; empty for a group that there is not."""
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message

    with wire_cluster(cluster.bootstrap, cluster.timeout) as connections:
        for node_id in connections.nodes():
            for row in connections.node(node_id).send(request_message(ApiKey.LIST_GROUPS)()).groups:
                if row.group_id == group_id:
                    return str(row.group_type).lower()
    return ""
