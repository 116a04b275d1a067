"""`kbroker profile`: clusters by name, for `--profile` of every command that talks to one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from kbroker.cli.output import json_option, parse_pairs, print_json, print_table
from kbroker.cli.profiles import Profile, ProfileError, Profiles, default_path
from kbroker.types import JsonObject

_SECRET = ("password", "secret", "token", "sasl.jaas", "ssl.key", "key.pem")


@click.group("profile")
def command() -> None:
    """Keep clusters by name: `kbroker topics list --profile NAME`, or KBROKER_PROFILE=NAME."""


@contextmanager
def _opened() -> Iterator[Profiles]:
    try:
        yield Profiles(default_path())
    except ProfileError as error:
        raise click.ClickException(str(error)) from None


@command.command("add")
@click.argument("name")
@click.option("-b", "--bootstrap-server", "bootstrap", required=True, metavar="HOST:PORT[,…]", help="Where it is.")
@click.option("-m", "--metrics", metavar="URL", help="A kbroker's metrics.listener, for `kbroker logs` and `top`.")
@click.option("-X", "client_settings", multiple=True, metavar="KEY=VALUE", help="A setting of its clients.")
@click.option("--replace", is_flag=True, help="Take the place of a profile of this name.")
@json_option
def add_profile(
    name: str, bootstrap: str, metrics: str | None, client_settings: tuple[str, ...], replace: bool, as_json: bool
) -> None:
    """Add a cluster under a name."""
    from kbroker.client.address import parse_bootstrap

    try:
        parse_bootstrap(bootstrap, "--bootstrap-server")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with _opened() as profiles:
        if name in profiles.names and not replace:
            raise click.ClickException(f"there is a profile {name}; --replace takes its place")
        profiles.put(Profile(name, bootstrap, metrics, parse_pairs(client_settings, "-X")))
    _report(name, "added", as_json)


@command.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List profiles; passwords are not shown."""
    with _opened() as profiles:
        rows = [_shown(profiles.get(name), profiles.current) for name in profiles.names]
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            "*" if row["current"] else "",
            row["name"],
            row["bootstrap"],
            row["metrics"],
            ", ".join(f"{key}={text}" for key, text in row["settings"].items()),
        )
        for row in rows
    ]
    print_table(("", "PROFILE", "BOOTSTRAP SERVER", "METRICS", "SETTINGS"), cells)


@command.command("use")
@click.argument("name", required=False)
@click.option("--none", "nothing", is_flag=True, help="No profile is the current one.")
@json_option
def use_profile(name: str | None, nothing: bool, as_json: bool) -> None:
    """Make a profile the one that commands take when they name none."""
    if nothing == (name is not None):
        raise click.UsageError("give the NAME of a profile, or --none")
    with _opened() as profiles:
        profiles.use(name)
    _report(name or "none", "in use", as_json)


@command.command("remove")
@click.argument("name")
@json_option
def remove_profile(name: str, as_json: bool) -> None:
    """Remove a profile."""
    with _opened() as profiles:
        profiles.remove(name)
    _report(name, "removed", as_json)


def _shown(profile: Profile, current: str | None) -> JsonObject:
    hidden = {
        key: "(hidden)" if any(word in key for word in _SECRET) else text for key, text in profile.settings.items()
    }
    return {
        "name": profile.name,
        "bootstrap": profile.bootstrap,
        "metrics": profile.metrics,
        "settings": hidden,
        "current": profile.name == current,
    }


def _report(name: str, result: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "result": result})
    else:
        click.echo(f"{name}: {result}")
