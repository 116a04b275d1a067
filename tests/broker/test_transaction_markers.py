"""Transactions that nobody ends, and the markers that end them.

Also of `kbroker.handlers.transactions.transaction_markers`, `kbroker.storage.log.markers`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest

from kbroker.coordinator.classic.offsets import CommittedOffset
from kbroker.coordinator.classic.state_records import offset_key, offset_value
from tests.broker.client import Batch, Client, until_waiting
from tests.broker.open_transactions import PRODUCER_ID, end_transactions, leave_open
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

READ_COMMITTED = 1


def broker_with_open_transaction(start: StartBroker, settings: dict[str, str]) -> BrokerProcess:
    """`t` has a record at 0, an open transaction at 1 and 2, a record at 3, and a transaction from 4 to 4."""
    broker = start(settings)
    with Client(broker.port) as client:
        client.create("t")
        client.write("t", Batch([(b"k", b"before")]))
    broker.stop()
    leave_open(broker, "t-0", 1, [(b"k", b"open")] * 2, PRODUCER_ID)
    leave_open_again(broker)
    broker.start()
    with Client(broker.port) as client:
        client.write("t", Batch([(b"k", b"after")]))
    return broker


def leave_open_again(broker: BrokerProcess) -> None:
    (broker.data_dir / ".kafka_cleanshutdown").touch()
    leave_open(broker, "t-0", 3, [(b"k", b"also open")], PRODUCER_ID + 1)


def committed_end(client: Client) -> int:
    """Where read_committed consumers stand still."""
    rows = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    asked = {"replica_id": -1, "isolation_level": READ_COMMITTED, "topics": [{"name": "t", "partitions": rows}]}
    return int(client.ask("ListOffsets", 7, asked).topics[0].partitions[0].offset)


def kbroker(broker: BrokerProcess, *arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "kbroker.cli", "transactions", *arguments, "-b", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def committed_values(broker: BrokerProcess) -> list[bytes]:
    """What a read_committed consumer gets."""
    command = [sys.executable, "-m", "kbroker.cli", "consume", "t", "--from-beginning", "--exit-at-end"]
    command += ["--isolation", "read_committed", "-b", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("fsync", ["os", "commit"])
def test_an_aborted_transaction_lets_committed_readers_go_on(fsync: str, kbroker_process: StartBroker) -> None:
    """A partition that was carried with an open transaction would block its read_committed consumers for good."""
    broker = broker_with_open_transaction(kbroker_process, {"kbroker.fsync": fsync})
    assert committed_values(broker) == [b"before"]
    rows = json.loads(kbroker(broker, "open", "--json"))
    assert [(row["start_offset"], row["producer_id"]) for row in rows] == [(1, PRODUCER_ID), (3, PRODUCER_ID + 1)]
    assert "aborted: t-0, offset 1" in kbroker(broker, "abort-hanging", "t", "0", "--start-offset", "1")
    with Client(broker.port) as client:
        assert committed_end(client) == 3
    assert "offset 3" in kbroker(broker, "abort-hanging", "t", "0", "--start-offset", "2", status=1)
    assert "aborted: t-0, offset 3" in kbroker(broker, "abort-hanging", "t", "--all")
    assert json.loads(kbroker(broker, "open", "t", "--json")) == []
    assert committed_values(broker) == [b"before", b"after"]
    for kill in (False, True):
        broker.restart(kill=kill)
        assert committed_values(broker) == [b"before", b"after"]


def test_a_waiting_committed_reader_is_answered_by_the_marker(kbroker_process: StartBroker) -> None:
    """A consumer that waits at the open transaction would see what follows only after its time is up."""
    broker = broker_with_open_transaction(kbroker_process, {})
    answers: list[Any] = []
    with Client(broker.port) as reader, Client(broker.port) as client:
        assert end_transactions(client, "t", PRODUCER_ID + 1) == 0
        place = {"isolation_level": READ_COMMITTED}
        waiting = threading.Thread(target=lambda: answers.append(reader.fetch("t", offset=1, wait_ms=60_000, **place)))
        waiting.start()
        until_waiting(broker.metrics_url)
        assert end_transactions(client, "t", PRODUCER_ID) == 0
        waiting.join(60)
    (answer,) = answers
    assert len(answer.records) > 0
    aborted = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions}
    assert aborted == {(PRODUCER_ID, 1), (PRODUCER_ID + 1, 3)}


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_an_ended_transaction_are_decided(commit: bool, kbroker_process: StartBroker) -> None:
    """A group whose last commit was in a carried transaction would answer UNSTABLE_OFFSET_COMMIT for good."""
    broker = kbroker_process({"offsets.topic.num.partitions": "1"})
    stored = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}

    def fetched(client: Client) -> tuple[int, int]:
        topics = [{"name": "t", "partition_indexes": [0]}]
        asked = {"groups": [{"group_id": "g", "topics": topics}], "require_stable": True}
        row = client.ask("OffsetFetch", 8, asked).groups[0].topics[0].partitions[0]
        return row.error_code, row.committed_offset

    with Client(broker.port) as client:
        client.create("t")
        rows = [{"partition_index": 0, "committed_offset": 5}]
        assert client.ask("FindCoordinator", 3, {"key": "g", "key_type": 0}).error_code == 0
        client.ask("OffsetCommit", 8, {**stored, "topics": [{"name": "t", "partitions": rows}]})
        end = client.offset("__consumer_offsets")
    broker.stop()
    record = (offset_key("g", "t", 0), offset_value(CommittedOffset(9)))
    leave_open(broker, "__consumer_offsets-0", end, [record], PRODUCER_ID)
    broker.start()
    unstable = 88
    with Client(broker.port) as client:
        assert fetched(client)[0] == unstable
        assert end_transactions(client, "__consumer_offsets", PRODUCER_ID, commit=commit) == 0
        assert fetched(client) == (0, 9 if commit else 5)
    broker.restart()
    with Client(broker.port) as client:
        assert fetched(client) == (0, 9 if commit else 5)
