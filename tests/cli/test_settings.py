"""`kbroker settings` against a running broker."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.broker_process import BrokerProcess
from tests.ports import free_port


def kbroker(broker: BrokerProcess | None, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    bootstrap = broker.bootstrap if broker is not None else f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "kbroker.cli", "settings", *arguments, "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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
        (("set", "num.io.threads=9"), "kbroker does not act on these settings"),
        (("set", "cordoned.log.dirs=/x"), "broker id must be specified"),
        (("set", "log.retention.ms=1", "--broker", "7"), "Unexpected broker id, expected 1"),
        (("show", "no.such"), "the broker has no setting no.such"),
    ):
        said = kbroker(broker, *arguments, status=1).stderr
        assert reason in said and len(said.splitlines()) == 1
    assert "must be key=value" in kbroker(broker, "set", "log.dirs", status=2).stderr
    assert "cannot connect" in kbroker(None, "show", status=1).stderr
