"""What the tools say to a wrong address, and to a topic that there is not.

Also of `kbroker.nearest`, `kbroker.patterns`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kbroker.cli.main import run
from tests.broker.client import Client
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.ports import free_port

CLIENTS = (
    ("topics", "list"),
    ("groups", "list"),
    ("settings", "show", "log.dirs"),
    ("logs", "list"),
    ("transactions", "open"),
    ("consume", "orders", "--exit-at-end"),
    ("produce", "orders"),
)


@pytest.fixture(scope="module")
def broker(module_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    with Client(module_broker.port) as client:
        client.create("orders")
    yield module_broker


def refused(*arguments: str) -> str:
    """The one line that a command ends with."""
    command = [sys.executable, "-m", "kbroker.cli", *arguments]
    done = subprocess.run(command, input="x\n", capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stderr.startswith("kbroker: ") and done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("arguments", CLIENTS, ids=lambda each: each[0])
def test_the_port_of_the_metrics_is_told_from_that_of_clients(
    arguments: tuple[str, ...], broker: BrokerProcess
) -> None:
    """Who takes the one port that is printed for the other would read `Broker transport failure`, or wait."""
    said = refused(*arguments, "-b", f"127.0.0.1:{broker.metrics_port}")
    assert "speaks HTTP, not Kafka's protocol: is it the broker's metrics.listener" in said


@pytest.mark.parametrize("arguments", CLIENTS, ids=lambda each: each[0])
@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_there_cannot_be_is_refused(
    arguments: tuple[str, ...], port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system counts such a port modulo 65536, and the command would speak to somebody else."""
    assert run([*arguments, "-b", f"127.0.0.1:{port}"]) == 2
    said = capsys.readouterr().err
    assert f"'127.0.0.1:{port}' in --bootstrap-server is not host:port: a port is 1 to 65535" in said


@pytest.mark.parametrize("address", ["127.0.0.1:0", "http://127.0.0.1:99999", "127.0.0.1:port", "ftp://a:1"])
def test_an_address_that_no_metrics_listener_can_have_is_refused(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback, or another server's answer, would be shown."""
    assert run(["logs", "list", "--metrics", address]) == 2
    assert "must be http(s)://host:port" in capsys.readouterr().err


def test_the_port_of_clients_is_told_from_that_of_the_metrics(broker: BrokerProcess) -> None:
    """The other way round."""
    assert "cannot reach a metrics listener at" in refused("logs", "list", "-m", broker.bootstrap)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "describe", "oders"),
        ("topics", "alter", "oders", "-c", "retention.ms=1"),
        ("topics", "delete", "oders"),
        ("consume", "oders", "--exit-at-end"),
        ("consume", "oders", "--exit-at-end", "--group", "g"),
        ("groups", "reset-offsets", "g", "--topic", "oders", "--to-earliest"),
        ("transactions", "open", "oders"),
        ("logs", "list", "oders"),
        ("logs", "describe", "oders"),
        ("logs", "explain", "oders", "0"),
    ],
    ids=" ".join,
)
def test_the_topic_that_may_have_been_meant_is_named(arguments: tuple[str, ...], broker: BrokerProcess) -> None:
    """Who mistypes a name would look for the fault in the broker."""
    where = ("-m", broker.metrics_url) if arguments[0] == "logs" else ("-b", broker.bootstrap)
    assert "; did you mean orders?" in refused(*arguments, *where)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("groups", "describe", "reders"), "readers"),
        (("groups", "delete", "reders"), "readers"),
        (("groups", "reset-offsets", "reders", "--all-topics", "--to-earliest"), "readers"),
        (("settings", "set", "num.io.thread=3"), "num.io.threads"),
        (("settings", "show", "num.io.thread"), "num.io.threads"),
        (("settings", "show", "--topic", "oders"), "orders"),
        (("settings", "show", "--topic", "orders", "retention.mss"), "retention.ms"),
        (("topics", "create", "new", "-c", "retention.mss=1"), "retention.ms"),
        (("topics", "alter", "orders", "-c", "retention.mss=1"), "retention.ms"),
        (("quotas", "set", "producr_byte_rate=1", "--user", "u"), "producer_byte_rate"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_the_group_or_setting_that_may_have_been_meant_is_named(
    arguments: tuple[str, ...], meant: str, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same for groups, settings and quotas."""
    with Client(broker.port) as client:
        row = {"partition_index": 0, "committed_offset": 0}
        commit = {"group_id": "readers", "topics": [{"name": "orders", "partitions": [row]}]}
        client.ask("OffsetCommit", 8, {"generation_id_or_member_epoch": -1, "member_id": "", **commit})
    assert run([*arguments, "-b", broker.bootstrap]) == 1
    assert f"; did you mean {meant}?" in capsys.readouterr().err


def test_a_command_that_may_have_been_meant_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The reader would look it up."""
    assert run(["topcis"]) == 2
    assert "No such command 'topcis'; did you mean topics?" in capsys.readouterr().err


def test_an_address_that_clients_do_not_reach_is_named_at_once(
    kbroker_process: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong advertised.listeners would end in `Local: Timed out`, which says nothing of it."""
    gone = f"127.0.0.1:{free_port()}"
    broker = kbroker_process({"advertised.listeners": f"PLAINTEXT://{gone}"})
    for arguments in (("topics", "list"), ("settings", "show"), ("consume", "orders")):
        assert run([*arguments, "-b", broker.bootstrap]) == 1
        said = capsys.readouterr().err
        assert f"gives clients {gone} (Connection refused) to go on with" in said and "advertised.listeners" in said
