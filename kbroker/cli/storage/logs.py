"""`kbroker logs`: what lies where, in which state, and why a log is (not) compacted or shortened."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kbroker.cli import completion
from kbroker.cli.command_config import command_config_option
from kbroker.cli.metrics_listener import MetricsListener
from kbroker.cli.output import json_option, print_json, print_table, size_text, time_text
from kbroker.cli.profile_option import client_settings_option, profile_of, profile_option
from kbroker.cli.storage.log_sources import DEFAULT_METRICS, Directories, KafkaProtocol, LogPages, LogSource, Value
from kbroker.cli.storage.repair import repair_log
from kbroker.nearest import did_you_mean

F = TypeVar("F", bound=Callable[..., object])


def source_options(*, protocol: bool = False, directory: bool = True) -> Callable[[F], F]:
    """Adds the options that say whom to ask; the command gets the answer's source as `source`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def with_source(
            metrics: str | None,
            timeout: float,
            bootstrap: str | None = None,
            directories: tuple[str, ...] = (),
            **rest: object,
        ) -> object:
            chosen = [each for each in (metrics, bootstrap, directories) if each]
            if len(chosen) > 1:
                raise click.UsageError("--metrics, --bootstrap-server and --directory exclude each other")
            source: LogSource
            if directories:
                source = Directories(directories)
            elif bootstrap is not None:
                source = KafkaProtocol(bootstrap, timeout)
            else:
                source = LogPages(MetricsListener(metrics or default_metrics(), timeout))
            return function(source=source, **rest)

        decorated: Any = with_source
        options = [
            profile_option,
            click.option(
                "--timeout", type=click.FloatRange(min=0.1), default=15.0, show_default=True, metavar="SECONDS"
            ),
            click.option(
                "-m",
                "--metrics",
                metavar="URL",
                help=f"A running kbroker's metrics.listener.  [default: the profile's, or {DEFAULT_METRICS}]",
            ),
        ]
        if protocol:
            text = "Ask any Kafka, over its protocol: sizes only."
            options += [client_settings_option, command_config_option]
            options.append(click.option("-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT", help=text))
        if directory:
            text = "Read the log directory of a stopped broker; as often as needed."
            options.append(click.option("-d", "--directory", "directories", multiple=True, metavar="DIR", help=text))
        for option in options:
            decorated = option(decorated)
        result: F = decorated
        return result

    return decorate


def default_metrics() -> str:
    """The profile's metrics listener, or this machine's.  ClickException for a profile without one."""
    profile = profile_of(click.get_current_context())
    if profile is None:
        return DEFAULT_METRICS
    if profile.metrics is None:
        raise click.ClickException(
            f"profile {profile.name} names no metrics listener: `kbroker profile add {profile.name} --replace "
            f"-b {profile.bootstrap} --metrics URL`, or --metrics here"
        )
    return profile.metrics


@click.group("logs")
def command() -> None:
    """Show the logs of a broker: sizes, segments, compaction and retention.

    A running kbroker is asked at its metrics listener.
    """


@command.command("list")
@click.argument("topics", nargs=-1, shell_complete=completion.topics)
@click.option("--sort", type=click.Choice(["name", "size", "dirty"]), default="name", show_default=True)
@json_option
@source_options(protocol=True)
def list_logs(source: LogSource, topics: tuple[str, ...], sort: str, as_json: bool) -> None:
    """List partitions: size, segments, offsets, dirty share, state, directory.  All topics when none is named."""
    value = source.overview()
    rows = [row for row in value["partitions"] if not topics or row["topic"] in topics]
    missing = sorted(set(topics) - {row["topic"] for row in rows})
    if missing:
        near = did_you_mean(missing[0], {row["topic"] for row in value["partitions"]}) if len(missing) == 1 else ""
        raise click.ClickException(f"there is no partition here of {', '.join(missing)}{near}")
    if sort == "size":
        rows.sort(key=lambda row: -row["size_bytes"])
    elif sort == "dirty":
        rows.sort(key=lambda row: -(row["dirty_ratio"] if row["dirty_ratio"] is not None else -1.0))
    if as_json:
        print_json({**value, "partitions": rows})
        return
    columns = ("TOPIC", "PARTITION", "SIZE", "SEGMENTS", "START", "HIGH", "END", "DIRTY", "STATE", "DIRECTORY")
    print_table(columns, [_line(row) for row in rows])
    for directory in value["directories"]:
        click.echo(_directory_line(directory, value["partitions"]))


def _line(row: Value) -> tuple[object, ...]:
    ratio = row["dirty_ratio"]
    return (
        row["topic"],
        row["partition"],
        size_text(row["size_bytes"]),
        row["segment_count"],
        row["log_start_offset"],
        row["high_watermark"],
        row["log_end_offset"],
        None if ratio is None else f"{ratio:.0%}",
        row["state"],
        row["directory"],
    )


