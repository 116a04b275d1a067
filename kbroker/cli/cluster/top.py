"""`kbroker top`: what a running broker does per second, by topic, group, client and API, in the terminal.

Reads the metrics page of a kbroker and the console's list of connections twice, and shows the difference.  The broker
pays for one scrape and one list per look, and for nothing in between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from kbroker.cli.cluster.rates import Look, looks, read_look
from kbroker.cli.metrics_listener import MetricsListener, NotThereError
from kbroker.cli.output import json_option, print_json, print_table, size_text
from kbroker.cli.profile_option import profile_option
from kbroker.cli.storage.log_sources import DEFAULT_METRICS
from kbroker.cli.storage.logs import default_metrics
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from rich.console import Group

CLIENTS = "/console/api/clients?sort=-request_count&count={count}&start={start}"
PAGE_ROWS = 200
MOST_CONNECTIONS = 2_000
"""The connections that asked most; more are not looked at."""

Cell = Callable[[JsonObject], str]


class Section(NamedTuple):
    """A table of the screen: its rows in the figures, and a column's heading with what it shows of a row."""

    name: str
    columns: Sequence[tuple[str, Cell]]


def _count(key: str) -> Cell:
    def shown(row: JsonObject) -> str:
        value = row[key]
        if value is None:
            return "-"
        return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:,.1f}"

    return shown


def _bytes(key: str) -> Cell:
    def shown(row: JsonObject) -> str:
        value = row[key]
        if value is None:
            return "-"
        return f"-{size_text(-int(value))}" if value < 0 else size_text(int(value))

    return shown


def _text(key: str) -> Cell:
    return lambda row: str(row[key])


SECTIONS = (
    Section(
        "topics",
        (
            ("TOPIC", _text("topic")),
            ("RECORDS/s", _count("records_per_second")),
            ("GROWTH/s", _bytes("growth_bytes_per_second")),
            ("SIZE", _bytes("size_bytes")),
            ("PARTITIONS", _count("partitions")),
        ),
    ),
    Section(
        "groups",
        (
            ("GROUP", _text("group")),
            ("COMMITTED/s", _count("records_per_second")),
            ("LAG", _count("lag")),
            ("LAG +/s", _count("lag_change_per_second")),
            ("MEMBERS", _count("members")),
        ),
    ),
    Section(
        "clients",
        (
            ("CLIENT", lambda row: row["client_id"] or "-"),
            ("SOFTWARE", lambda row: row["software"] or "-"),
            ("CONNECTIONS", _count("connections")),
            ("REQUESTS/s", _count("requests_per_second")),
            ("IN/s", _bytes("bytes_in_per_second")),
            ("OUT/s", _bytes("bytes_out_per_second")),
        ),
    ),
    Section(
        "apis",
        (
            ("REQUEST", _text("api")),
            ("PER SECOND", _count("requests_per_second")),
            ("ERRORS/s", _count("errors_per_second")),
            ("IN/s", _bytes("bytes_in_per_second")),
            ("OUT/s", _bytes("bytes_out_per_second")),
            ("MEAN ms", lambda row: "-" if row["mean_ms"] is None else f"{row['mean_ms']:.3f}"),
        ),
    ),
)


