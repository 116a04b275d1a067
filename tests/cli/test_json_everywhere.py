"""What every command has in common: `--json` that prints JSON, and `--profile` where it talks to a cluster."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from kbroker.cli.main import cli, run
from tests.broker.client import Batch, Client
from tests.broker_process import BrokerProcess

WITHOUT_JSON = {
    "start": "prints the broker's log; kbroker.log.format=json",
    "help": "is for people",
    "completion": "is for shells",
}
OF_SPARK = ("trace", "load", "mirror", "replay")
WITHOUT_PROFILE = {
    "mirror": "has two clusters",
    "replay verify": "asks the cluster that its run names",
}
ADDRESSES = {"--bootstrap-server", "--metrics"}

#: A call of each command that works; DIR: a directory, LOG: a segment, TOPIC-0: a partition.
CALLS = (
    "cluster drain 7",
    "cluster elect TOPIC-0",
    "cluster reassign",
    "cluster status",
    "config check DIR/server.properties",
    "config show",
    "consume TOPIC --from-beginning --exit-at-end",
    "doctor --override log.dirs=DIR/doctor --override listeners=PLAINTEXT://127.0.0.1:0",
    "dump-log LOG",
    "format --override log.dirs=DIR/formatted",
    "groups describe readers",
    "groups list",
    "groups reset-offsets readers --all-topics --to-earliest",
    "groups delete readers",
    "logs describe TOPIC",
    "logs explain TOPIC 0",
    "logs list",
    "produce TOPIC",
    "profile add p -b a:1",
    "profile list",
    "profile use p",
    "profile remove p",
    "quotas list",
    "quotas set producer_byte_rate=1 --user u",
    "quotas remove producer_byte_rate --user u",
    "settings show num.partitions",
    "settings set log.cleaner.threads=2 --validate-only",
    "settings unset log.cleaner.threads",
    "share list",
    "streams list",
    "top --once --interval 0.1",
    "topics alter TOPIC -c retention.ms=100000",
    "topics create other",
    "topics describe TOPIC",
    "topics list",
    "topics delete-records TOPIC --all",
    "topics delete other",
    "transactions abort-hanging TOPIC --all",
    "transactions list",
    "transactions open",
    "version",
)
#: These need an authorizer, TLS, a group, a transaction, a damage, ZooKeeper, controllers or directories of Kafka, from
#: other files.
ELSEWHERE = {
    "acls add",
    "acls list",
    "acls remove",
    "certificates",
    "cluster quorum add",
    "cluster quorum describe",
    "cluster quorum remove",
    "export",
    "groups move-offsets",
    "import",
    "logs repair",
    "metadata rebuild",
    "share describe",
    "streams describe",
    "tokens create",
    "tokens expire",
    "tokens list",
    "tokens renew",
    "transactions describe",
    "users add",
    "users list",
    "users remove",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each command that does something, by its words."""

    def walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield " ".join(words), command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, (*words, name))

    return walk(cli, ())


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_every_command_has_json_and_where_it_talks_to_a_cluster_a_profile() -> None:
    """A script would have to read a table, or a cluster's name would do for some commands only."""
    found = dict(commands())
    assert {name for name, command in found.items() if "--json" not in options(command)} == set(WITHOUT_JSON)
    talking = {name for name, command in found.items() if options(command) & ADDRESSES or name in WITHOUT_PROFILE}
    assert {name for name in talking if "--profile" not in options(found[name])} == set(WITHOUT_PROFILE) | {
        "profile add"
    }


def test_the_calls_below_are_all_commands() -> None:
    """A new command's JSON would not be read by any test."""
    called = {name for name, _ in commands() if any(f"{call} ".startswith(f"{name} ") for call in CALLS)}
    everything = {name for name, _ in commands() if not name.startswith(OF_SPARK)}
    assert everything - called == set(WITHOUT_JSON) | ELSEWHERE


def test_what_json_prints_is_json(
    module_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for people would stand before the brackets, and every script would stop at it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "server.properties").write_text("num.partitions=3\n")
    with Client(module_broker.port) as client:
        client.create("t")
        client.produce("t", Batch())
        row = {"partition_index": 0, "committed_offset": 0}
        commit = {"group_id": "readers", "topics": [{"name": "t", "partitions": [row]}]}
        client.ask("OffsetCommit", 8, {"generation_id_or_member_epoch": -1, "member_id": "", **commit})
    segment = module_broker.data_dir / "t-0" / f"{0:020}.log"
    names = {"TOPIC": "t", "LOG": str(segment), "DIR": str(tmp_path)}
    known = dict(commands())
    for call in CALLS:
        command = max((name for name in known if f"{call} ".startswith(f"{name} ")), key=len)
        words = call
        for name, value in names.items():
            words = words.replace(name, value)
        where: tuple[str, ...] = ()
        if "--metrics" in options(known[command]):
            where = ("-m", module_broker.metrics_url)
        elif "--profile" in options(known[command]):
            where = ("-b", module_broker.bootstrap)
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"x\n")))
        status = run([*words.split(), "--json", *where])
        captured = capsys.readouterr()
        # The doctor may find something wrong with the machine.
        assert status == 0 or command == "doctor", (call, captured.err)
        if command == "consume":
            assert [json.loads(line) for line in captured.out.splitlines()]
        else:
            json.loads(captured.out)
