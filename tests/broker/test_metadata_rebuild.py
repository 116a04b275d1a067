"""Starts without a metadata store, and a store that is made anew from the log directories.

Also of `kbroker.cli.storage.metadata`, `kbroker.startup.metadata_rebuild`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.metadata.local_store import FILE_NAME
from kbroker.storage.log.partition_metadata import encode_partition_metadata
from tests.broker.client import Batch, Client
from tests.broker_process import BrokerError, BrokerProcess
from tests.conftest import StartBroker


def refusal(broker: BrokerProcess) -> str:
    """The line with which a start ends."""
    with pytest.raises(BrokerError) as caught:
        broker.start()
    return next(line for line in str(caught.value).splitlines() if "cannot start" in line)


def rebuild(broker: BrokerProcess, *options: str, status: int = 0) -> str:
    """`kbroker metadata rebuild` with the broker's settings; what it says."""
    given = [text for key, value in settings(broker).items() for text in ("--override", f"{key}={value}")]
    command = [sys.executable, "-m", "kbroker.cli", "metadata", "rebuild", *given, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def settings(broker: BrokerProcess) -> dict[str, str]:
    return {"log.dirs": str(broker.data_dir), **broker.overrides}


def topics(client: Client, *names: str) -> dict[str, tuple[bytes, int]]:
    """Ids and numbers of partitions."""
    rows = client.ask("Metadata", 12, {"topics": [{"name": name, "topic_id": bytes(16)} for name in names]}).topics
    return {row.name: (bytes(row.topic_id), len(row.partitions)) for row in rows if not row.error_code}


def own_settings(client: Client, name: str) -> dict[str, str]:
    asked = {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None}]}
    found = client.ask("DescribeConfigs", 4, asked).results[0].configs
    return {row.name: row.value for row in found if row.config_source == 1}


@contextmanager
def client_of(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.port) as client:
        yield client


@pytest.fixture
def used(kbroker_process: StartBroker) -> BrokerProcess:
    """A stopped broker with topics, records, a committed offset and an idempotent producer, without its store."""
    broker = kbroker_process({"offsets.topic.num.partitions": "3"})
    with client_of(broker) as client:
        client.create("orders", 4)
        client.create("compacted", 1, {"cleanup.policy": "compact", "max.message.bytes": "5000"})
        for partition in range(4):
            client.write("orders", Batch([(b"k", b"v%d" % partition)]), partition=partition)
        client.write("orders", Batch(producer_id=client.producer_id(), producer_epoch=0, base_sequence=0))
        group = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        client.ask("FindCoordinator", 3, {"key": "g", "key_type": 0})
        rows = [{"name": "orders", "partitions": [{"partition_index": 2, "committed_offset": 1}]}]
        client.ask("OffsetCommit", 8, {**group, "topics": rows})
    broker.stop()
    for path in broker.data_dir.glob(f"{FILE_NAME}*"):
        path.rename(broker.directory / path.name)
    return broker


def ids_of(broker: BrokerProcess) -> dict[str, bytes]:
    """What the lost store said."""
    import sqlite3

    connection = sqlite3.connect(broker.directory / FILE_NAME)
    found = dict(connection.execute("SELECT name, topic_id FROM topics").fetchall())
    connection.close()
    return found


def test_a_lost_store_is_made_anew_from_the_directories(used: BrokerProcess) -> None:
    """Whose store is gone would have all records and no topics, and nothing to do about it."""
    said = refusal(used)
    assert "is missing or empty, but there are partitions" in said and "`kbroker metadata rebuild`" in said
    assert "damaged" not in said
    shown = json.loads(rebuild(used, "--dry-run", "--json"))
    assert shown["path"] is None and not (used.data_dir / FILE_NAME).exists()
    made = json.loads(rebuild(used, "--json"))
    assert {row["name"]: row["partitions"] for row in made["topics"]} == {
        "__consumer_offsets": 3,
        "compacted": 1,
        "orders": 4,
    }
    used.start()
    with client_of(used) as client:
        found = topics(client, "orders", "compacted", "__consumer_offsets")
        assert {name: topic_id for name, (topic_id, _) in found.items()} == ids_of(used)
        assert [client.offset("orders", partition=number) for number in range(4)] == [2, 1, 1, 1]
        asked = {"groups": [{"group_id": "g", "topics": None}], "require_stable": True}
        (row,) = client.ask("OffsetFetch", 8, asked).groups[0].topics
        assert (row.name, row.partitions[0].partition_index, row.partitions[0].committed_offset) == ("orders", 2, 1)
        keeps = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        assert own_settings(client, "orders") == own_settings(client, "compacted") == keeps
        assert own_settings(client, "__consumer_offsets")["cleanup.policy"] == "compact"
        assert client.producer_id() > 1_000_000_000
        assert client.write("orders", Batch()) == 2
    used.stop()
    assert "there is a metadata store" in rebuild(used, status=1)
    used.start()


