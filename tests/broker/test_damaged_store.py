"""A broker whose metadata store has lost its end: it says so, and does not set most of its partitions aside unasked.

Also of `kbroker.startup.strays_at_start`, `kbroker.metadata.deleted_topics`, `kbroker.cli.checks.store_checks`.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbroker.metadata.image import MetadataDelta
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from tests.broker.client import Batch, Client
from tests.broker_process import BrokerError, BrokerProcess
from tests.conftest import StartBroker
from tests.metadata.wal_files import commits, flipped, frame_at
from tests.workers.processes import Workers

TOPICS = tuple(f"topic-{number}" for number in range(10))


class AcceptingBroker(BrokerProcess):
    """`kbroker start --accept-strays`."""

    def command(self) -> list[str]:
        return [*super().command(), "--accept-strays"]


def wal_of(broker: BrokerProcess) -> Path:
    return broker.data_dir / f"{FILE_NAME}-wal"


def filled(broker: BrokerProcess) -> list[int]:
    """Topics with a record each, of a broker that was killed then; the last frames of their creations in the WAL."""
    ends = []
    with Client(broker.port) as client:
        for name in TOPICS:
            client.create(name)
            ends.append(commits(wal_of(broker).read_bytes())[-1])
            client.write(name, Batch([(b"k", name.encode())]))
    broker.kill()
    return ends


def flip(broker: BrokerProcess, frame: int) -> None:
    """One bit of a page in the WAL."""
    wal_of(broker).write_bytes(flipped(wal_of(broker).read_bytes(), frame_at(frame, "page")))


def refusal(broker: BrokerProcess) -> str:
    """The line with which a start ends."""
    with pytest.raises(BrokerError) as caught:
        broker.start()
    return next(line for line in str(caught.value).splitlines() if "cannot start" in line)


def readyz(broker: BrokerProcess) -> str:
    """The body, of an answer with 200."""
    with urllib.request.urlopen(f"{broker.metrics_url.removesuffix('/metrics')}/readyz", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def directories(broker: BrokerProcess) -> list[str]:
    return sorted(each.name for each in broker.data_dir.iterdir() if each.is_dir())


def topics(broker: BrokerProcess) -> dict[str, bytes]:
    """The topics that there are, with the value of the record in each."""
    with Client(broker.port) as client:
        rows = client.ask("Metadata", 12, {"topics": None}).topics
        return {row.name: bytes(client.fetch(row.name, offset=0).records or b"") for row in rows}


def doctor(broker: BrokerProcess) -> tuple[int, dict[str, Any]]:
    """The exit status, and what is found of the metadata store."""
    given = {"log.dirs": str(broker.data_dir), "listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": "none"}
    options = [text for key, value in given.items() for text in ("--override", f"{key}={value}")]
    command = [sys.executable, "-m", "kbroker.cli", "doctor", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, next(each for each in json.loads(done.stdout) if each["subject"] == "metadata store")


def test_a_store_that_lost_most_topics_asks_before_it_sets_them_aside(
    kbroker_process: StartBroker, tmp_path: Path
) -> None:
    """One flipped bit would take ten topics from clients, and the broker would be ready as if nothing was."""
    broker = kbroker_process()
    ends = filled(broker)
    before = directories(broker)
    flip(broker, ends[1])
    assert doctor(broker)[1]["level"] == "warning"
    for _ in range(2):
        said = refusal(broker)
        assert "does not know 9 of the 10 partitions" in said
        assert "--accept-strays" in said
        assert directories(broker) == before
    (kept,) = broker.data_dir.glob("kbroker-metadata.damaged-*.sqlite")
    assert str(kept) in said
    assert str(kept) in doctor(broker)[1]["found"]

    # What is kept is enough to have all again, where the damage can be mended.
    mended = tmp_path / "mended"
    shutil.copytree(broker.data_dir, mended / "data")
    wal = kept.with_name(f"{kept.name}-wal").read_bytes()
    (mended / "data" / FILE_NAME).write_bytes(kept.read_bytes())
    (mended / "data" / f"{FILE_NAME}-wal").write_bytes(flipped(wal, frame_at(ends[1], "page")))
    with BrokerProcess(mended) as other:
        found = topics(other)
        assert sorted(found) == sorted(TOPICS)
        assert all(name.encode() in records for name, records in found.items())
        assert str(mended / "data" / kept.name) in readyz(other)

    with AcceptingBroker(broker.directory, broker.overrides) as accepting:
        assert list(topics(accepting)) == [TOPICS[0]]
        assert sum("-stray" in each for each in directories(accepting)) == 9
        assert "kbroker.accept.strays is set" in accepting.output()
        assert "with a problem" in readyz(accepting)
        assert str(kept) in readyz(accepting)
        for each in broker.data_dir.glob("*.damaged-*"):
            each.unlink()
        assert readyz(accepting).strip() == "ready"


def test_a_store_that_lost_few_topics_says_so(kbroker_process: StartBroker) -> None:
    """An acknowledged topic would be gone, with ACLs and users, and no line would name what to look for."""
    broker = kbroker_process()
    ends = filled(broker)
    flip(broker, ends[-2])
    broker.start()
    try:
        assert sorted(topics(broker)) == sorted(TOPICS[:-2])
        assert sum("-stray" in each for each in directories(broker)) == 2
        said = next(line for line in broker.output().splitlines() if "The metadata store was damaged" in line)
        assert "ERROR" in said
        assert "frame" in said
        assert "the metadata store was damaged" in readyz(broker)
        assert doctor(broker)[1]["level"] == "warning"
        broker.restart()
        assert "the metadata store was damaged" in readyz(broker)
    finally:
        broker.stop()


def test_an_old_copy_of_the_store_asks(kbroker_process: StartBroker) -> None:
    """A backup of before most topics would have them set aside: nothing in it is damaged."""
    broker = kbroker_process()
    with Client(broker.port) as client:
        client.create(TOPICS[0])
    broker.stop()
    old = (broker.data_dir / FILE_NAME).read_bytes()
    broker.start()
    with Client(broker.port) as client:
        for name in TOPICS[1:]:
            client.create(name)
    broker.stop()
    (broker.data_dir / FILE_NAME).write_bytes(old)
    assert "does not know 9 of the 10 partitions" in refusal(broker)
    broker.environ["KBROKER_ACCEPT_STRAYS"] = "true"
    broker.start()
    assert list(topics(broker)) == [TOPICS[0]]


def test_topics_whose_deletion_a_kill_cut_short_ask_nothing(kbroker_process: StartBroker) -> None:
    """A broker that is killed while all its topics are deleted would not start again."""
    broker = kbroker_process()
    filled(broker)
    # Deleted from the store, and killed before a directory has another name.
    with closing(LocalStore.open(broker.data_dir / FILE_NAME)) as store:
        store.write(MetadataDelta(deleted=tuple(store.topics())))
    broker.start()
    assert topics(broker) == {}
    assert sum("-stray" in each for each in directories(broker)) == len(TOPICS)


def test_the_directories_of_all_workers_count(tmp_path: Path) -> None:
    """Worker 1 may hold few partitions: those of the others would be set aside one after the other."""
    workers = Workers(tmp_path, 2).up()
    try:
        with Client(workers.port) as client:
            for name in TOPICS:
                client.create(name)
        before = directories(workers), sorted(each.name for each in workers.worker_directory(2).glob("topic-*"))
        assert all(before)
        workers.stop()
        for each in workers.worker_directory(1).glob("topic-*"):
            shutil.rmtree(each)
        for each in ("kbroker-directories.json", "recovery-point-offset-checkpoint"):
            (workers.worker_directory(1) / each).unlink(missing_ok=True)
        with closing(sqlite3.connect(workers.data_dir / FILE_NAME)) as connection:
            # As an old copy has it: the topics were never made.
            connection.executescript("PRAGMA foreign_keys = ON; DELETE FROM topics")
        workers.spawn()
        workers.wait()
        assert f"does not know {len(before[1])} of the {len(before[1])} partitions" in workers.output()
        assert sorted(each.name for each in workers.worker_directory(2).glob("topic-*")) == before[1]
    finally:
        if workers.running:
            workers.stop()