def _directory_line(directory: Value, rows: list[Value]) -> str:
    held = [row for row in rows if row["directory"] == directory["path"]]
    parts = [directory["state"], f"{len(held)} partitions", size_text(sum(row["size_bytes"] for row in held))]
    if directory["free_bytes"] is not None:
        parts.append(f"{size_text(directory['free_bytes'])} free")
    if directory["refusing_produce"]:
        parts.append("refuses produce for want of space")
    if directory["cordoned"]:
        parts.append("cordoned")
    return f"{directory['path']}: {', '.join(parts)}"


@command.command("describe")
@click.argument("topic", shell_complete=completion.topics)
@click.argument("partition", required=False, type=click.IntRange(min=0))
@json_option
@source_options()
def describe_log(source: LogSource, topic: str, partition: int | None, as_json: bool) -> None:
    """Describe a topic's logs, or one partition's: segments, checkpoints, leader epochs, producers, compaction."""
    found = source.describe(topic, partition)
    if as_json:
        print_json(found)
        return
    for at, value in enumerate(found):
        if at:
            click.echo()
        _print_log(value)


def _print_log(value: Value) -> None:
    click.echo(f"{value['topic']}-{value['partition']}  id {value['topic_id'] or 'unknown'}  {value['path']}")
    facts = [
        ("size", f"{size_text(value['size_bytes'])} in {value['segment_count']} segments"),
        ("offsets", f"start {_known(value['log_start_offset'])}, high watermark {_known(value['high_watermark'])}, "
                    f"last stable {_known(value['last_stable_offset'])}, end {_known(value['log_end_offset'])}"),
        ("cleanup.policy", value["cleanup_policy"] or "unknown"),
        ("state", value["state"]),
        ("checkpoints", ", ".join(f"{n} {'none' if at is None else at}" for n, at in value["checkpoints"].items())),
        ("leader epochs", _epochs(value["leader_epochs"])),
    ]  # fmt: skip
    producers = value["producers"]
    if producers is not None:
        facts.append(("producers", f"{producers['count']} remembered"))
    facts.extend(_compaction_facts(value["compaction"]))
    for name, text in facts:
        click.echo(f"  {name:<15} {text}")
    columns = ("BASE OFFSET", "SIZE", "LARGEST TIMESTAMP", "STATE", "ABORTED")
    print_table(
        columns,
        [
            (
                segment["base_offset"],
                size_text(segment["size_bytes"]),
                time_text(segment["largest_timestamp"]),
                segment["state"],
                "yes" if segment["aborted_transactions"] else "no",
            )
            for segment in value["segments"]
        ],
    )
    if producers is not None and producers["shown"]:
        columns = ("PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST TIMESTAMP", "OPEN TRANSACTION FROM")
        print_table(
            columns,
            [
                (
                    each["producer_id"],
                    each["producer_epoch"],
                    each["last_sequence"],
                    time_text(each["last_timestamp"]),
                    each["transaction_start_offset"],
                )
                for each in producers["shown"]
            ],
        )


def _compaction_facts(compaction: Value | None) -> list[tuple[str, str]]:
    if compaction is None:
        return []
    dirty, end = compaction["first_dirty_offset"], compaction["first_uncleanable_offset"]
    facts = [("dirty offsets", f"from {_known(dirty)}, may be compacted up to {_known(end)}")]
    if compaction["oldest_dirty_timestamp"] is not None:
        facts.append(("dirty since", time_text(compaction["oldest_dirty_timestamp"]) or ""))
    failure, last = compaction["failure"], compaction["last_clean"]
    if failure is not None:
        facts.append(
            ("fails", f"{failure['attempts']} times since {time_text(failure['since'])}, next attempt in "
                      f"{failure['retry_in_ms'] / 1000:.0f} s: {failure['reason']}")
        )  # fmt: skip
    if last is not None:
        facts.append(
            ("last compaction", f"{time_text(last['at'])}, {last['seconds']} s, kept {last['records_kept']} of "
                                f"{last['records_read']} records, wrote {size_text(last['bytes_written'])}")
        )  # fmt: skip
    return facts


@command.command("explain")
@click.argument("topic", shell_complete=completion.topics)
@click.argument("partition", type=click.IntRange(min=0))
@json_option
@source_options(directory=False)
def explain_log(source: LogSource, topic: str, partition: int, as_json: bool) -> None:
    """Say in words why a log is, or is not, compacted and shortened, and when that changes."""
    (value,) = source.describe(topic, partition)
    explanation = value["explanation"]
    if as_json:
        print_json({"topic": topic, "partition": partition, **explanation})
        return
    click.echo(
        f"{topic}-{partition}: {size_text(value['size_bytes'])} in {value['segment_count']} segments, {value['state']}"
    )
    for name in [each for each in ("damage", "compaction", "retention") if explanation.get(each)]:
        click.echo(f"\n{name.capitalize()}")
        for sentence in explanation[name]:
            click.echo(f"  {sentence}")


command.add_command(repair_log)


def _known(value: object) -> object:
    return "unknown" if value is None else value


def _epochs(epochs: list[Value] | None) -> str:
    if epochs is None:
        return "unreadable"
    return ", ".join(f"{each['epoch']} from {each['start_offset']}" for each in epochs) or "none"
