"""What a start refuses, and what it says: a broker that cannot serve its directory must leave it as it was."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.broker.client import Batch, Client
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.ports import free_port

META = "meta.properties"
STORE = "kbroker-metadata.sqlite"


def refused(broker: BrokerProcess) -> str:
    """Start a broker that must refuse; what it printed."""
    before = len(broker.output())
    broker.spawn()
    assert broker.wait() == 1
    output = broker.output()[before:]
    assert "Traceback" not in output
    return output


def stopped(kbroker_process: StartBroker) -> BrokerProcess:
    """A broker that ran, took a record and was stopped."""
    broker = kbroker_process()
    with Client(broker.port) as client:
        client.create("t")
        client.write("t")
    broker.stop()
    return broker


def set_property(path: Path, key: str, value: str) -> None:
    path.write_text(re.sub(rf"^{re.escape(key)}=.*$", f"{key}={value}", path.read_text(), flags=re.MULTILINE))


def test_a_port_in_use_does_not_cost_a_recovery(kbroker_process: StartBroker) -> None:
    """A start on the wrong port would make the next one check every byte on disk."""
    broker = stopped(kbroker_process)
    other = kbroker_process()
    right, broker.port = broker.port, other.port
    assert f"127.0.0.1:{other.port}" in refused(broker)
    broker.port = right
    broker.start()
    assert "after an unclean stop" not in broker.output()
    with Client(broker.port) as client:
        assert client.offset("t") == 1


def test_a_refused_start_gives_the_directory_back(kbroker_process: StartBroker) -> None:
    """Nobody could use the directory until some process was found and killed."""
    running = kbroker_process()
    second = kbroker_process({"log.dirs": str(running.data_dir)}, wait=False)
    output = refused(second)
    assert str(running.data_dir) in output
    assert "in use by another broker" in output
    with Client(running.port) as client:
        client.create("still-serving")
    running.stop()
    second.start()


def test_a_directory_that_cannot_be_made_is_named(kbroker_process: StartBroker, tmp_path: Path) -> None:
    """The user would not know which setting to change."""
    (tmp_path / "file").write_text("")
    broker = kbroker_process({"log.dirs": str(tmp_path / "file" / "data")}, wait=False)
    assert f"cannot use log directory {tmp_path}/file/data: Not a directory" in refused(broker)


def test_a_directory_that_cannot_be_written_is_named(kbroker_process: StartBroker) -> None:
    """The user would not know which permission is missing."""
    broker = kbroker_process({"log.dirs": "/sys/kbroker"}, wait=False)
    why = f"/sys may not be written by user {os.geteuid()}"
    assert f"log directory /sys/kbroker cannot be made: {why}: " in refused(broker)


@pytest.mark.parametrize("content", ["", "version=1\n", "version=9\nnode.id=1\ncluster.id=x\n", "\x00\xff\xfe" * 40])
def test_damaged_meta_properties_are_refused(kbroker_process: StartBroker, content: str) -> None:
    """A broker would take over another cluster's data, or start empty."""
    broker = stopped(kbroker_process)
    (broker.data_dir / META).write_text(content)
    assert str(broker.data_dir / META) in refused(broker)


def test_another_clusters_directory_is_refused(kbroker_process: StartBroker) -> None:
    """Two clusters would write into each other's logs."""
    broker = stopped(kbroker_process)
    set_property(broker.data_dir / META, "cluster.id", "AAAAAAAAAAAAAAAAAAAAAA")
    output = refused(broker)
    assert "AAAAAAAAAAAAAAAAAAAAAA" in output
    assert str(broker.data_dir) in output


def test_another_nodes_directory_is_refused(kbroker_process: StartBroker) -> None:
    """A node would answer with another one's partitions."""
    broker = stopped(kbroker_process)
    set_property(broker.data_dir / META, "node.id", "77")
    assert "belongs to node 77" in refused(broker)


def test_directories_of_two_clusters_are_refused(kbroker_process: StartBroker) -> None:
    """A copied directory would mix the partitions of two clusters."""
    one, two = stopped(kbroker_process), stopped(kbroker_process)
    one.overrides["log.dirs"] = f"{one.data_dir},{two.data_dir}"
    assert "different clusters" in refused(one)


