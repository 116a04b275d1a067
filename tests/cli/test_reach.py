"""What commands say of a cluster that they cannot reach or log in to.  Also of `kbroker.cli.reach`."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from kbroker.cli.main import cli, run
from tests.gate.guarded_broker import GuardedBroker
from tests.ports import free_port

FIRST = 'SCRAM-SHA-512=[name=root,password="pw-of-root"]'
COMMANDS = (
    ("topics", "list"),
    ("groups", "list"),
    ("users", "list"),
    ("acls", "list"),
    ("cluster", "status"),
    ("quotas", "list"),
    ("transactions", "list"),
    ("consume", "orders", "--exit-at-end"),
    ("produce", "orders"),
)
SCRAM = ("security.protocol=sasl_plaintext", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=root")
PLAIN = ("security.protocol=sasl_plaintext", "sasl.mechanism=PLAIN", "sasl.username=root", "sasl.password=pw-of-root")
WITHOUT_SETTINGS = {"load to-parquet", "load to-iceberg", "load to-topic"}
"""Spark's readers and writers take the names of Kafka's Java clients, by --option."""


@pytest.fixture(scope="module", name="ports")
def _ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Of a listener with SASL, one without, and one where nothing listens."""
    folder = tmp_path_factory.mktemp("reach")
    ports = {"secure": free_port(), "plain": free_port()}
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports['plain']},SECURE://127.0.0.1:{ports['secure']}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    assert run(["format", "--override", f"log.dirs={folder}", "--add-scram", FIRST]) == 0
    broker = GuardedBroker(folder, settings)
    broker.start()
    yield {**ports, "none": free_port()}
    broker.stop()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("listener", "settings", "words"),
    [
        ("secure", (*SCRAM, "sasl.password=wrong"), ("does not let this client in",)),
        ("secure", PLAIN, ("does not let this client in", "PLAIN", "SCRAM-SHA-512")),
        ("plain", ("security.protocol=ssl",), ("TLS cannot be agreed upon",)),
        ("none", (), ("Connection refused",)),
    ],
    ids=["password", "mechanism", "tls", "nothing"],
)
def test_a_mistake_is_said_by_every_command(
    ports: dict[str, int],
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    listener: str,
    settings: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    """The commands on librdkafka retried until their time was up, and reported a transport failure."""
    address = f"127.0.0.1:{ports[listener]}"
    given = [word for each in settings for word in ("-X", each)]
    assert run([*command, "-b", address, *given]) == 1
    said = capsys.readouterr().err
    assert address in said
    for word in words:
        assert word in said


def test_the_right_password_lets_every_kind_of_command_in(
    ports: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """What refuses all would pass the other tests; `users` did not take -X at all."""
    given = [word for each in (*SCRAM, "sasl.password=pw-of-root") for word in ("-X", each)]
    assert run(["users", "list", "-b", f"127.0.0.1:{ports['secure']}", *given]) == 0
    assert "root" in capsys.readouterr().out


def _all(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _all(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def test_every_command_with_an_address_takes_the_settings_of_its_client() -> None:
    """27 had no -X, so that what one command could reach was out of reach for the next."""
    assert isinstance(cli, click.Group)
    found = {name: {each for one in command.params for each in one.opts} for name, command in _all(cli)}
    reaching = {name: options for name, options in found.items() if "--profile" in options}
    assert len(reaching) > 40
    lacking = {name for name, options in reaching.items() if "-b" in options and "-X" not in options}
    assert lacking == WITHOUT_SETTINGS
