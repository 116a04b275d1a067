"""`kbroker users`: the users of SCRAM of any Kafka, as `kafka-configs --entity-type users` has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbroker.administration.users import describe_users, mechanism_name, remove_passwords, set_password
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, print_json, print_rows
from kbroker.cli.security.secret_input import read_secret, secret_option
from kbroker.errors import ErrorCode, refuse
from kbroker.security.scram import BY_NAME, LEAST_ITERATIONS, MOST_ITERATIONS

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin
    from kbroker.schemas import wire


@click.group("users")
def command() -> None:
    """List, add and remove users who log in by SCRAM."""


@command.command("list")
@click.argument("users", nargs=-1)
@cluster_options
@json_option
def list_users(cluster: Cluster, users: tuple[str, ...], as_json: bool) -> None:
    """List users with their mechanisms and iterations; all, or those named."""
    with cluster.admin() as admin:
        found = _described(admin, users)
    rows = [
        {"user": row.user, "mechanism": mechanism_name(info.mechanism), "iterations": info.iterations}
        for row in found
        for info in row.credential_infos
    ]
    rows.sort(key=lambda row: (str(row["user"]), str(row["mechanism"])))
    print_rows(rows, ("user", "mechanism", "iterations"), as_json)


@command.command("add")
@click.argument("user")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(BY_NAME), case_sensitive=False),
    multiple=True,
    default=("SCRAM-SHA-512",),
    show_default=True,
    help="May be given twice.",
)
@click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=LEAST_ITERATIONS,
    show_default=True,
    help="Of the password's salting.",
)
@secret_option("--password-file", "the password")
@cluster_options
@json_option
def add_user(
    cluster: Cluster,
    user: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    as_json: bool,
) -> None:
    """Add a user, or give it another password.

    The password stays here: brokers get it salted, and what they keep of that is no login.
    """
    from kbroker.security.scram_changes import salted_row

    password = read_secret(password_file, "Password")
    with cluster.admin() as admin:
        for name in dict.fromkeys(mechanisms):
            admin.do(set_password(admin, salted_row(user, BY_NAME[name], password, iterations)))
    _report(user, mechanisms, "added", as_json)


@command.command("remove")
@click.argument("user")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(BY_NAME), case_sensitive=False),
    multiple=True,
    help="This one alone; all unless said.",
)
@cluster_options
@json_option
def remove_user(cluster: Cluster, user: str, mechanisms: tuple[str, ...], as_json: bool) -> None:
    """Remove a user.  It stays where it is logged in, until its session ends (connections.max.reauth.ms)."""
    with cluster.admin() as admin:
        if not mechanisms:
            (row,) = _described(admin, (user,))
            mechanisms = tuple(mechanism_name(info.mechanism) for info in row.credential_infos)
        admin.do(remove_passwords(admin, user, mechanisms))
    _report(user, mechanisms, "removed", as_json)


def _described(
    admin: ClusterAdmin, users: tuple[str, ...]
) -> list[wire.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]:
    found = admin.do(describe_users(admin, users))
    for row in found:
        is_absent = row.error_code == ErrorCode.RESOURCE_NOT_FOUND
        refuse(row.error_code, f"there is no user {row.user}" if is_absent else row.error_message)
    return found


def _report(user: str, mechanisms: tuple[str, ...], done: str, as_json: bool) -> None:
    if as_json:
        print_json({"user": user, "mechanisms": list(mechanisms), "done": done})
    else:
        click.echo(f"{user}: {', '.join(mechanisms)} {done}")
