"""Which command shows a group that `kbroker groups` does not: streams and share groups have their own."""

from __future__ import annotations

import click

from kbroker.cli.connection import Cluster, wire_cluster
from kbroker.cli.groups.wire_groups import every_group

COMMANDS = {"streams": "kbroker streams", "share": "kbroker share"}
"""The groups' types in ListGroups, and who shows them."""


def where_shown(cluster: Cluster, group_id: str) -> str:
    """What a group of another kind is, and the command that shows it; empty where it is none or cannot be asked."""
    try:
        with wire_cluster(cluster.bootstrap, cluster.timeout) as connections:
            kind = dict(every_group(connections)).get(group_id, "")
    except click.ClickException:
        return ""
    command = COMMANDS.get(kind)
    return f"it is a {kind} group; `{command} describe {group_id}` shows it" if command is not None else ""
