"""`kbroker tokens`: the delegation tokens of any Kafka, as `kafka-delegation-tokens` has them."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from pathlib import Path

import click

from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, print_json, print_rows, print_table
from kbroker.cli.security.secret_input import read_secret, secret_option
from kbroker.errors import refuse
from kbroker.schemas import wire

_HOUR_MS = 3_600_000
_USER = "User"


@click.group("tokens")
def command() -> None:
    """List, create, renew and expire delegation tokens."""


def _parts(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    return (kind, name) if colon else (_USER, principal)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


@command.command("list")
@click.option("--owner", "owners", multiple=True, metavar="User:NAME", help="Tokens of this one.")
@cluster_options
@json_option
def list_tokens(cluster: Cluster, owners: tuple[str, ...], as_json: bool) -> None:
    """List the tokens that you may see, without their HMACs."""
    request = wire.DescribeDelegationTokenRequest
    wanted = [
        request.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
        for kind, name in map(_parts, owners)
    ]
    with cluster.admin() as admin:
        answer = admin.send(wire.DescribeDelegationTokenResponse, request(owners=wanted or None))
        refuse(answer.error_code)
    rows = [
        {
            "token_id": each.token_id,
            "owner": f"{each.principal_type}:{each.principal_name}",
            "requester": f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
            "renewers": [f"{row.principal_type}:{row.principal_name}" for row in each.renewers],
            "issued": _time(each.issue_timestamp),
            "expires": _time(each.expiry_timestamp),
            "ends": _time(each.max_timestamp),
        }
        for each in sorted(answer.tokens, key=lambda each: each.issue_timestamp)
    ]
    headers = ("token id", "owner", "requester", "renewers", "issued", "expires", "ends")
    print_rows(rows, headers, as_json, lambda row: [", ".join(v) if isinstance(v, list) else v for v in row.values()])


@command.command("create")
@click.option("--owner", metavar="User:NAME", help="Of another user, for whom you may ask.  [default: your own]")
@click.option("--renewer", "renewers", multiple=True, metavar="User:NAME", help="Who may renew it besides its owner.")
@click.option("--max-life-hours", type=click.FloatRange(min=0, min_open=True), help="[default: the broker's]")
@cluster_options
@json_option
def create_token(
    cluster: Cluster, owner: str | None, renewers: tuple[str, ...], max_life_hours: float | None, as_json: bool
) -> None:
    """Create a token, and show its HMAC: the password that goes with the token's id as user."""
    request = wire.CreateDelegationTokenRequest
    kind, name = (None, None) if owner is None else _parts(owner)
    message = request(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[
            request.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_parts, renewers)
        ],
        max_lifetime_ms=_period_ms(max_life_hours),
    )
    with cluster.admin() as admin:
        answer = admin.send(wire.CreateDelegationTokenResponse, message)
        refuse(answer.error_code)
    row = {
        "token_id": answer.token_id,
        "hmac": base64.b64encode(answer.hmac).decode(),
        "owner": f"{answer.principal_type}:{answer.principal_name}",
        "expires": _time(answer.expiry_timestamp_ms),
        "ends": _time(answer.max_timestamp_ms),
    }
    if as_json:
        print_json(row)
    else:
        print_table(("token id", "HMAC", "owner", "expires", "ends"), [tuple(row.values())])


@command.command("renew")
@click.option("--hours", type=click.FloatRange(min=0), help="From now on.  [default: as long as the broker lets]")
@secret_option("--hmac-file", "the HMAC")
@cluster_options
@json_option
def renew_token(cluster: Cluster, hours: float | None, hmac_file: Path | None, as_json: bool) -> None:
    """Renew a token."""
    request = wire.RenewDelegationTokenRequest(hmac=_hmac(hmac_file), renew_period_ms=_period_ms(hours))
    _change(cluster, wire.RenewDelegationTokenResponse, request, as_json)


@command.command("expire")
@click.option("--hours", type=click.FloatRange(min=0), help="From now on.  [default: at once]")
@secret_option("--hmac-file", "the HMAC")
@cluster_options
@json_option
def expire_token(cluster: Cluster, hours: float | None, hmac_file: Path | None, as_json: bool) -> None:
    """Have a token end."""
    request = wire.ExpireDelegationTokenRequest(hmac=_hmac(hmac_file), expiry_time_period_ms=_period_ms(hours))
    _change(cluster, wire.ExpireDelegationTokenResponse, request, as_json)


def _hmac(file: Path | None) -> bytes:
    try:
        return base64.b64decode(read_secret(file, "HMAC"), validate=True)
    except binascii.Error:
        raise click.ClickException("the HMAC is no base64") from None


def _period_ms(hours: float | None) -> int:
    return -1 if hours is None else int(hours * _HOUR_MS)


def _change(
    cluster: Cluster,
    kind: type[wire.RenewDelegationTokenResponse | wire.ExpireDelegationTokenResponse],
    request: wire.RenewDelegationTokenRequest | wire.ExpireDelegationTokenRequest,
    as_json: bool,
) -> None:
    with cluster.admin() as admin:
        answer = admin.send(kind, request)
        refuse(answer.error_code)
    expires = _time(answer.expiry_timestamp_ms)
    if as_json:
        print_json({"expires": expires})
    else:
        click.echo(f"expires {expires}")