def test_a_copy_of_a_log_directory_beside_it_is_refused(kbroker_process: StartBroker, tmp_path: Path) -> None:
    """Each replica would be there twice, and either the older or the newer one be served."""
    broker = stopped(kbroker_process)
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy)
    broker.overrides["log.dirs"] = f"{broker.data_dir},{copy}"
    assert f"log directories {broker.data_dir} and {copy} have the same directory.id" in refused(broker)


def test_partitions_without_their_metadata_are_refused(kbroker_process: StartBroker) -> None:
    """A broker that lost its list of topics would set all data aside as stray."""
    broker = stopped(kbroker_process)
    (broker.data_dir / STORE).unlink()
    assert STORE in refused(broker)
    assert (broker.data_dir / "t-0").is_dir()


def test_metadata_that_are_not_a_database_are_refused(kbroker_process: StartBroker) -> None:
    """Damage would surface as missing topics, one by one."""
    broker = stopped(kbroker_process)
    (broker.data_dir / STORE).write_bytes(b"not a database" * 500)
    assert STORE in refused(broker)


def test_a_refusal_does_not_spend_the_clean_marker(kbroker_process: StartBroker) -> None:
    """Fixing a wrong setting would be followed by a recovery of everything."""
    broker = stopped(kbroker_process)
    kept = (broker.data_dir / META).read_text()
    set_property(broker.data_dir / META, "node.id", "77")
    refused(broker)
    (broker.data_dir / META).write_text(kept)
    broker.start()
    assert "after a clean stop" in broker.output()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("num.partitions", "0", "at least 1"),
        ("log.segment.bytes", "x", "Not a number"),
        ("compression.type", "rar", "producer"),
        ("max.connections.per.ip.overrides", "127.0.0.1:x", "127.0.0.1:x"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "127.0.0.1"),
        ("listeners", "PLAINTEXT://127.0.0.1", "name://host:port"),
        ("security.inter.broker.protocol", "SSL", "no listener has SSL"),
        ("authorizer.class.name", "x.Y", "authorizer"),
        ("ssl.client.auth", "maybe", "required, requested, none"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(
    kbroker_process: StartBroker, key: str, value: str, allowed: str
) -> None:
    """The user would have to guess which of many settings stops the start."""
    output = refused(kbroker_process({key: value}, wait=False))
    assert key in output
    assert value in output
    assert allowed in output


def test_a_host_that_is_not_ours_is_told(kbroker_process: StartBroker) -> None:
    """The user would see a broker that nobody reaches."""
    broker = kbroker_process({"listeners": f"PLAINTEXT://192.0.2.1:{free_port()}"}, wait=False)
    assert "cannot bind 192.0.2.1" in refused(broker)
    broker = kbroker_process({"listeners": "PLAINTEXT://no-such-host.invalid:9092"}, wait=False)
    assert "no-such-host.invalid" in refused(broker)


def test_killed_broker_finds_all_that_it_acknowledged(kbroker_process: StartBroker) -> None:
    """Acknowledged records would be gone after a crash of the process."""
    broker = kbroker_process({"log.segment.bytes": "1048576"})
    with Client(broker.port) as client:
        client.create("t", 2)
        producer = client.producer_id()
        for number in range(30):
            batch = Batch([(b"k", b"v" * 50_000)] * 2, producer_id=producer, producer_epoch=0, base_sequence=2 * number)
            client.write("t", batch, partition=0)
            client.write("t", Batch([(b"%d" % number, None)]), partition=1)
    broker.restart(kill=True)
    with Client(broker.port) as client:
        assert (client.offset("t"), client.offset("t", partition=1)) == (60, 30)
        again = Batch([(b"k", b"v")] * 2, producer_id=producer, producer_epoch=0, base_sequence=58)
        assert client.produce("t", again).base_offset == 58
        assert client.write("t", Batch(producer_id=producer, producer_epoch=0, base_sequence=60)) == 60
    assert "after an unclean stop" in broker.output()


def test_a_torn_tail_is_cut_and_writing_goes_on(kbroker_process: StartBroker) -> None:
    """Half a batch at the end would make a partition unreadable, or be served as records."""
    broker = kbroker_process()
    with Client(broker.port) as client:
        client.create("t", 3)
        for partition in range(3):
            client.write("t", Batch(), Batch(), partition=partition)
    broker.kill()
    whole = Batch([(b"k", b"half of this")], base_offset=2).encoded()
    wrong = bytearray(whole)
    wrong[-1] ^= 1
    for partition, tail in enumerate((whole[:70], bytes(wrong), bytes(5000))):
        with (broker.data_dir / f"t-{partition}" / f"{0:020}.log").open("ab") as log:
            log.write(tail)
    broker.start()
    with Client(broker.port) as client:
        for partition in range(3):
            assert client.offset("t", partition=partition) == 2
            assert client.write("t", Batch(), partition=partition) == 2
            records = bytes(client.fetch("t", partition=partition).records)
            assert records.count(b"keyvalue") == 0
            assert len(records) == 3 * len(Batch().encoded())


def test_topics_groups_and_records_survive_clean_restarts(kbroker_process: StartBroker) -> None:
    """A restart would lose what clients were told is stored."""
    broker = kbroker_process({"offsets.topic.num.partitions": "2"})
    with Client(broker.port) as client:
        topic_id = client.create("t", 2, {"retention.ms": "-1"})
        client.write("t", Batch([(b"k", b"1")]))
        row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "note"}
        asked = {"group_id": "g", "topics": [{"name": "t", "partitions": [row]}]}
        stored = client.ask("OffsetCommit", 7, {**asked, "generation_id_or_member_epoch": -1, "member_id": ""})
        assert stored.topics[0].partitions[0].error_code == 0
    for count in range(2, 4):
        broker.restart()
        with Client(broker.port) as client:
            assert client.write("t", Batch([(b"k", b"%d" % count)])) == count - 1
            topic = client.ask("Metadata", 12, {"topics": [{"name": "t", "topic_id": bytes(16)}]}).topics[0]
            assert (bytes(topic.topic_id), len(topic.partitions)) == (topic_id, 2)
            rows = [{"name": "t", "partition_indexes": [0]}]
            found = client.ask("OffsetFetch", 5, {"group_id": "g", "topics": rows}).topics[0].partitions[0]
            assert (found.committed_offset, found.metadata) == (1, "note")
            assert client.fetch("t").records.nbytes == count * len(Batch([(b"k", b"1")]).encoded())


