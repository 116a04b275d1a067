"""The `kbroker` command: its sub-commands, and what its user sees when something fails.

Sub-commands are imported when they are called, so that `kbroker start` pays for nothing but the broker.  Exit status:
0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 where the output is read no more.  A failure is one line on
standard error.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import select
import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from kbroker.nearest import did_you_mean

UNREAD_STATUS = 128 + signal.SIGPIPE
"""As a program ends that the signal kills."""
COMMANDS: dict[str, tuple[str, str]] = {
    "start": ("kbroker.cli.start", "Run the broker in the foreground."),
    "format": ("kbroker.cli.storage.format", "Prepare data directories before a first start."),
    "config": ("kbroker.cli.config", "Show the settings and what each is."),
    "doctor": ("kbroker.cli.checks.doctor", "Check settings and machine, and say what mends what is wrong."),
    "cluster": ("kbroker.cli.cluster.cluster", "Show a cluster, elect leaders, reassign replicas, drain a broker."),
    "topics": (
        "kbroker.cli.topics.topics",
        "List, describe, create, alter and delete topics; delete records.",
    ),
    "groups": ("kbroker.cli.groups.groups", "List, describe, reset, move and delete consumer groups."),
    "share": ("kbroker.cli.groups.share", "List and describe share groups."),
    "streams": ("kbroker.cli.groups.streams", "List and describe streams groups."),
    "settings": ("kbroker.cli.topics.settings", "Show and change the settings of running brokers."),
    "profile": ("kbroker.cli.profile", "Keep clusters by name, with the settings of their clients."),
    "quotas": ("kbroker.cli.cluster.quotas", "List, set and remove the quotas of users, client ids and addresses."),
    "certificates": ("kbroker.cli.security.certificates", "Show the certificates of listeners, and when they run out."),
    "users": ("kbroker.cli.security.users", "List, add and remove users who log in by SCRAM."),
    "tokens": ("kbroker.cli.security.tokens", "List, create, renew and expire delegation tokens."),
    "acls": ("kbroker.cli.security.acls", "List, add and remove ACLs: who may do what to which resources."),
    "import": ("kbroker.cli.storage.import_kafka", "Take over the directories of a stopped Apache Kafka."),
    "export": ("kbroker.cli.storage.export_kafka", "Make the directories of a stopped kbroker an Apache Kafka's."),
    "metadata": (
        "kbroker.cli.storage.metadata",
        "Make the metadata store of a stopped broker anew from its log directories.",
    ),
    "transactions": (
        "kbroker.cli.records.transactions",
        "Show open transactions, and abort those that no coordinator ends.",
    ),
    "top": ("kbroker.cli.cluster.top", "Show what a broker does per second, by topic, group, client and API."),
    "logs": ("kbroker.cli.storage.logs", "Show the logs of a broker, and why they are (not) compacted or shortened."),
    "produce": ("kbroker.cli.records.produce", "Write lines from standard input to a topic."),
    "consume": ("kbroker.cli.records.consume", "Write a topic's records to standard output."),
    "trace": ("kbroker.cli.spark.trace", "Inspect traces of production traffic and convert them for a replay."),
    "load": ("kbroker.cli.spark.load", "Load topics into Parquet or Iceberg tables, and Parquet into topics."),
    "mirror": ("kbroker.cli.spark.mirror", "Mirror topics of one cluster into another."),
    "replay": ("kbroker.cli.spark.replay", "Replay a trace against a cluster, verify what arrived, and report."),
    "dump-log": ("kbroker.cli.storage.dump_log", "Print what is in segments, indexes, snapshots and checkpoints."),
    "help": ("kbroker.cli.help", "Explain a command, or list all."),
    "completion": ("kbroker.cli.completion", "Print the script that has Tab complete in bash, zsh or fish."),
    "version": ("kbroker.cli.version", "Show release, build and libraries."),
}

OF_THE_IMAGE: dict[str, str] = {"container": "kbroker.cli.container", "kafka-tool": "kbroker.cli.kafka_tools"}
"""Commands of the container image's own, which help does not list."""


class _PipeEndedError(Exception):
    """What click would make status 1 of, without a word: a closed pipe, or a lost connection."""


class LazyGroup(click.Group):
    """A group whose commands are imported by name: module `kbroker.cli.<name>`, attribute `command`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:
            raise _PipeEndedError from error

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _PipeEndedError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS[cmd_name][0] if cmd_name in COMMANDS else OF_THE_IMAGE.get(cmd_name)
        if module is None:
            near = did_you_mean(cmd_name, COMMANDS)
            if not near or ctx.resilient_parsing:
                return None
            raise click.UsageError(f"No such command {cmd_name!r}{near}", ctx)
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, help="Show release, build and libraries, and exit; with --json as JSON.")
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.pass_context
def cli(ctx: click.Context, version: bool, as_json: bool) -> None:
    """A Kafka broker, and tools that work with any Kafka."""
    if version:
        from kbroker.cli.version import print_version

        print_version(as_json)
        ctx.exit()
    if as_json:
        raise click.UsageError("--json goes behind the command, or behind --version", ctx)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs a command and exits with its status."""
    _open_closed_streams()
    status = run(arguments)
    _let_go_of_closed_streams()
    sys.exit(status)


def _open_closed_streams() -> None:
    """Python has None for a stream that was closed before its start, and files and sockets would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115


def _let_go_of_closed_streams() -> None:
    """Python flushes both streams at exit, and ends with status 120 where nothing reads them any more, such as a
    terminal that was closed."""
    for stream in (sys.__stdout__, sys.stdout, sys.__stderr__, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(arguments: list[str] | None = None) -> int:
    """Runs a command; its exit status."""
    try:
        status: object = cli(arguments, prog_name="kbroker", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        return _fail(error.format_message() + where, 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 1)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (_PipeEndedError, BrokenPipeError):
        if _is_unread():
            return UNREAD_STATUS
        return _fail(os.strerror(errno.EPIPE), 1)
    except OSError as error:
        name = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{name}{error.strerror or error}", 1)


def _is_unread() -> bool:
    """Whether the reader of our output has gone (`kbroker … | head`), and not the other end of a connection."""
    looked = select.poll()
    looked.register(1, 0)
    return bool(looked.poll(0))


def _fail(message: str, status: int) -> int:
    text = " ".join(line.strip() for line in message.splitlines())
    with contextlib.suppress(OSError, ValueError):  # It may be read no more.
        print(f"kbroker: {text}", file=sys.stderr)  # noqa: T201
    return status
