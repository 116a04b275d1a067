"""What commands print: tables for people, JSON for programs, one line for errors."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import click

from kbroker.cli.table_layout import GAP, column_widths, one_below_the_other, wrapped
from kbroker.types import JsonObject

_ANY = 10_000
"""Columns of what is no terminal."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table that fits the terminal; as wide as its content in a pipe, which must not cut cells."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ANY
    widths = column_widths(headers, texts, room)
    if title is not None:
        click.secho("\n".join(wrapped(title, room)), italic=True)
    if widths is not None:
        _print_columns(headers, texts, widths)
        return
    for number, block in enumerate(one_below_the_other(headers, texts, room)):
        if number:
            click.echo()
        for name, text in block:
            click.echo(f"{click.style(name, bold=True)}{' ' * GAP}{text}".rstrip())


def print_rows(
    rows: Sequence[JsonObject],
    headers: Sequence[str],
    as_json: bool,
    cells: Callable[[JsonObject], Iterable[object]] = dict.values,
) -> None:
    """Rows as JSON, or as a table of their values, or of what `cells` makes of each."""
    if as_json:
        print_json(rows)
    else:
        print_table(headers, [tuple(cells(row)) for row in rows])


def print_lines(rows: Sequence[JsonObject], line: Callable[[JsonObject], str], as_json: bool) -> None:
    """Rows as JSON, or a line for each."""
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            click.echo(line(row))


def _print_columns(headers: Sequence[str], rows: list[list[str]], widths: list[int]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for header, width in zip(headers, widths, strict=True):
        table.add_column(header, width=width, overflow="fold")
    for row in rows:
        # Text, not str: a topic may be called [bold], which is no markup here.
        table.add_row(*(Text("\n".join(wrapped(cell, width))) for cell, width in zip(row, widths, strict=True)))
    console = Console(width=_ANY, highlight=False, soft_wrap=False)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def size_text(size: int) -> str:
    """Bytes in their largest fitting unit, one decimal."""
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def time_text(milliseconds: int | None) -> str | None:
    """A record's time, in UTC; None where there is none."""
    if milliseconds is None or milliseconds < 0:
        return None
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return when.isoformat(" ", "milliseconds").removesuffix("+00:00") + "Z"


def without_spark(error: ImportError) -> click.ClickException:
    """What a command that needs the Spark pipeline says where that is not installed."""
    return click.ClickException(
        f"{error.name} is missing: it comes with the extra `spark` (`make spark` in a clone of kbroker, elsewhere "
        "pip install 'PATH-OF-CLONE-OR-WHEEL[spark]')"
    )


def print_errors(errors: Iterable[str]) -> int:
    """Each error on a line of standard error; the exit status that they mean."""
    status = 0
    for error in errors:
        click.echo(f"kbroker: {error}", err=True)
        status = 1
    return status


def parse_pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` options as a mapping."""
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {item}: must be key=value")
        pairs[key] = value
    return pairs
