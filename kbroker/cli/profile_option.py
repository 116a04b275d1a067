"""`--profile` of the commands that talk to a cluster, and what a profile gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from kbroker.cli.command_config import command_config_of
from kbroker.cli.output import parse_pairs
from kbroker.cli.profiles import VARIABLE, Profile, ProfileError, Profiles, default_path

_KEY = "kbroker.profile"
_GIVEN = "kbroker.client-settings"

F = TypeVar("F", bound=Callable[..., object])


def profile_option(function: F) -> F:
    """Adds `--profile`; the other options read what it gives through `profile_of`."""
    option: Callable[[F], F] = click.option(
        "--profile",
        metavar="NAME",
        envvar=VARIABLE,
        # Eager, because the profile has the defaults of the command's other options.
        is_eager=True,
        expose_value=False,
        callback=_choose,
        shell_complete=_complete,
        help=f"A cluster of `kbroker profile`.  [default: {VARIABLE}, or the one in use]",
    )
    return option(function)


def _choose(ctx: click.Context, _: click.Parameter, name: str | None) -> None:
    try:
        profiles = Profiles(default_path())
        name = name or profiles.current
        ctx.meta[_KEY] = profiles.get(name) if name else None
    except ProfileError as error:
        # Raised by `profile_of` only: with an address on the command line no profile is needed.
        ctx.meta[_KEY] = error


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        names = Profiles(default_path()).names
    except ProfileError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def profile_of(ctx: click.Context) -> Profile | None:
    """The profile that a command takes, or none.  UsageError when there is none of the name that was given."""
    found: Profile | ProfileError | None = ctx.meta.get(_KEY)
    if isinstance(found, ProfileError):
        raise click.UsageError(str(found), ctx)
    return found


def ignore_profile(ctx: click.Context) -> None:
    """An address was given: drop the profile unless the command line names it, as it is of another cluster."""
    if ctx.get_parameter_source("profile") is not ParameterSource.COMMANDLINE:
        ctx.meta[_KEY] = None


def bootstrap_of(default: str | None) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """The callback of an address's option: what was given, the profile's, or the default."""

    def choose(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            ignore_profile(ctx)
            return value
        profile = profile_of(ctx)
        return profile.bootstrap if profile is not None else default

    return choose


def client_settings_option(function: F) -> F:
    """Adds `-X`; `merged_settings` gives what it says."""
    option: Callable[[F], F] = click.option(
        "-X",
        "client_settings",
        multiple=True,
        metavar="KEY=VALUE",
        expose_value=False,
        callback=_keep_given,
        help="A setting of the client.",
    )
    return option(function)


def _keep_given(ctx: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    ctx.meta[_GIVEN] = given


def merged_settings() -> dict[str, Any]:
    """The profile's client settings, overridden by those of `--command-config`, and those by `-X`.  UsageError."""
    ctx = click.get_current_context()
    profile = profile_of(ctx)
    given = parse_pairs(ctx.meta.get(_GIVEN, ()), "-X")
    return {**(profile.settings if profile is not None else {}), **command_config_of(ctx), **given}
