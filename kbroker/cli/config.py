"""`kbroker config`: every setting, its default and meaning; `--markdown` writes docs/configuration.md; `check FILE`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from kbroker.cli.output import json_option, print_json, print_table
from kbroker.config import (
    BrokerConfig,
    ConfigError,
    ConfigRow,
    Source,
    broker_config_rows,
    client_metrics_rows,
    group_config_rows,
    render_value,
)
from kbroker.config import topic_config_rows as topic_rows
from kbroker.config.broker import environment_name
from kbroker.config.check import describe_check
from kbroker.config.file_check import check_file
from kbroker.config.table import DIFFERENT_DEFAULTS
from kbroker.metadata.broker_settings import is_live

STATUS = {"+": "yes", "-": "no", "x": "refused", "!": "refused"}
WITHOUT_EFFECT = "Broker settings of Kafka that have no effect here"
REFUSED = "Settings that kbroker refuses"
INTRODUCTION = """# Settings

Written by `kbroker config --markdown` from the table that the broker itself reads; do not edit.

## Where a value comes from

The first of these that names a setting counts:

1. `kbroker start --override key=value`, as often as needed;
2. the environment: `KBROKER_` and the name in capitals with dots as underscores, so `KBROKER_LOG_SEGMENT_BYTES` is
   `log.segment.bytes`.  Names that start with `kbroker.` do not repeat it: `KBROKER_LOG_FORMAT` is
   `kbroker.log.format`;
3. the file: `kbroker start server.properties`, in the syntax of Java's .properties files (comments with `#` and `!`,
   `=`, `:` or a blank after the key, `\\` at the end of a line that goes on, `\\uXXXX`), read as UTF-8;
4. the default.

A name that kbroker does not know is a warning, with the known one that it seems to be misspelt from.  A value that a
setting does not allow stops the start, with the setting, the value and what is allowed.  A setting of Kafka that has no
effect here is a warning with the reason, at the start, in the log when it is changed at run time, and in what
DescribeConfigs says.  If it asks for what kbroker cannot do (a Java class, tiered storage) or would protect something
in a way that kbroker does not have, kbroker refuses to start when it is set to anything but its default: nothing is
served with less than was asked for.

A `server.properties` written for Kafka works.  With `process.roles=broker` kbroker is a broker of the KRaft cluster
that `controller.quorum.bootstrap.servers` (or `controller.quorum.voters`) names.  With `broker,controller` and
a quorum it is a controller as well, of one voter or more, with `controller` nothing else ([cluster.md](cluster.md)).
With `broker,controller` and neither of the two settings it is a cluster of its own without a quorum, and listeners
named in `controller.listener.names` are left out.

`KAFKA_…` variables, by which Kafka's container images are set up, are settings in kbroker's image
([containers.md](containers.md)).  Elsewhere they are not read: the start names them in one warning,
and ends where one of them asks for protection.

## Data directories

`log.dirs`, else `log.dir`, else `$KBROKER_HOME/data`; without `KBROKER_HOME`, `~/.local/share/kbroker/data`
(`$XDG_DATA_HOME/kbroker/data` where that is set).  Kafka's default, `/tmp/kafka-logs`, does not survive a reboot.

