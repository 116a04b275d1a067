"""The command line without a broker: what it prints, refuses and how it ends.

Also of `kbroker.cli.__main__`, `kbroker.cli.output`, `kbroker.cli.storage.format`, `kbroker.cli.storage.dump_files`,
`kbroker.cli.storage.directory_options`, `kbroker.cli.help`.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kbroker.cli.config import render_markdown
from kbroker.cli.main import COMMANDS, run
from kbroker.cli.records.consume import choose_render, compile_template, render_json
from kbroker.cli.records.produce import LineFormat, Outgoing, read_records
from kbroker.types import uuid_from_text
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


def kbroker(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbroker.cli", *arguments]
    return subprocess.run(command, input=stdin.decode(), capture_output=True, text=True, timeout=200, check=False)


def test_the_documentation_is_the_table() -> None:
    """docs/configuration.md would tell of settings that are not so."""
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == render_markdown(), "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command would be there that cannot be imported."""
    assert run([name, "--help"]) == 0
    assert "Usage: kbroker" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("topics",), ("topics", "create"), ("dump-log",), ("cluster", "quorum", "add")])
def test_help_is_a_command_as_well(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """`kbroker help topics`, which newcomers try, would be an unknown command."""
    said = []
    for arguments in (["help", *words], [*words, "--help"]):
        assert run(arguments) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].startswith(f"Usage: {' '.join(('kbroker', *words))} ")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["nothing"], 2, "No such command 'nothing'"),
        (["topics", "create"], 2, "Missing argument"),
        (["topics", "create", "t", "-p", "0"], 2, "0 is not in the range x>=1"),
        (["topics", "create", "t", "-c", "novalue"], 2, "must be key=value"),
        (["topics", "list", "-b", "nohost"], 2, "is not host:port"),
        (["help", "topics", "create", "more"], 2, "kbroker topics create has no commands of its own"),
        (["completion", "tcsh"], 2, "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        (["help", "topcis"], 2, "No such command 'topcis'; did you mean topics?"),
        (["help", "groups", "nothing"], 2, "No such command 'nothing'"),
        (["topics", "delete-records", "t"], 2, "give one of --before-offset, --before-time, --all"),
        (["topics", "delete-records", "t", "--all", "--before-offset", "0"], 2, "give one of --before-offset"),
        (["topics", "delete-records", "t", "--before-time", "noon"], 2, "'noon' does not match the formats"),
        (["topics", "delete-recrods", "t"], 2, "No such command 'delete-recrods'; did you mean delete-records?"),
        (["topics", "delete-all", "t"], 2, "No such command 'delete-all' (see"),
        (["topics", "alter", "t"], 2, "nothing to alter"),
        (["groups", "reset-offsets", "g", "--all-topics"], 2, "give one of --to-earliest"),
        (["groups", "reset-offsets", "g", "--to-latest"], 2, "give --topic, or --all-topics"),
        (["consume", "t", "-f", "%z"], 2, "%z is not one of"),
        (["consume", "t", "--json", "-f", "%s"], 2, "give one of"),
        (["consume", "t", "-g", "g", "-o", "1"], 2, "do not go with --group"),
        (["start", "--override", "num.partitions=none"], 1, "Invalid value none for configuration num.partitions"),
        (["start", "/nowhere/server.properties"], 1, "No such file or directory"),
        (["config", "--override", "ssl.engine.factory.class=a.B"], 1, "refuses to start rather than ignore it"),
        (["dump-log", "/nowhere"], 2, "does not exist"),
    ],
)
def test_failures_are_one_line(
    arguments: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user would read a traceback, or a script would take a failure for success."""
    assert run(arguments) == status
    captured = capsys.readouterr()
    assert captured.err.startswith("kbroker: ")
    assert captured.err.count("\n") == 1
    assert told in captured.err


@pytest.mark.parametrize("command", [["topics", "list"], ["groups", "list"], ["produce", "t"], ["consume", "t"]])
def test_nobody_listening_is_told_at_once(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong address would look like a slow broker."""
    assert run([*command, "-b", f"127.0.0.1:{free_port()}"]) == 1
    assert "Connection refused" in capsys.readouterr().err


def test_config_shows_values_and_their_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which setting is in force, and why, could not be found out."""
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=4\nnum.partition=3\n")
    assert run(["config", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(captured.out)}
    assert rows["num.partitions"]["value"] == "4"
    assert rows["num.partitions"]["from"] == f"{path} line 1"
    assert rows["num.partitions"]["environment"] == "KBROKER_NUM_PARTITIONS"
    assert rows["log.segment.bytes"]["default"] == "1073741824"
    assert "did you mean num.partitions?" in captured.err


def test_config_hides_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    """A password would end up in a terminal's history or a bug report."""
    run(["config", "--all", "--override", "delegation.token.secret.key=hunter2"])
    captured = capsys.readouterr()
    assert "hunter2" not in captured.out + captured.err


def test_config_tables_name_every_setting_that_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """The table would leave out what the broker acts on."""
    assert run(["config"]) == 0
    out = capsys.readouterr().out
    assert "log.segment.bytes" in out
    assert "remote.log.reader.threads" not in out
    assert run(["config", "--topics"]) == 0
    assert "cleanup.policy" in capsys.readouterr().out


def test_format_binds_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever wants to choose the cluster's id could not, or a second format would bind a directory anew."""
    directories = [tmp_path / "one", tmp_path / "two"]
    override = f"log.dirs={directories[0]},{directories[1]}"
    cluster_id = "pJcPsW9FRNeYyTgcbRKUVw"
    assert run(["format", "--override", override, "-t", cluster_id]) == 0
    for directory in directories:
        assert f"cluster.id={cluster_id}\n" in (directory / "meta.properties").read_text()
    before = (directories[0] / "meta.properties").read_bytes()
    capsys.readouterr()
    assert run(["format", "--override", override]) == 1
    assert "is already formatted" in capsys.readouterr().err
    assert run(["format", "--override", override, "--ignore-formatted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster_id"] == cluster_id
    assert (directories[0] / "meta.properties").read_bytes() == before
    assert run(["format", "--override", override, "-t", "short"]) == 2


def test_format_draws_an_id(capsys: pytest.CaptureFixture[str]) -> None:
    """The list of a cluster's first controllers could not be written without Kafka's tool."""
    assert run(["format", "--random-uuid"]) == 0
    assert len(uuid_from_text(capsys.readouterr().out.strip())) == 16


@pytest.mark.parametrize(
    ("cluster_id", "why"),
    [
        ("abc", "'abc' is too short: it has 3 characters, a base64 id of 16 bytes has 22"),
        ("A" * 25, "is too long"),
        ("A" * 21 + "#", "is not URL-safe base64"),
    ],
)
def test_a_cluster_id_that_is_none_says_why(cluster_id: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Who cut an id while copying it would count bytes behind base64."""
    assert run(["format", "-t", cluster_id]) == 2
    said = capsys.readouterr().err
    assert "--cluster-id: " in said and why in said


def test_a_closed_pipe_is_no_error() -> None:
    """`kbroker config | head` would end in a traceback."""
    shell = f"{sys.executable} -m kbroker.cli config --all --json | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[\n", "")


def text_format(**changes: object) -> LineFormat:
    return LineFormat(json=False, key_separator=None, headers=False, null_marker=None, static_headers=[])._replace(
        **changes
    )


@pytest.mark.parametrize(
    ("line_format", "line", "expected"),
    [
        (text_format(), b"a|b\n", Outgoing(None, b"a|b", [])),
        (text_format(), b"\xff\r\r\n", Outgoing(None, b"\xff\r", [])),
        (text_format(), b"a\r", Outgoing(None, b"a\r", [])),
        (text_format(key_separator=b"|", null_marker=b"NULL"), b"a|NULL\r\n", Outgoing(b"a", None, [])),
        (text_format(key_separator=b"|"), b"a|b|c\n", Outgoing(b"a", b"b|c", [])),
        (text_format(key_separator=b"|", null_marker=b"NULL"), b"a|NULL", Outgoing(b"a", None, [])),
        (text_format(headers=True), b"h=1,i=\tv", Outgoing(None, b"v", [("h", b"1"), ("i", b"")])),
        (text_format(static_headers=[("s", b"t")]), b"v", Outgoing(None, b"v", [("s", b"t")])),
        (text_format(json=True), b'{"key":"k","value":null}', Outgoing(b"k", None, [])),
        (
            text_format(json=True),
            b'{"value":{"a":1},"headers":{"h":"1"},"partition":2,"timestamp":3}',
            Outgoing(None, b'{"a": 1}', [("h", b"1")], 2, 3),
        ),
    ],
)
def test_lines_become_records(line_format: LineFormat, line: bytes, expected: Outgoing) -> None:
    """What was written would not be what was typed."""
    assert list(read_records(io.BytesIO(line), line_format)) == [expected]


@pytest.mark.parametrize(
    ("line_format", "line", "told"),
    [
        (text_format(key_separator=b"|"), b"ok|1\nbad\n", "line 2: no '|' between key and value"),
        (text_format(headers=True), b"bad\n", "line 1: no tab"),
        (text_format(headers=True), b"x\tv\n", "line 1: header 'x' is not name=value"),
        (text_format(json=True), b"[]\n", "line 1: not a JSON object"),
        (text_format(json=True), b'{"vlaue":1}\n', "line 1: unknown field 'vlaue'"),
    ],
)
def test_bad_lines_are_named(line_format: LineFormat, line: bytes, told: str) -> None:
    """The user would search a long input for the line that failed."""
    with pytest.raises(click.ClickException) as caught:
        list(read_records(io.BytesIO(line), line_format))
    assert told in caught.value.format_message()


class Message:
    """A record as the client library hands it out."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 4

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("h", b"1"), ("n", None)]


def test_records_are_written_as_asked() -> None:
    """A script that reads the output would get other fields than it asked for."""
    message = Message(b"k", b"v")
    assert choose_render(None, None, False)(message) == b"v\n"
    assert choose_render(None, "=", False)(message) == b"k=v\n"
    assert compile_template(r"%t/%p@%o %T [%h] %k: %s%%\n\t")(message) == b"t/3@4 5 [h=1,n=] k: v%\n\t"
    record = json.loads(render_json(Message(None, b"\xff")))
    assert record == {
        "topic": "t",
        "partition": 3,
        "offset": 4,
        "timestamp": 5,
        "key": None,
        "value": {"base64": "/w=="},
        "headers": {"h": "1", "n": None},
    }


@pytest.mark.parametrize("status", [0, 1])
def test_what_nobody_reads_any_more_does_not_change_the_status(status: int) -> None:
    """Python ends with status 120 where it cannot flush its streams, as after a terminal was closed."""
    code = (
        "import sys; from kbroker.cli import main\n"
        f"main.run = lambda arguments: (sys.stdout.write('a'), {status})[-1]\n"
        "main.main()"
    )
    read_end, write_end = os.pipe()
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=write_end, stderr=write_end, env=environ)
    os.close(write_end)
    os.close(read_end)
    assert process.wait(120) == status
