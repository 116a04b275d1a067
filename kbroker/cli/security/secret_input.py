"""Secrets that commands take: asked for, from a pipe, or from a file, as arguments can be seen by others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def secret_option(name: str, what: str) -> Callable[[F], F]:
    """Adds the option for the file that `read_secret` takes."""
    return click.option(
        name,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"A file with {what}; without it {what} is asked for, or read from a pipe.",
    )


def read_secret(file: Path | None, what: str) -> str:
    """The first line of a file or, without one, of what is typed or piped in.  ClickException for an empty one."""
    if file is not None:
        text = file.read_text(encoding="utf-8")
    elif sys.stdin.isatty():
        text = str(click.prompt(what, hide_input=True, confirmation_prompt=True, err=True))
    else:
        text = sys.stdin.readline()
    secret = text.partition("\n")[0].rstrip("\r")
    if not secret:
        raise click.ClickException(f"{what}: it is empty")
    return secret
