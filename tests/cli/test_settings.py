"""`kbroker settings` against a running broker.

Also of `kbroker.cli.topics.settings`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.cli.main import run
from tests.broker.client import Client
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.ports import free_port


def kbroker(broker: BrokerProcess | None, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    bootstrap = broker.bootstrap if broker is not None else f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "kbroker.cli", "settings", *arguments, "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def shown(broker: BrokerProcess, name: str) -> tuple[str, str]:
    (row,) = json.loads(kbroker(broker, "show", name, "--json").stdout)
    return row["value"], row["source"]


def test_settings_are_changed_while_the_broker_runs(broker: BrokerProcess) -> None:
    """Without Java's tools nobody could change a running broker."""
    assert shown(broker, "log.cleaner.threads") == ("1", "default")
    said = kbroker(broker, "set", "log.cleaner.threads=2", "log.retention.ms=7200000").stdout
    assert "log.cleaner.threads=2: set for all brokers" in said
    kbroker(broker, "set", "log.retention.ms=3600000", "--broker", "1")
    assert shown(broker, "log.cleaner.threads") == ("2", "all brokers")
    assert shown(broker, "log.retention.ms") == ("3600000", "this broker")
    kbroker(broker, "set", "log.cleaner.threads=4", "--validate-only")
    assert shown(broker, "log.cleaner.threads") == ("2", "all brokers")
    changed = kbroker(broker, "show", "--changed").stdout
    assert "log.retention.ms" in changed and "log.roll.ms" not in changed
    kbroker(broker, "unset", "log.retention.ms", "--broker", "1")
    kbroker(broker, "unset", "log.cleaner.threads", "log.retention.ms")
    assert shown(broker, "log.cleaner.threads") == ("1", "default")


def test_a_refusal_is_one_line_with_the_reason(broker: BrokerProcess) -> None:
    """A change that was not made would look like one that was."""
    for arguments, reason in (
        (("set", "log.cleaner.threads=9"), "cannot be increased to more than double the current value 1"),
        (("set", "log.dirs=/x"), "Cannot update these configs dynamically: [log.dirs]"),
        (
            ("set", "metric.reporters=9"),
            "metric.reporters asks for what kbroker cannot do: it names a Java class that is none of Kafka",
        ),
        (("set", "cordoned.log.dirs=/x"), "broker id must be specified"),
        (("set", "log.retention.ms=1", "--broker", "7"), "Unexpected broker id, expected 1"),
        (("show", "no.such"), "the broker has no setting no.such"),
    ):
        said = kbroker(broker, *arguments, status=1).stderr
        assert reason in said and len(said.splitlines()) == 1
    assert "must be key=value" in kbroker(broker, "set", "log.dirs", status=2).stderr
    assert "cannot connect" in kbroker(None, "show", status=1).stderr


class BrokerWithFile(BrokerProcess):
    """A broker with a file of settings."""

    @property
    def file(self) -> Path:
        return self.directory / "my server.properties"

    def command(self) -> list[str]:
        return [*super().command(), str(self.file)]


@pytest.fixture
def broker_with_file(tmp_path: Path) -> Iterator[BrokerWithFile]:
    broker = BrokerWithFile(tmp_path, {"log.roll.hours": "7"}, environ={"KBROKER_LOG_RETENTION_HOURS": "24"})
    broker.file.write_text("# comment\nnum.partitions=3\nlog.roll.hours=5\nlog.cleaner.threads=2\n")
    broker.start()
    yield broker
    broker.kill()


def test_what_was_set_at_start_names_its_origin(broker_with_file: BrokerWithFile) -> None:
    """Who looks for a setting that --override set would look in vain in server.properties."""
    broker, file = broker_with_file, broker_with_file.file
    rows = {row["name"]: row for row in json.loads(kbroker(broker, "show", "--json").stdout)}
    origins = {
        "num.partitions": f"{file} line 2",
        "log.roll.hours": "--override",
        "log.retention.hours": "environment KBROKER_LOG_RETENTION_HOURS",
        "log.cleaner.threads": f"{file} line 4",
        "log.dirs": "--override",
        "log.segment.bytes": None,
    }
    assert {name: rows[name]["origin"] for name in origins} == origins
    assert rows["num.partitions"]["source"] == "set at start" and rows["log.segment.bytes"]["source"] == "default"
    kbroker(broker, "set", "log.cleaner.threads=3")
    changed = kbroker(broker, "show", "--changed").stdout
    lines = {line.split()[0]: line for line in changed.splitlines() if line.strip()}
    assert lines["log.roll.hours"].split()[1:] == ["7", "--override"]
    assert lines["num.partitions"].endswith(f"{file} line 2")
    assert lines["log.cleaner.threads"].endswith("all brokers")


def test_a_setting_that_may_have_been_meant_is_named(broker: BrokerProcess) -> None:
    """Who mistypes a name would take the setting for one that kbroker does not have."""
    said = kbroker(broker, "show", "log.retention.our", status=1).stderr
    assert "the broker has no setting log.retention.our; did you mean log.retention.hours?" in said


def test_a_topics_settings_say_where_they_come_from(
    kbroker_process: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why a topic keeps its records for a day would be searched for in every place but the right one."""
    broker = kbroker_process({"log.retention.hours": "24"}, environ={"KBROKER_LOG_SEGMENT_BYTES": "1048576"})
    with Client(broker.port) as client:
        client.create("orders", configs={"cleanup.policy": "compact"})
    assert run(["settings", "set", "message.max.bytes=2000000", "-b", broker.bootstrap]) == 0
    capsys.readouterr()
    assert run(["settings", "show", "--topic", "orders", "--json", "-b", broker.bootstrap]) == 0
    rows = {row["name"]: row["origin"] or row["source"] for row in json.loads(capsys.readouterr().out)}
    assert rows["cleanup.policy"] == "topic"
    assert rows["max.message.bytes"] == "all brokers"
    assert rows["segment.bytes"] == "log.segment.bytes: environment KBROKER_LOG_SEGMENT_BYTES"
    assert rows["retention.ms"].startswith("log.retention.hours: ")
    assert rows["segment.ms"] == "default"