## Where defaults differ from Kafka's
"""
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "The node, its directories and its processes",
        ("node.", "broker.", "process.", "log.dir", "cordoned.", "kbroker."),
    ),
    (
        "Listeners, connections and memory",
        (
            "listener",
            "controller.listener",
            "advertised.",
            "socket.",
            "max.conn",
            "connection",
            "queued.",
            "num.network",
        ),
    ),
    ("Durability", ("kbroker.fsync", "log.flush", "min.insync", "unclean.leader", "num.recovery", "replica.high")),
    ("Topics that are made", ("num.partitions", "default.rep", "auto.create", "kbroker.auto", "delete.topic")),
    (
        "Records, segments and retention",
        ("log.", "message.", "compression.", "fetch.", "max.incremental", "max.request"),
    ),
    ("Compaction", ("log.cleaner.",)),
    ("Groups of all kinds and classic ones", ("group.", "offset")),
    ("Consumer groups", ("group.consumer.",)),
    ("Share groups", ("group.share.", "share.")),
    ("Streams groups", ("group.streams.",)),
    ("Transactions and idempotent producers", ("transaction", "producer.", "add.partitions", "kbroker.max.producers")),
    ("Quotas and moves between directories", ("quota.", "controller.quota", "replica.alter", "num.replica.alter")),
    ("Metrics and logs of the broker", ("metric", "telemetry.", "kbroker.metrics", "kbroker.log")),
    ("A cluster of several brokers", ("",)),
    ("ZooKeeper", ("zookeeper.", "kbroker.zookeeper", "reserved.broker", "broker.id.generation")),
)
"""Titles, and the beginnings of names: the longest one that fits counts."""
QUOTAS = """## Quotas