def test_clients_take_the_leaders_of_a_rebuilt_store_for_newer_ones(used: BrokerProcess) -> None:
    """A client that knows a higher epoch would drop all metadata as stale, and wait for good."""
    rebuild(used)
    used.start()
    with client_of(used) as client:
        rows = client.ask("Metadata", 12, {"topics": [{"name": "orders", "topic_id": bytes(16)}]}).topics[0].partitions
        assert {row.partition_index: row.leader_epoch for row in rows} == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_start_never_sees_half_a_store(used: BrokerProcess) -> None:
    """One that was killed meanwhile would leave a store without topics, and the next start set all partitions aside."""
    (used.data_dir / f"{FILE_NAME}.rebuilding").write_bytes(b"half")
    (used.data_dir / f"{FILE_NAME}.rebuilding-wal").write_bytes(b"half")
    assert "missing or empty" in refusal(used)
    rebuild(used)
    assert sorted(path.name for path in used.data_dir.glob(f"{FILE_NAME}*")) == [FILE_NAME]
    used.start()
    with client_of(used) as client:
        assert client.offset("orders") == 2


def test_partitions_that_a_topic_must_have_are_not_made_anew_unasked(used: BrokerProcess) -> None:
    """A disk that is not mounted would be replaced by empty partitions, and its records set aside later."""
    elsewhere = used.directory / "unmounted"
    shutil.move(used.data_dir / "orders-1", elsewhere)
    said = rebuild(used, status=1)
    assert "topic orders has partition 3, but no directory for partition 1" in said
    assert "partition 1 had no directory: made anew, empty" in rebuild(used, "--add-missing")
    used.start()
    with client_of(used) as client:
        assert [client.offset("orders", partition=number) for number in range(4)] == [2, 0, 1, 1]


def test_directories_of_two_topics_of_one_name_are_told_apart(used: BrokerProcess) -> None:
    """Partitions of an older topic would be mixed with those of the newer one."""
    (used.data_dir / "orders-1" / "partition.metadata").write_bytes(encode_partition_metadata(b"another id 16 by"))
    said = rebuild(used, status=1)
    assert "the partitions of orders have different topic ids" in said and "orders-1" in said


def test_a_topic_without_ids_gets_a_new_one(used: BrokerProcess) -> None:
    """A directory of a Kafka before 2.8 could not be used."""
    for path in used.data_dir.glob("orders-*/partition.metadata"):
        path.unlink()
    said = rebuild(used)
    assert "no partition had a topic id: it has a new one" in said
    assert "users with SCRAM, ACLs, delegation tokens, quotas" in said
    used.start()
    with client_of(used) as client:
        assert client.offset("orders") == 2


def test_nothing_is_rebuilt_beside_a_running_broker(broker: BrokerProcess) -> None:
    """Two stores would be written at the same time."""
    assert "is in use by another broker" in rebuild(broker, status=1)


def test_the_defaults_may_count_for_rebuilt_topics(used: BrokerProcess) -> None:
    """Who never gave a topic settings of its own would have to take three back from each."""
    rebuild(used, "--with-defaults")
    used.start()
    with client_of(used) as client:
        assert own_settings(client, "orders") == {}


def test_a_store_in_another_of_the_log_directories_is_found(kbroker_process: StartBroker, tmp_path: Path) -> None:
    """Whose log.dirs are in another order than before would be told to restore a backup."""
    first, second = tmp_path / "a", tmp_path / "b"
    broker = kbroker_process({"log.dirs": f"{first},{second}"})
    with client_of(broker) as client:
        client.create("t", 4)
    broker.stop()
    broker.overrides["log.dirs"] = f"{second},{first}"
    assert f"the metadata store is in {first}, but the first of log.dirs is {second}" in refusal(broker)


KRAFT = "#\nversion=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\ndirectory.id=NyFQJ6pTQVu0mDXn1mW8Ww\n"
ZOOKEEPER = "#\nversion=0\nbroker.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"


@pytest.mark.parametrize("meta", [KRAFT, ZOOKEEPER, ""], ids=["KRaft", "ZooKeeper", "KRaft without meta.properties"])
@pytest.mark.parametrize("partitions", [True, False])
def test_directories_of_apache_kafka_are_told_to_be_that(
    meta: str, partitions: bool, kbroker_process: StartBroker
) -> None:
    """Who tries kbroker on Kafka's own data would be told that a file of kbroker's is damaged, and to salvage it."""
    broker: Any = kbroker_process(wait=False)
    broker.data_dir.mkdir(parents=True)
    if meta:
        (broker.data_dir / "meta.properties").write_text(meta)
    if meta != ZOOKEEPER:
        (broker.data_dir / "__cluster_metadata-0").mkdir()
    if partitions:
        (broker.data_dir / "orders-0").mkdir()
    said = refusal(broker)
    kind = "with ZooKeeper" if meta == ZOOKEEPER else "KRaft"
    assert f"{broker.data_dir} was written by Apache Kafka ({kind}" in said
    assert f"`kbroker import {broker.data_dir} --dry-run`" in said and "damaged" not in said
    assert not (broker.data_dir / FILE_NAME).exists()


def test_a_directory_of_kafka_07_is_named_as_that(kbroker_process: StartBroker) -> None:
    """Its owner would look for a store that there never was, or make one anew over files that nobody can read."""
    broker: Any = kbroker_process(wait=False)
    (broker.data_dir / "my_topic-0").mkdir(parents=True)
    (broker.data_dir / "my_topic-0" / "00000000000000000000.kafka").write_bytes(b"\0" * 20)
    said = refusal(broker)
    assert f"{broker.data_dir} was written by Kafka 0.7 (my_topic-0/00000000000000000000.kafka)" in said
    assert "missing" not in said
    assert not (broker.data_dir / FILE_NAME).exists()
