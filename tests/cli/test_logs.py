"""`kbroker logs` against a running broker, over Kafka's protocol, and on the files of a stopped one.

Also of `kbroker.cli.storage.log_sources`, `kbroker.cli.storage.logs`, `kbroker.storage.reports.log_description`,
`kbroker.storage.reports.log_pages`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.conftest import StartBroker
from tests.handlers.changes import SET, op, resource
from tests.ports import free_port
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
HOUR_MS = 3_600_000


def kbroker(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbroker.cli", "logs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def load(*arguments: str) -> Any:
    return json.loads(kbroker(*arguments, "--json").stdout)


@pytest.fixture
def broker(kbroker_process: StartBroker) -> BrokerProcess:
    """A broker whose cleaner looks only when it is told to."""
    return kbroker_process({"log.cleaner.backoff.ms": str(HOUR_MS)})


@pytest.fixture
def filled(broker: BrokerProcess) -> Iterator[Session]:
    """A compacted topic of three segments, and one that retention shortens."""
    session = Session(broker.port)
    session.create("table", configs=COMPACTED)
    session.fill("table", *(Batch([(b"k", b"x" * 600_000)]) for _ in range(3)))
    session.create("events", partitions=2, configs={"retention.ms": "-1", "retention.bytes": "5000000"})
    session.fill("events", Batch([(b"k", b"v")], producer_id=7, producer_epoch=1, base_sequence=0))
    yield session
    session.close()


def test_a_running_broker_lists_its_logs(broker: BrokerProcess, filled: Session) -> None:
    """Nobody could see which partition fills the disk, or which waits for compaction."""
    metrics = ("--metrics", broker.metrics_url)
    value = load("list", *metrics)
    rows = {(row["topic"], row["partition"]): row for row in value["partitions"]}
    assert list(rows) == [("events", 0), ("events", 1), ("table", 0)]
    table = rows["table", 0]
    on_disk = sum(path.stat().st_size for path in (broker.data_dir / "table-0").glob("*.log"))
    assert table["size_bytes"] == on_disk
    assert (table["segment_count"], table["log_start_offset"], table["log_end_offset"]) == (3, 0, 3)
    assert (table["high_watermark"], table["cleanup_policy"], table["dirty_ratio"]) == (3, "compact", 1.0)
    assert (rows["events", 0]["dirty_ratio"], rows["events", 0]["cleanup_policy"]) == (None, "delete")
    assert (table["state"], table["directory"]) == ("ok", str(broker.data_dir))
    (directory,) = value["directories"]
    assert (directory["path"], directory["state"]) == (str(broker.data_dir), "online")
    assert directory["free_bytes"] > 0
    largest = kbroker("list", *metrics, "--sort", "size").stdout.splitlines()[2].split()
    assert largest[:5] == ["table", "0", "1.7", "MiB", "3"]
    assert [row["topic"] for row in load("list", "events", *metrics)["partitions"]] == ["events", "events"]
    assert "no partition here of nope" in kbroker("list", "nope", *metrics, status=1).stderr


def test_a_log_is_described(broker: BrokerProcess, filled: Session) -> None:
    """A question about a log would need a look at its files, with the broker stopped."""
    metrics = ("--metrics", broker.metrics_url)
    (table,) = load("describe", "table", *metrics)
    assert [segment["base_offset"] for segment in table["segments"]] == [0, 1, 2]
    assert [segment["state"] for segment in table["segments"]] == ["dirty", "dirty", "active"]
    assert table["compaction"]["first_uncleanable_offset"] == 2
    assert table["checkpoints"]["cleaner_offset"] is None
    assert table["leader_epochs"] == [{"epoch": 0, "start_offset": 0}]
    assert table["path"] == str(broker.data_dir / "table-0")
    assert [each["partition"] for each in load("describe", "events", *metrics)] == [0, 1]
    (events,) = load("describe", "events", "0", *metrics)
    assert events["producers"]["count"] == 1
    (producer,) = events["producers"]["shown"]
    assert (producer["producer_id"], producer["producer_epoch"], producer["last_sequence"]) == (7, 1, 0)
    shown = kbroker("describe", "events", "0", *metrics).stdout
    assert f"id {events['topic_id']}" in shown
    assert "producers       1 remembered" in shown


def test_what_becomes_of_a_log_is_said_in_words(broker: BrokerProcess, filled: Session) -> None:
    """Why is my topic not compacted?  Why are old records still there?  Nobody could tell."""
    metrics = ("--metrics", broker.metrics_url)
    said = kbroker("explain", "table", "0", *metrics).stdout
    assert "Due, as enough of it is dirty: compacted within 1 h" in said
    assert "cleanup.policy has no delete" in said
    assert "retention.ms is -1" in kbroker("explain", "events", "0", *metrics).stdout
    assert load("explain", "events", "1", *metrics)["retention"] == ["The log is empty: there is nothing to delete."]
    more = resource("table", op("min.cleanable.dirty.ratio", SET, "1.0"))
    assert filled.quietly("IncrementalAlterConfigs", 1, resources=[more]).responses[0].error_code == 0
    assert (
        "Not due: compaction begins when more than 100% is dirty" in kbroker("explain", "table", "0", *metrics).stdout
    )


def test_a_log_that_fails_to_be_compacted_says_so(kbroker_process: StartBroker) -> None:
    """A topic that is never compacted for a fault would look like one that waits for its turn."""
    broker = kbroker_process({"log.cleaner.backoff.ms": "100"})
    metrics = ("--metrics", broker.metrics_url)
    with closing(Session(broker.port)) as session:
        # Nothing is compacted before all is there, damage included.
        session.create("broken", configs={**COMPACTED, "cleanup.policy": "delete", "retention.ms": "-1"})
        session.fill("broken", *(Batch([(b"k", b"x" * 600_000)]) for _ in range(2)))
        segment = broker.data_dir / "broken-0" / f"{0:020d}.log"
        data = bytearray(segment.read_bytes())
        data[300_000] ^= 1
        segment.write_bytes(data)
        session.fill("broken", Batch([(b"k", b"x" * 600_000)]))
        compacts = resource("broken", op("cleanup.policy", SET, "compact"))
        assert session.quietly("IncrementalAlterConfigs", 1, resources=[compacts]).responses[0].error_code == 0
        wait_for(lambda: "fails" in load("list", *metrics)["partitions"][0]["state"], "a failure")
    (value,) = load("describe", "broken", "0", *metrics)
    assert value["compaction"]["failure"]["attempts"] >= 1
    assert "Compaction fails since" in kbroker("explain", "broken", "0", *metrics).stdout
    with urllib.request.urlopen(f"{broker.metrics_url}/metrics", timeout=10) as answer:
        assert b'kbroker_partition_clean_failures{partition="0",topic="broken"}' in answer.read()


def test_errors_say_what_to_do(broker: BrokerProcess, filled: Session) -> None:
    """A mistyped name or a wrong address would end in a page of Python."""
    metrics = ("--metrics", broker.metrics_url)
    assert "there is no topic nope" in kbroker("explain", "nope", "0", *metrics, status=1).stderr
    assert "events has no partition 9 on this broker, which has 0 to 1" in (
        kbroker("describe", "events", "9", *metrics, status=1).stderr
    )
    nobody = f"http://127.0.0.1:{free_port()}"
    said = kbroker("list", "--metrics", nobody, status=1).stderr
    assert "cannot reach a metrics listener" in said and "--directory" in said and len(said.splitlines()) == 1
    assert "must be http(s)://host:port" in kbroker("list", "--metrics", "ftp://x", status=2).stderr
    both = kbroker("list", *metrics, "-b", broker.bootstrap, status=2).stderr
    assert "exclude each other" in both
    said = kbroker("list", "-b", f"127.0.0.1:{free_port()}", status=1).stderr
    assert len(said.splitlines()) == 1
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{broker.metrics_url}/logs/a/b/c", timeout=10)
    with closing(refused.value) as error:
        assert error.code == 404 and json.loads(error.read())["error"].startswith("there are /logs")


def test_any_kafka_lists_sizes_over_the_protocol(broker: BrokerProcess, filled: Session) -> None:
    """Without the metrics listener, or with another Kafka, nobody could see the sizes."""
    value = load("list", "-b", broker.bootstrap)
    sizes = {(row["topic"], row["partition"]): row["size_bytes"] for row in value["partitions"]}
    listed = load("list", "--metrics", broker.metrics_url)["partitions"]
    assert sizes == {(row["topic"], row["partition"]): row["size_bytes"] for row in listed}
    assert value["partitions"][0]["log_end_offset"] is None
    assert value["directories"][0]["path"] == str(broker.data_dir)


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(directory.rglob("*"))}


def test_the_files_of_a_stopped_broker_are_read_and_not_changed(broker: BrokerProcess, filled: Session) -> None:
    """After a crash nobody could look before the next start changes everything; or the look itself would."""
    directory = ("--directory", str(broker.data_dir))
    assert "a broker is running on" in kbroker("list", *directory, status=1).stderr
    live = load("list", "--metrics", broker.metrics_url)["partitions"]
    broker.stop()
    before = contents(broker.data_dir)
    rows = load("list", *directory)["partitions"]
    same = ("topic", "partition", "size_bytes", "segment_count", "log_start_offset", "high_watermark", "log_end_offset")
    assert [[row[key] for key in same] for row in rows] == [[row[key] for key in same] for row in live]
    (table,) = load("describe", "table", *directory)
    assert [segment["base_offset"] for segment in table["segments"]] == [0, 1, 2]
    assert "no nope in" in kbroker("describe", "nope", *directory, status=1).stderr
    assert contents(broker.data_dir) == before
    broker.start()
    broker.kill()
    crashed = load("list", *directory)
    assert {row["log_end_offset"] for row in crashed["partitions"]} == {None}
    assert crashed["directories"][0]["state"] == "not stopped in order"
    assert "is no log directory" in kbroker("list", "--directory", "/proc", status=1).stderr