What clients may use is set for users, client ids and addresses with `kbroker quotas` or kafka-configs, not here:
`producer_byte_rate`, `consumer_byte_rate`, `request_percentage`, `controller_mutation_rate` and, for addresses,
`connection_creation_rate`.
"""


class _ShowsWithoutACommand(click.Group):
    """`kbroker config [FILE]` is `kbroker config show [FILE]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("config", cls=_ShowsWithoutACommand)
def command() -> None:
    """Show the settings and what each is, or check a file of them.  Without a command: show."""


@command.command("check")
@click.argument("properties", metavar="SERVER.PROPERTIES", type=click.Path(dir_okay=False, path_type=Path))
@json_option
@click.pass_context
def check_settings(ctx: click.Context, properties: Path, as_json: bool) -> None:
    """Say of each line what is wrong with it: not valid, unknown, without effect here, deprecated, set twice.

    Starts nothing and reads the file alone.  Exits with 1 if a broker would not start with it.
    """
    try:
        count, findings = check_file(properties)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    stops = any(finding.stops for finding in findings)
    if as_json:
        print_json({"settings": count, "starts": not stops, "findings": [each._asdict() for each in findings]})
    elif findings:
        print_table(
            ("LINE", "SETTING", "VALUE", "VERDICT", "WHY"),
            [(each.line or None, each.key, each.value, each.verdict, each.why) for each in findings],
        )
        click.echo(f"{properties}: {count} settings; a broker {'does not start' if stops else 'starts'} with them")
    else:
        click.echo(f"{properties}: settings: {count}, each known and acted on")
    ctx.exit(1 if stops else 0)


@command.command("show")
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path(dir_okay=False))
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting.")
@click.option("--topics", "show_topics", is_flag=True, help="Show the settings of topics instead of the broker's.")
@click.option("--all", "show_all", is_flag=True, help="Include settings that kbroker does not act on.")
@click.option("--markdown", is_flag=True, help="Write docs/configuration.md.")
@json_option
def show_settings(
    properties: str | None,
    overrides: tuple[str, ...],
    show_topics: bool,
    show_all: bool,
    markdown: bool,
    as_json: bool,
) -> None:
    """Show the settings: what each is here and now, where that comes from, what is allowed.

    Reads SERVER.PROPERTIES, the environment and overrides as `kbroker start` does.
    """
    if markdown:
        click.echo(render_markdown(), nl=False)
        return
    try:
        config = BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    for warning in config.warnings:
        click.echo(f"kbroker: warning: {warning}", err=True)
    rows = [
        row
        for row in (topic_rows() if show_topics else broker_config_rows())
        if show_all or as_json or row.implemented or config.source_of(row.name) is not Source.DEFAULT
    ]
    if as_json:
        print_json([_describe(row, config) for row in rows])
    else:
        print_table(
            ("NAME", "VALUE", "FROM", "TYPE", "ALLOWED", "ACTED ON", "MEANING"),
            [(row.name, *_value(row, config), *_columns(row)) for row in rows],
        )


def _value(row: ConfigRow, config: BrokerConfig) -> tuple[str | None, str]:
    if row.scope == "topic":
        return render_value(row.default), "default"
    value = render_value(config.value_of(row.name))
    return ("[hidden]" if row.sensitive and value else value), config.origin_of(row.name)


def _columns(row: ConfigRow) -> tuple[str, str, str, str]:
    return row.type.name, describe_check(row.check), STATUS[row.status], row.doc


def _describe(row: ConfigRow, config: BrokerConfig) -> dict[str, object]:
    value, origin = _value(row, config)
    described: dict[str, object] = {
        "name": row.name,
        "scope": row.scope,
        "type": row.type.name,
        "value": value,
        "from": origin,
        "default": render_value(row.default),
        "allowed": describe_check(row.check),
        "implemented": row.implemented,
        "refused": row.refused,
        "why_not": row.reason or None,
        "dynamic": row.dynamic or None,
        "changes_at_run_time": row.scope == "topic" or is_live(row.name),
        "meaning": row.doc,
    }
    if row.scope == "topic":
        described["broker_settings"] = list(row.synonyms)
    else:
        described["environment"] = environment_name(row.name)
    return described


def render_markdown() -> str:
    """docs/configuration.md."""
    lines = [INTRODUCTION.rstrip("\n"), ""]
    lines += _table(
        ("Setting", "kbroker", "Kafka", "Why"),
        (
            (f"`{name}`", _default(_broker_row(name)), f"`{kafka}`", why)
            for name, (kafka, why) in DIFFERENT_DEFAULTS.items()
        ),
    )
    lines += ["", "## Broker settings", "", "Live: can be changed while the broker runs (docs/operations.md).", ""]
    acted_on = [row for row in broker_config_rows() if row.implemented]
    lines += [f"- [{title}](#{_anchor(title)})" for title, _ in GROUPS]
    for title, _ in GROUPS:
        lines += ["", f"### {title}", ""]
        lines += _table(
            ("Name", "Type", "Default", "Allowed", "Live", "Meaning"),
            (_markdown_row(row, ("Live",)) for row in acted_on if group_of(row.name) == title),
        )
    sections = (
        ("Topic settings", topic_rows()),
        ("Settings of groups", group_config_rows()),
        ("Settings of subscriptions to client metrics", client_metrics_rows()),
        (WITHOUT_EFFECT, [row for row in broker_config_rows() if not row.implemented and not row.refused]),
        (REFUSED, [row for row in broker_config_rows() if row.refused]),
    )
    for title, rows in sections:
        lines += ["", f"## {title}", ""]
        has_synonyms = title in ("Topic settings", "Settings of groups")
        extra: tuple[str, ...] = ("Default from", "Acted on") if has_synonyms else ()
        if title in (WITHOUT_EFFECT, REFUSED):
            extra = ("Why",)
        headers = ("Name", "Type", "Default", "Allowed", *extra, "Meaning")
        lines += _table(headers, (_markdown_row(row, extra) for row in rows))
    lines += ["", QUOTAS.rstrip("\n")]
    return "\n".join(lines) + "\n"


def group_of(name: str) -> str:
    """The title that a broker setting stands under."""
    fits = ((len(prefix), title) for title, prefixes in GROUPS for prefix in prefixes if name.startswith(prefix))
    return max(fits)[1]


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")


def _broker_row(name: str) -> ConfigRow:
    return next(row for row in broker_config_rows() if row.name == name)


def _markdown_row(row: ConfigRow, extra: tuple[str, ...]) -> tuple[str, ...]:
    cells = {
        "Default from": ", ".join(f"`{name}`" for name in row.synonyms),
        "Acted on": f"no: {row.reason}" if row.reason else "yes",
        "Why": row.reason,
        "Live": "yes" if is_live(row.name) else "",
    }
    more = (cells[name] for name in extra)
    return f"`{row.name}`", row.type.name, _default(row), describe_check(row.check), *more, row.doc


def _default(row: ConfigRow) -> str:
    text = render_value(row.default)
    if text is None:
        return "unset"
    return f"`{text}`" if text else "empty"


def _table(headers: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return lines
