"""`__transaction_state` carried between brokers: what Kafka wrote is coordinated here, and Kafka reads what is written
here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.compat.admin import Admin
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.interchange import consume, transact
from tests.compat.real_kafka import KafkaProcess
from tests.compat.tooling import run_java

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NAMES = ("committed", "aborted", "open", "begun")


def write(broker: BrokerProcess) -> tuple[str, list[Producer]]:
    """Transactional ids in several states; the topic that they wrote to, and producers that keep theirs open."""
    topic = Admin(broker.bootstrap).create_topic("written", 1, {})
    transact(broker.bootstrap, topic, "committed", commit=True)
    transact(broker.bootstrap, topic, "aborted", commit=False)
    kept = [transact(broker.bootstrap, topic, "open", commit=True, end=False)]
    begun = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "begun"})
    begun.init_transactions(30)
    return topic, [*kept, begun]


def described(bootstrap: str) -> dict[str, Any]:
    """What DescribeTransactions says of each id."""
    command = [sys.executable, "-m", "kbroker.cli", "transactions", "describe", *NAMES, "--json", "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {row.pop("transactional_id"): {**row, "coordinator": None} for row in json.loads(done.stdout)}


@pytest.mark.timeout(300)
def test_a_directory_of_kafka_is_coordinated_here(tmp_path: Path) -> None:
    """Who moves from Kafka would lose transactional ids and their epochs, and open transactions would hang."""
    kafka = KafkaProcess(tmp_path / "kafka")
    kafka.start()
    try:
        topic, kept = write(kafka)
        before = described(kafka.bootstrap)
        assert {name: row["state"] for name, row in before.items()} == {
            "committed": "CompleteCommit",
            "aborted": "CompleteAbort",
            "open": "Ongoing",
            "begun": "Empty",
        }
    finally:
        kafka.stop()
    del kept
    broker = KbrokerProcess(tmp_path / "kbroker")
    shutil.copytree(kafka.data, broker.data)
    rebuild = ["metadata", "rebuild", "--override", f"log.dirs={broker.data}"]
    subprocess.run([sys.executable, "-m", "kbroker.cli", *rebuild], capture_output=True, timeout=60, check=True)
    broker.start()
    try:
        assert described(broker.bootstrap) == before
        assert len(consume(broker.bootstrap, topic, "read_committed")) == 20
        # A successor aborts what was left open, with a higher epoch than any that Kafka gave out.
        transact(broker.bootstrap, topic, "open", commit=True)
        after = described(broker.bootstrap)["open"]
        assert after["producer_id"] == before["open"]["producer_id"]
        assert after["producer_epoch"] > before["open"]["producer_epoch"]
        assert len(consume(broker.bootstrap, topic, "read_committed")) == 40
    finally:
        broker.stop()


@pytest.mark.timeout(300)
def test_kafkas_tool_reads_the_state_that_is_written_here(tmp_path: Path) -> None:
    """Who goes back to Kafka would take a transaction state along that it cannot load."""
    broker = KbrokerProcess(tmp_path)
    broker.start()
    try:
        _topic, kept = write(broker)
    finally:
        broker.stop()
    del kept
    found: dict[str, str] = {}
    for file in sorted(broker.data.glob("__transaction_state-*/*.log")):
        if file.stat().st_size:
            arguments = ("--files", str(file), "--transaction-log-decoder")
            done = run_java("org.apache.kafka.tools.DumpLogSegments", *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            for line in done.stdout.splitlines():
                for name in NAMES:
                    if f'"transactionalId":"{name}"' in line or f"transactional_id={name}" in line:
                        found[name] = line
    assert set(found) == set(NAMES), found
