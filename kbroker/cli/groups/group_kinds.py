"""Groups of kinds that have commands of their own: streams and share groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from kbroker.cli import completion
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, print_json, print_rows
from kbroker.client.errors import ClientError
from kbroker.errors import KafkaError

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin
    from kbroker.types import JsonObject

COMMANDS = {"streams": "kbroker streams", "share": "kbroker share"}
"""The groups' types in ListGroups, and who shows them."""


def where_shown(admin: ClusterAdmin, group_id: str) -> str:
    """What a group of another kind is, and the command that shows it; empty where it is none or cannot be asked."""
    try:
        kind = next((row.group_type.lower() for row in admin.groups() if row.group_id == group_id), "")
    except (ClientError, KafkaError):
        return ""
    command = COMMANDS.get(kind)
    return f"it is a {kind} group; `{command} describe {group_id}` shows it" if command is not None else ""


def group_commands(
    kind: str,
    summary: str,
    describe: Callable[[ClusterAdmin, str], JsonObject],
    show: Callable[[JsonObject], None],
) -> click.Group:
    """The command of a kind, with `list` and `describe`.

    `summary`: what `describe` finds, and `show` prints.
    """

    @click.group(kind, help=f"List and describe {kind} groups.")
    def command() -> None:
        pass

    @command.command("list", help=f"List the {kind} groups of a cluster, and their states.")
    @cluster_options
    @json_option
    def list_groups(cluster: Cluster, as_json: bool) -> None:
        with cluster.admin() as admin:
            groups = sorted((row.group_id, row.group_state) for row in admin.groups(kind))
        print_rows([{"group": group, "state": state} for group, state in groups], ("GROUP", "STATE"), as_json)

    @command.command("describe", help=summary)
    @click.argument("groups", nargs=-1, required=True, shell_complete=completion.groups_of_kinds(kind))
    @cluster_options
    @json_option
    def describe_groups(cluster: Cluster, groups: tuple[str, ...], as_json: bool) -> None:
        with cluster.admin() as admin:
            described = [describe(admin, group) for group in groups]
        if as_json:
            print_json(described)
            return
        for each in described:
            show(each)

    return command


def check_described(admin: ClusterAdmin, group_id: str, kind: str, code: int, message: str | None) -> None:
    """ClickException where a broker does not describe a group, with the name that may have been meant."""
    from kbroker.error_codes import error_name

    if code:
        near = admin.near(group_id, lambda: [row.group_id for row in admin.groups(kind)])
        text = message or error_name(code)
        raise click.ClickException(f"{group_id}: {text.rstrip('.') + near if near else text}")