def test_a_directory_may_be_moved_while_the_broker_is_down(kbroker_process: StartBroker, tmp_path: Path) -> None:
    """Data would be bound to the place where it was first written."""
    broker = stopped(kbroker_process)
    shutil.move(broker.data_dir, tmp_path / "elsewhere")
    broker.overrides["log.dirs"] = str(tmp_path / "elsewhere")
    broker.start()
    with Client(broker.port) as client:
        assert client.offset("t") == 1


@pytest.mark.parametrize("gone", [0, 1])
def test_a_disk_that_is_not_mounted_is_missed_whatever_lies_there(
    tmp_path: Path, kbroker_process: StartBroker, gone: int
) -> None:
    """A first disk without its store would be a new cluster, a second one a home for partitions that are there."""
    disks = [tmp_path / "a", tmp_path / "b"]
    broker = kbroker_process({"log.dirs": ",".join(map(str, disks))})
    assert broker.stop() == 0
    disks[gone].rename(tmp_path / "away")
    (disks[gone] / "workers").mkdir(parents=True)
    if gone == 0:
        assert "is its disk mounted?" in refused(broker)
        assert not list(disks[0].glob(f"{STORE}*"))
    else:
        broker.start()
        assert "is its disk mounted?" in broker.output()
        assert broker.stop() == 0
    assert not (disks[gone] / META).exists()
    shutil.rmtree(disks[gone])
    (tmp_path / "away").rename(disks[gone])
    broker.start()


def test_a_store_of_another_node_is_refused(kbroker_process: StartBroker) -> None:
    """All partitions would be without a leader, and nothing would say why, once meta.properties is lost."""
    broker = stopped(kbroker_process)
    (broker.data_dir / META).unlink()
    broker.overrides["node.id"] = "7"
    assert "are of node 1, but this node is 7" in refused(broker)
    assert not (broker.data_dir / META).exists()
    del broker.overrides["node.id"]
    broker.start()
    assert broker.offsets("t") == {0: (0, 1)}
