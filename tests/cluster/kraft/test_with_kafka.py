"""The observer against real controllers of Apache Kafka: what it knows is what Kafka's own files say.

Also of `kbroker.cluster.kraft.observer`, `kbroker.cluster.kraft.own_snapshots`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.cluster.kraft.cluster_metadata import empty_image
from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION
from kbroker.metadata.image import ClusterImage, Endpoint
from kbroker.metadata.record_deltas import delta_of
from kbroker.migration.metadata_log import MetadataLog
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.cluster.kraft.kafka_controllers import KafkaMember, KafkaQuorum
from tests.cluster.kraft.observing import Observing
from tests.compat.brokers import CLUSTER_ID
from tests.compat.real_kafka import KafkaProcess
from tests.compat.tooling import run_java

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def plain(image: ClusterImage) -> ClusterImage:
    """Without what counts publications."""
    features = replace(image.features, epoch=0, chosen={**image.features.chosen, "kraft.version": 0})
    return replace(image, version=0, features=features)


def image_in(log_dir: Path) -> ClusterImage:
    """What a stopped Kafka's own files say."""
    image = empty_image("cluster")
    return image.apply(delta_of(image, MetadataLog(SYSTEM_FILES, str(log_dir), was_closed=True).records()))


async def tool(broker: KafkaProcess, java_class: str, *words: str) -> None:
    """Run one of Kafka's tools while the observer goes on."""
    done = await asyncio.to_thread(run_java, java_class, "--bootstrap-server", broker.bootstrap, *words, seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr


async def change_much(broker: KafkaProcess) -> None:
    """One of each kind of record that a client can cause."""
    await tool(broker, TOPICS, "--create", "--topic", "orders", "--partitions", "4", "--config", "retention.ms=77000")
    await tool(broker, TOPICS, "--create", "--topic", "gone")
    await tool(broker, TOPICS, "--delete", "--topic", "gone")
    await tool(broker, TOPICS, "--alter", "--topic", "orders", "--partitions", "6")
    client = ("--alter", "--entity-type", "clients", "--entity-name", "app", "--add-config", "producer_byte_rate=1000")
    await tool(broker, CONFIGS, *client)
    user = ("--alter", "--entity-type", "users", "--entity-name", "alice")
    await tool(broker, CONFIGS, *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
    all_brokers = ("--alter", "--entity-type", "brokers", "--entity-default")
    await tool(broker, CONFIGS, *all_brokers, "--add-config", "min.insync.replicas=2")


def dumped(path: Path) -> str:
    """What Kafka's own tool says of a file of the metadata log."""
    done = run_java(DUMP, "--cluster-metadata-decoder", "--files", str(path), seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaProcess]:
    made = KafkaProcess(tmp_path / "kafka")
    made.start()
    yield made
    made.kill()


@pytest.mark.slow
def test_the_image_is_that_of_kafkas_files(broker: KafkaProcess, tmp_path: Path) -> None:
    """A broker would act on other topics, epochs, settings or users than the rest of the cluster."""
    address = Endpoint("127.0.0.1", broker.controller_port)
    log = MetadataLogSettings(snapshot_bytes=3000)

    async def follow() -> ClusterImage:
        async with Observing(tmp_path, [address], log=log, cluster_id=CLUSTER_ID) as following:
            await following.observer.first_high_watermark()
            assert following.observer.leader is not None
            await change_much(broker)
            await following.until(lambda: "min.insync.replicas" in str(following.metadata.image.configs))
            end = following.metadata.applied_offset
            kept = following.directory
            await following.until(
                lambda: kept.newest_snapshot is not None and following.metadata.applied_offset > end + 4
            )
            return following.metadata.image

    image = asyncio.run(follow())
    broker.stop()
    stopped = image_in(broker.data)
    # The stop fences the broker, and takes the leaders away.
    assert plain(replace(image, brokers={}, topics={}, topics_by_id={})) == plain(
        replace(stopped, brokers={}, topics={}, topics_by_id={}, cluster_id=CLUSTER_ID)
    )
    assert {name: len(each.partitions) for name, each in image.topics.items()} == {"orders": 6}
    orders, after = image.topics["orders"], stopped.topics["orders"]
    assert orders.configs == after.configs == {"retention.ms": "77000"}
    assert [each.directories for each in orders.partitions] == [each.directories for each in after.partitions]
    assert [(each.replicas, each.isr, each.leader) for each in orders.partitions] == [((1,), (1,), 1)] * 6
    assert image.brokers[1].log_dirs == stopped.brokers[1].log_dirs
    assert image.brokers[1].protocols == {"PLAINTEXT": 0} and not image.brokers[1].is_fenced

    async def again() -> ClusterImage:
        following = Observing(tmp_path, [Endpoint("127.0.0.1", 1)], log=log)
        opened = await asyncio.to_thread(following.directory.open)
        assert opened.log.snapshot is not None, "no snapshot was written after so many bytes"
        await following.metadata.load(opened.snapshot, opened.log.snapshot, "test")
        await following.metadata.apply(opened.batches)
        following.directory.close()
        await following.observer.close()
        return following.metadata.image

    restarted = asyncio.run(again())
    assert plain(replace(restarted, cluster_id=CLUSTER_ID)) == plain(image), "the own snapshot and log say otherwise"
    metadata_dir = tmp_path / "__cluster_metadata-0"
    snapshots = sorted(metadata_dir.glob("*.checkpoint"))
    assert "SnapshotFooter" in dumped(snapshots[-1])
    assert '"name":"orders"' in dumped(snapshots[-1])
    segments = sorted(metadata_dir.glob("*.log"))
    assert "BATCH" not in dumped(segments[0]) and "NO_OP_RECORD" in dumped(segments[-1])


@pytest.mark.slow
def test_it_begins_with_the_controllers_snapshot(tmp_path: Path) -> None:
    """A broker that joins late could not fetch what the controllers have deleted."""
    quorum = KafkaQuorum(tmp_path / "kafka", 1, metadata_log_max_record_bytes_between_snapshots="1500")
    quorum.start()
    metadata_dir = quorum.nodes[0].data / "__cluster_metadata-0"

    async def follow() -> None:
        while not list(metadata_dir.glob("*-*.checkpoint")):
            await asyncio.sleep(0.1)
        async with Observing(tmp_path, quorum.addresses, snapshot_fetch_bytes=100) as following:
            await following.observer.first_high_watermark()
            assert following.directory.newest_snapshot is not None
            assert following.metadata.image.features.level(METADATA_VERSION) == 30
            assert following.metadata.image.controllers[3001].endpoints["CONTROLLER"].port == quorum.nodes[0].port
            end = following.metadata.applied_offset
            await following.until(lambda: following.metadata.applied_offset > end + 2)

    try:
        asyncio.run(follow())
    finally:
        quorum.stop()


@pytest.mark.slow
def test_fixed_voters_of_an_older_release(tmp_path: Path) -> None:
    """Clusters that have not been upgraded could not be joined: they know less of Fetch, and name no voters."""
    quorum = KafkaQuorum(tmp_path / "kafka", 1, is_old=True)
    quorum.start()

    async def follow() -> None:
        async with Observing(tmp_path, quorum.addresses, cluster_id=CLUSTER_ID) as following:
            await following.observer.first_high_watermark()
            levels = following.metadata.image.features.levels()
            assert levels == {METADATA_VERSION: 21} and following.metadata.voters is None
            end = following.metadata.applied_offset
            await following.until(lambda: following.metadata.applied_offset > end + 2)

    try:
        asyncio.run(follow())
    finally:
        quorum.stop()


@pytest.mark.slow
def test_voters_that_the_log_names(tmp_path: Path) -> None:
    """A broker would not find controllers that have come since it was configured."""
    quorum = KafkaQuorum(tmp_path / "kafka", 1, is_dynamic=True)
    quorum.start()

    async def follow() -> None:
        async with Observing(tmp_path, quorum.addresses, cluster_id=CLUSTER_ID) as following:
            await following.observer.first_high_watermark()
            assert following.metadata.image.features.level(KRAFT_VERSION) == 1
            assert following.metadata.voter_endpoints("CONTROLLER") == {3001: quorum.addresses[0]}

    try:
        asyncio.run(follow())
    finally:
        quorum.stop()


@pytest.mark.slow
def test_kafka_goes_on_with_the_directory_and_back(tmp_path: Path) -> None:
    """Going back to Kafka, or coming from it, would need all metadata anew, or fail at the start."""
    quorum = KafkaQuorum(tmp_path / "kafka", 1, is_dynamic=True)
    quorum.start()
    data = tmp_path / "data"
    data.mkdir()
    log = MetadataLogSettings(snapshot_bytes=800)

    async def follow() -> tuple[int, ClusterImage]:
        async with Observing(data, quorum.addresses, cluster_id=CLUSTER_ID, log=log) as following:
            await following.observer.first_high_watermark()
            end, kept = following.metadata.applied_offset, following.directory
            await following.until(
                lambda: kept.newest_snapshot is not None and following.metadata.applied_offset > end + 15
            )
        return following.observer.log_end_offset, following.metadata.image

    member = KafkaMember(tmp_path / "member", data, quorum)
    try:
        end, image = asyncio.run(follow())
        assert not image.brokers
        member.start()
        member.stop()
        said = member.output.read_text(errors="replace")
        assert f"Wrote producer snapshot at offset {end} with" in said, "it has not read the log to its end"
        assert "Latest set of voters is VoterSet(voters={3001=" in said, "it has not read the snapshot"
        assert "orrupt" not in said and "ERROR" not in said, said
        later, image = asyncio.run(follow())
        assert later > end and image.brokers[9].is_fenced, "what Kafka has fetched meanwhile is not read"
    finally:
        member.kill()
        quorum.stop()


@pytest.mark.slow
def test_it_goes_on_when_the_leader_is_killed(tmp_path: Path) -> None:
    """A broker would be cut off from its cluster by the death of one controller of three."""
    quorum = KafkaQuorum(tmp_path / "kafka", 3)
    quorum.start()

    async def follow() -> None:
        async with Observing(tmp_path, quorum.addresses) as following:
            observer, heard = following.observer, list[object]()
            await observer.first_high_watermark()
            observer.on_leader(lambda: heard.append(observer.leader))
            first = observer.leader
            assert first is not None
            node = quorum.nodes[first.node_id - 3001]
            node.kill()
            await following.until(lambda: following.metadata.applied_epoch > first.epoch, 90)
            second = observer.leader
            assert second is not None and second.node_id != first.node_id and second.epoch > first.epoch
            assert heard[-1] == second
            node.start()
            quorum.nodes[second.node_id - 3001].stop()
            await following.until(lambda: following.metadata.applied_epoch > second.epoch, 90)
            assert observer.leader is not None and observer.leader.node_id != second.node_id

    try:
        asyncio.run(follow())
    finally:
        quorum.stop()


@pytest.mark.slow
def test_what_was_not_committed_is_taken_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker would keep records that no controller has, and be refused for ever."""
    quorum = KafkaQuorum(tmp_path / "kafka", 3)
    quorum.start()

    async def follow() -> None:
        async with Observing(tmp_path, quorum.addresses) as following:
            observer = following.observer
            await observer.first_high_watermark()
            first = observer.leader
            assert first is not None
            others = [each for each in quorum.nodes if each.node_id != first.node_id]
            for each in others:
                each.signal(signal.SIGSTOP)
            while observer.log_end_offset < observer.high_watermark + 2:
                await asyncio.sleep(0.02)
            end, committed = observer.log_end_offset, following.metadata.applied_offset
            assert committed < observer.high_watermark < end
            quorum.nodes[first.node_id - 3001].kill()
            for each in others:
                each.signal(signal.SIGCONT)
            await following.until(lambda: following.metadata.applied_epoch > first.epoch, 90)
            assert following.metadata.applied_offset > committed

    try:
        asyncio.run(follow())
    finally:
        quorum.stop()
    assert any("are taken back" in each for each in caplog.messages)


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    """A broker with the wrong addresses would take another cluster's metadata for its own, and delete its data."""
    quorum = KafkaQuorum(tmp_path / "kafka", 1)
    quorum.start()

    async def follow() -> list[str]:
        async with Observing(tmp_path, quorum.addresses, cluster_id="AAAAAAAAAAAAAAAAAAAAAA") as following:
            with pytest.raises(Exception, match="belongs to another cluster"):
                await following.observer.first_high_watermark()
            return following.failures

    try:
        assert len(asyncio.run(follow())) == 1
    finally:
        quorum.stop()
