"""`kbroker users`: the users of SCRAM of any Kafka, as `kafka-configs --entity-type users` has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbroker.cli.connection import bootstrap_option, connected, refuse, timeout_option
from kbroker.cli.output import json_option, print_json, print_table
from kbroker.cli.security.secret_input import read_secret, secret_option
from kbroker.security.scram import (
    BY_NAME,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramMechanism,
)

if TYPE_CHECKING:
    from kbroker.client.connection import Connection
    from kbroker.schemas import wire

_ABSENT = 91


@click.group("users")
def command() -> None:
    """List, add and remove users who log in by SCRAM."""


@command.command("list")
@click.argument("users", nargs=-1)
@bootstrap_option()
@timeout_option
@json_option
def list_users(users: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """List users with their mechanisms and iterations; all, or those named."""
    with connected(bootstrap, timeout) as connection:
        found = _described(connection, users)
    rows = [
        {"user": row.user, "mechanism": _name(info.mechanism), "iterations": info.iterations}
        for row in found
        for info in row.credential_infos
    ]
    rows.sort(key=lambda row: (str(row["user"]), str(row["mechanism"])))
    if as_json:
        print_json(rows)
    else:
        print_table(("user", "mechanism", "iterations"), [tuple(row.values()) for row in rows])


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
@bootstrap_option()
@timeout_option
@json_option
def add_user(
    user: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Add a user, or give it another password.

    The password stays here: brokers get it salted, and what they keep of that is no login.
    """
    from kbroker.schemas import wire
    from kbroker.security.scram_changes import salted_row

    password = read_secret(password_file, "Password")
    with connected(bootstrap, timeout) as connection:
        for name in dict.fromkeys(mechanisms):
            row = salted_row(user, BY_NAME[name], password, iterations)
            _altered(connection, wire.AlterUserScramCredentialsRequest(upsertions=[row]))
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
@bootstrap_option()
@timeout_option
@json_option
def remove_user(user: str, mechanisms: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Remove a user.  It stays where it is logged in, until its session ends (connections.max.reauth.ms)."""
    from kbroker.schemas import wire

    request = wire.AlterUserScramCredentialsRequest
    with connected(bootstrap, timeout) as connection:
        if not mechanisms:
            (row,) = _described(connection, (user,))
            mechanisms = tuple(_name(info.mechanism) for info in row.credential_infos)
        for name in dict.fromkeys(mechanisms):
            deletion = request.ScramCredentialDeletion(name=user, mechanism=BY_NAME[name])
            _altered(connection, request(deletions=[deletion]))
    _report(user, mechanisms, "removed", as_json)


def _described(
    connection: Connection, users: tuple[str, ...]
) -> list[wire.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]:
    from kbroker.schemas import wire

    request = wire.DescribeUserScramCredentialsRequest
    answer = connection.send(request(users=[request.UserName(name=user) for user in dict.fromkeys(users)]))
    refuse(answer.error_code, answer.error_message)
    for row in answer.results:
        refuse(row.error_code, f"there is no user {row.user}" if row.error_code == _ABSENT else row.error_message)
    results: list[wire.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = answer.results
    return results


def _altered(connection: Connection, request: wire.AlterUserScramCredentialsRequest) -> None:
    for row in connection.send(request).results:
        refuse(row.error_code, row.error_message)


def _name(mechanism: int) -> str:
    return ScramMechanism(mechanism).sasl_name if mechanism in set(ScramMechanism) else str(mechanism)


def _report(user: str, mechanisms: tuple[str, ...], done: str, as_json: bool) -> None:
    if as_json:
        print_json({"user": user, "mechanisms": list(mechanisms), "done": done})
    else:
        click.echo(f"{user}: {', '.join(mechanisms)} {done}")
