"""Offsets of groups, as several commands commit them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kbroker.administration.groups import commit_offsets, describe_group
from kbroker.cli.groups.group_kinds import where_shown
from kbroker.error_codes import error_name

if TYPE_CHECKING:
    from kbroker.administration.admin import Place
    from kbroker.client.admin import ClusterAdmin

_MOST_CLIENTS = 3
# What commands have called these states since before they asked by Kafka's protocol themselves.
_STATES = {"PreparingRebalance": "preparing_rebalancing", "CompletingRebalance": "completing_rebalancing"}


def state_text(state: str) -> str:
    """The state of a group as commands write it."""
    return _STATES.get(state) or state.lower() or "unknown"


def members_in_the_way(admin: ClusterAdmin, group: str) -> str:
    """Why the offsets of a group that has members are not moved, and what to do; empty for a group without.

    A broker lets only members commit for it then.  The sentence names clients, with the number of their members.
    """
    found = admin.do(describe_group(admin, group))
    if not found.members:
        return ""
    clients = Counter(f"{member.client_id} at {member.client_host.lstrip('/')}" for member in found.members)
    shown = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in clients.most_common(_MOST_CLIENTS))
    more = ", …" if len(clients) > _MOST_CLIENTS else ""
    return (
        f"group {group} is active ({state_text(found.state)}, members: {len(found.members)}), and offsets are moved "
        f"only while it has no members: stop {shown}{more} first"
    )


def commit(admin: ClusterAdmin, group: str, targets: Mapping[Place, int]) -> None:
    """Commit for a group without members.  ClickException."""
    if members := members_in_the_way(admin, group):
        raise click.ClickException(members)
    for topic, partition, code in admin.do(commit_offsets(admin, group, targets)):
        elsewhere = where_shown(admin, group)
        raise click.ClickException(f"{topic}-{partition}: {error_name(code)}{elsewhere and ': '}{elsewhere}")
