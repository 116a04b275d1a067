"""Programs that look at a broker before they work with it, where nothing of security is set."""

from __future__ import annotations

import subprocess

import pytest

from tests.broker_process import BrokerProcess
from tests.compat.java_tools import TOOLS
from tests.compat.tooling import go_clients, run_java

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]


@pytest.mark.slow
def test_who_tells_a_release_by_its_apis_takes_it_for_kafka_4_3(broker: BrokerProcess) -> None:
    """kcl and kminion, which ask franz-go, would show an older release, and leave out what that has not."""
    done = subprocess.run(
        [str(go_clients()), "version", broker.bootstrap], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("v4.3\n", 0), done.stderr


def test_kafka_acls_is_told_that_there_is_no_authorizer(broker: BrokerProcess) -> None:
    """As Kafka says it; a time-out would look like a broken broker."""
    address = ("--bootstrap-server", broker.bootstrap)
    for words in (("--list",), ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")):
        done = run_java(f"{TOOLS}.AclCommand", *address, *words)
        assert done.returncode == 1
        assert "SecurityDisabledException: No Authorizer is configured on the broker" in done.stdout + done.stderr


def test_kafka_configs_shows_and_changes_a_user(broker: BrokerProcess) -> None:
    """Users and their quotas are kept before security is turned on."""
    user = ("--bootstrap-server", broker.bootstrap, "--entity-type", "users", "--entity-name", "alice")
    tool = "kafka.admin.ConfigCommand"
    for setting in ("SCRAM-SHA-256=[password=in-wonderland]", "producer_byte_rate=1000"):
        done = run_java(tool, *user, "--alter", "--add-config", setting)
        assert done.returncode == 0, done.stderr
    shown = run_java(tool, *user, "--describe").stdout
    assert "SCRAM-SHA-256=iterations=4096" in shown and "producer_byte_rate=1000.0" in shown
