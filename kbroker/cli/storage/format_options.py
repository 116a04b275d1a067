"""The options of `kbroker format` for a cluster of controllers, with the names of `kafka-storage.sh format`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import click

from kbroker.types import random_uuid, uuid_to_text

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command was given of them."""

    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    release: str | None = None
    features: tuple[str, ...] = ()

    @property
    def has_any(self) -> bool:
        """Whether it was given one."""
        return self != Asked()

    def check(self) -> None:
        """UsageError for options that contradict each other, in Kafka's words."""
        options = (
            ("--standalone/-s", self.standalone),
            ("--no-initial-controllers/-N", self.no_initial_controllers),
            ("--initial-controllers/-I", self.initial_controllers is not None),
        )
        given = [name for name, is_given in options if is_given]
        if len(given) > 1:
            raise click.UsageError(f"argument {given[1]}: not allowed with argument {given[0]}")


def quorum_options(function: F) -> F:
    """Adds them; the command gets them as `asked`."""

    @functools.wraps(function)
    def with_asked(
        standalone: bool,
        initial_controllers: str | None,
        no_initial_controllers: bool,
        release: str | None,
        features: tuple[str, ...],
        **others: object,
    ) -> object:
        asked = Asked(standalone, initial_controllers, no_initial_controllers, release, features)
        asked.check()
        return function(asked=asked, **others)

    options = (
        click.option("-s", "--standalone", is_flag=True, help="This controller alone is the quorum at first."),
        click.option(
            "-I",
            "--initial-controllers",
            metavar="ID@HOST:PORT:DIRECTORY-ID,…",
            help="The first controllers; the same list for each of them, with ids by --random-uuid.",
        ),
        click.option("-N", "--no-initial-controllers", is_flag=True, help="Join the controllers that there are."),
        click.option(
            "-r",
            "--release-version",
            "release",
            metavar="RELEASE",
            help="The release whose features the cluster begins with.  [default: 4.3]",
        ),
        click.option(
            "-f",
            "--feature",
            "features",
            multiple=True,
            metavar="NAME=LEVEL",
            help="The level of a feature that the cluster begins with.",
        ),
        click.option(
            "--random-uuid",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_id,
            help="Print an id for a cluster or a directory, and exit.",
        ),
    )
    made: Callable[..., object] = with_asked
    for option in reversed(options):
        made = option(made)
    return cast("F", made)


def already_formatted(path: str) -> str:
    """What is said of such a directory."""
    return (
        f"Log directory {path} is already formatted. Use --ignore-formatted to ignore this directory and format the "
        "others."
    )


def _print_id(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(uuid_to_text(random_uuid()))
        context.exit()