@click.command("top")
@click.option(
    "-m",
    "--metrics",
    metavar="URL",
    help=f"A running kbroker's metrics.listener.  [default: the profile's, or {DEFAULT_METRICS}]",
)
@profile_option
@click.option("--interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True, metavar="SECONDS")
@click.option("--once", is_flag=True, help="One look, and end.")
@click.option("--rows", type=click.IntRange(min=1), default=20, show_default=True, help="The busiest of each kind.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=15.0, show_default=True, metavar="SECONDS")
@json_option
def command(metrics: str | None, interval: float, once: bool, rows: int, timeout: float, as_json: bool) -> int:
    """Show what a broker does per second, by topic, group, client and API, until Ctrl-C.

    With --json a JSON object for each look, all rows, numbers in full; with --once one.
    """
    listener = MetricsListener(metrics or default_metrics(), timeout)
    figures = _figures(listener, interval)
    if once:
        found = next(figures)
        if as_json:
            print_json(found)
        else:
            _print(found, rows)
        return 0
    if as_json:
        for found in figures:
            click.echo(json.dumps(found))
    else:
        _show(figures, listener.address, rows)
    return 0


def _figures(listener: MetricsListener, interval: float) -> Iterator[JsonObject]:
    try:
        yield from looks(lambda: _look(listener), lambda: time.sleep(interval))
    except (ValueError, KeyError) as error:
        raise click.ClickException(f"{listener.address} has no metrics page of kbroker: {error}") from None


def _look(listener: MetricsListener) -> Look:
    look = read_look(listener.text("/metrics"))
    found: dict[str, JsonObject] = {}
    for start in range(0, MOST_CONNECTIONS, PAGE_ROWS):
        try:
            page = listener.json(CLIENTS.format(count=PAGE_ROWS, start=start))["page"]
        except NotThereError:  # kbroker.console.enable=false
            return look
        found |= {row["key"]: row for row in page["rows"]}
        if len(page["rows"]) < PAGE_ROWS or page["start"] != start:
            break
    look.connections = found
    return look


def headline(found: JsonObject) -> str:
    """The broker as a whole, in one line."""
    broker = found["broker"]
    delay = broker["loop_delay_p99_ms"]
    parts = [
        f"kbroker {broker.get('version', '')} node {broker.get('node_id', '?')}",
        f"up {_duration(broker['uptime_seconds'])}",
        f"cpu {broker['cpu_percent'] or 0:.0f} %",
        f"memory {size_text(broker['resident_bytes'])}",
        f"loop p99 {'-' if delay is None else f'{delay:.2g} ms'}",
        f"{broker['connections']} connections",
        f"{broker['requests_per_second']:,.0f} requests/s",
        f"in {size_text(int(broker['bytes_in_per_second'] or 0))}/s",
        f"out {size_text(int(broker['bytes_out_per_second'] or 0))}/s",
    ]
    return "  ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def tables(found: JsonObject, rows: int) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Headings and cells of each section that has rows; requests alone that there were."""
    for section in SECTIONS:
        there = found[section.name] or []
        if section.name == "apis":
            there = [row for row in there if row["requests_per_second"]]
        if there:
            yield (
                [name for name, _ in section.columns],
                [[cell(row) for _, cell in section.columns] for row in there[:rows]],
            )


def _print(found: JsonObject, rows: int) -> None:
    click.echo(headline(found))
    for headings, cells in tables(found, rows):
        click.echo("")
        print_table(headings, cells)


def screen(found: JsonObject, address: str, rows: int, height: int) -> Group:
    """The part that fits a terminal of `height` lines: short tables leave their share of lines to the others."""
    from rich.console import Group as Lines
    from rich.table import Table
    from rich.text import Text

    shown = list(tables(found, rows))
    room = shares([len(cells) for _, cells in shown], height - 2 - 3 * len(shown))
    parts: list[Text | Table] = [Text(headline(found), style="bold", no_wrap=True, overflow="ellipsis")]
    for (headings, cells), most in zip(shown, room, strict=True):
        table = Table(box=None, pad_edge=False, header_style="reverse", expand=True)
        for index, heading in enumerate(headings):
            table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=True, overflow="ellipsis")
        for row in cells[:most]:
            table.add_row(*map(Text, row))
        parts += [Text(""), table]
    parts.append(Text(f"{address}, every {found['seconds']:.3g} s; Ctrl-C ends", style="dim"))
    return Lines(*parts)


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Divides `room` lines, one at a time in turn, among those that want more than they have."""
    given = [0] * len(wanted)
    while room > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for index, want in enumerate(wanted):
            if room > 0 and given[index] < want:
                given[index] += 1
                room -= 1
    return given


def _show(figures: Iterator[JsonObject], address: str, rows: int) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        for found in figures:
            _print(found, rows)
            click.echo("")
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for found in figures:
            live.update(screen(found, address, rows, console.height), refresh=True)
