"""Topics with many partitions: usable at once, without the loop standing still while their files are made.

Also of `kbroker.assembly.coordinator_basis`, `kbroker.replication.replica_logs`.
"""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.requests import NewTopic
from kbroker.config import BrokerConfig, log_config
from kbroker.errors import KafkaStorageError, UnknownTopicOrPartitionError
from kbroker.metadata.image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    MetadataDelta,
    PartitionImage,
    TopicChange,
    TopicImage,
)
from kbroker.metadata.local_store import LocalStore
from kbroker.replication import logs_without_room
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.replication.state_log import PartitionStateLog
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.cluster.parts import Metadata
from tests.storage.batches import append, batch
from tests.unbroken import finished

PARTITIONS = 300


class Parts:
    """A broker's storage and metadata without its network."""

    def __init__(self, directory: Path, files: FileSystem = SYSTEM_FILES) -> None:
        config = BrokerConfig.from_mapping({"log.dirs": str(directory)})
        self.logs = LogManager(config, SYSTEM_CLOCK, files)
        dirs = self.logs.open_dirs()
        self.store = LocalStore.open(directory / "metadata.sqlite", dirs.cluster_id)
        self.logs.claim(self.store.cluster_id)
        self.logs.load_all()
        broker = BrokerImage(config.node_id, {"PLAINTEXT": Endpoint("127.0.0.1", 9092)})
        metadata = Metadata(self.store, config, [broker], config.node_id)
        cache = metadata.cache
        self.replicas = ReplicaManager(
            config.node_id, self.logs, lambda configs: log_config(config, configs), asyncio.get_running_loop()
        )
        self.replicas.roles.apply_image(cache.image)
        cache.subscribe(self.replicas.roles.apply)
        self.controller = metadata.controller

    def create(self, partitions: int = PARTITIONS) -> bytes:
        topic = finished(self.controller.create_topics([NewTopic("t", partitions)]))[0].topic
        assert topic is not None
        return topic.topic_id

    def stop(self) -> None:
        self.logs.shutdown()
        self.store.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(200):
        while not condition():
            await asyncio.sleep(0.005)


def test_every_partition_of_a_new_topic_is_usable_at_once(tmp_path: Path) -> None:
    """A producer would be told that half of a new topic does not exist."""

    async def main() -> None:
        parts = Parts(tmp_path)
        parts.create()
        for index in (PARTITIONS - 1, 0, PARTITIONS // 2):
            assert parts.replicas.partition("t", index).log.log_end_offset == 0
        with pytest.raises(UnknownTopicOrPartitionError):
            parts.replicas.partition("t", PARTITIONS)
        parts.stop()

    uvloop.run(main())


def test_partitions_that_nobody_asks_for_are_made_all_the_same(tmp_path: Path) -> None:
    """Tools that look at the data directory, or at the broker's metrics, would miss partitions for ever."""

    async def main() -> None:
        parts = Parts(tmp_path)
        parts.create()
        await until(lambda: len(list(parts.replicas)) == PARTITIONS)
        assert len(list(tmp_path.glob("t-*/*.log"))) == PARTITIONS
        parts.stop()

    uvloop.run(main())


def test_a_state_log_is_read_without_making_its_partitions(tmp_path: Path) -> None:
    """The first consumer group would stop the broker while 50 partitions are made."""

    async def main() -> None:
        parts = Parts(tmp_path)
        parts.create()
        log = PartitionStateLog("t", parts.replicas, lambda: 1 << 20, asyncio.get_running_loop().call_soon)
        before = len(list(parts.replicas))
        assert [log.bounds(index) for index in range(PARTITIONS)] == [(0, 0)] * PARTITIONS
        assert len(list(parts.replicas)) == before < PARTITIONS
        parts.stop()

    uvloop.run(main())


def test_a_topic_deleted_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    """Its partitions would come back to life under a topic of the same name."""

    async def main() -> None:
        parts = Parts(tmp_path)
        finished(parts.controller.delete_topics([parts.create()]))
        with pytest.raises(UnknownTopicOrPartitionError):
            parts.replicas.partition("t", PARTITIONS - 1)
        assert not parts.replicas.logs.is_deferred(TopicPartition("t", PARTITIONS - 1))
        # Those that were made already go in slices of the loop's time.
        await until(lambda: all(path.name.endswith("-delete") for path in tmp_path.glob("t-*")))
        parts.stop()

    uvloop.run(main())


def test_a_topic_made_anew_does_not_begin_with_the_old_ones_records(tmp_path: Path) -> None:
    """Logs are deleted a few at a time: one that is still to go would become the new topic's."""

    async def main() -> None:
        parts = Parts(tmp_path)
        topic_id = parts.create()
        await until(lambda: len(list(parts.replicas)) == PARTITIONS)
        for partition in parts.replicas:
            append(partition.log, batch([b"old"]))
        finished(parts.controller.delete_topics([topic_id]))
        parts.create()
        for index in range(PARTITIONS):
            assert parts.replicas.partition("t", index).log.log_end_offset == 0
        await until(lambda: len(list(tmp_path.glob("t-*-delete"))) == PARTITIONS)
        parts.stop()

    uvloop.run(main())


def test_a_stop_deletes_what_was_still_to_go(tmp_path: Path) -> None:
    """The next start would set the directories of deleted topics aside as strays, and keep their disk space."""

    async def main() -> None:
        parts = Parts(tmp_path)
        topic_id = parts.create()
        await until(lambda: len(list(parts.replicas)) == PARTITIONS)
        finished(parts.controller.delete_topics([topic_id]))
        parts.replicas.close()
        assert not list(tmp_path.glob("t-*[0-9]"))
        parts.stop()

    uvloop.run(main())


def test_a_directory_that_cannot_be_renamed_does_not_keep_a_deleted_topic_alive(tmp_path: Path) -> None:
    """One bad directory would leave a topic half deleted: gone for some clients, still there for others."""

    async def main() -> None:
        parts = Parts(tmp_path)
        topic_id = parts.create()
        await until(lambda: len(list(parts.replicas)) == PARTITIONS)
        os.rename(tmp_path / "t-0", tmp_path / "elsewhere")
        finished(parts.controller.delete_topics([topic_id]))
        assert not list(parts.replicas)
        await until(lambda: not list(tmp_path.glob("t-[0-9]")))
        for index in (0, 1, PARTITIONS - 1):
            with pytest.raises(UnknownTopicOrPartitionError):
                parts.replicas.partition("t", index)
        parts.stop()

    uvloop.run(main())


def test_a_stop_while_a_topic_is_made_loses_no_partition(tmp_path: Path) -> None:
    """A restart at the wrong moment would leave a topic with holes."""

    async def main() -> None:
        parts = Parts(tmp_path)
        parts.create()
        parts.stop()
        again = Parts(tmp_path)
        assert again.replicas.partition("t", PARTITIONS - 1).log.log_end_offset == 0
        await until(lambda: len(list(again.replicas)) == PARTITIONS)
        again.stop()

    uvloop.run(main())


def test_a_topic_with_another_leader_alone_keeps_the_settings_of_its_logs(tmp_path: Path) -> None:
    """A broker of thousands of topics would look at all its logs whenever another broker goes."""

    async def main() -> None:
        parts = Parts(tmp_path)
        parts.create()
        partition = parts.replicas.partition("t", 0)
        old = ClusterImage.of("c", topics=[TopicImage("t", b"t" * 16, (PartitionImage(0, 1, 0, (1,), (1,)),))])
        moved = replace(old.topics["t"], partitions=(PartitionImage(0, 2, 1, (1, 2), (2,)),))
        kept = partition.log.config
        parts.replicas.roles.note_topics(old, old, MetadataDelta(changed=(TopicChange(old.topics["t"], moved),)))
        assert partition.log.config is kept
        altered = replace(moved, configs={"retention.ms": "7000"})
        parts.replicas.roles.note_topics(old, old, MetadataDelta(changed=(TopicChange(moved, altered),)))
        assert partition.log.config.retention_ms == 7000
        parts.stop()

    uvloop.run(main())


class NoRoom(FileSystem):
    """Files of a disk on which no log can be made while it is full."""

    is_full = True

    def __init__(self, refuses: str = "a file") -> None:
        self._refuses = refuses
        self.refusals = 0

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_CREAT and path.endswith(".log"):
            self._take("a file", path)
        return super().open(path, flags, mode)

    def mkdir(self, path: str) -> None:
        if path.rpartition("/")[2].startswith("t-"):
            self._take("a directory", path)
        super().mkdir(path)

    def _take(self, what: str, path: str) -> None:
        if self.is_full and what == self._refuses:
            self.refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_a_log_that_found_no_room_is_made_once_there_is_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that was made on a full disk, of the coordinators perhaps, would be offline until the next start."""
    monkeypatch.setattr(logs_without_room, "RETRY_SECONDS", 0.01)

    async def main() -> None:
        files = NoRoom()
        parts = Parts(tmp_path, files)
        led: list[int] = []
        parts.replicas.roles.subscribe("t", led.append)
        topic_id = parts.create(2)
        await until(lambda: parts.replicas.offline_count == 2)
        with pytest.raises(KafkaStorageError):
            parts.replicas.partition("t", 0)
        led.clear()
        files.is_full = False
        await until(lambda: not parts.replicas.offline_count)
        assert parts.replicas.partition("t", 0).log.log_end_offset == 0
        assert led == [0, 1]
        finished(parts.controller.delete_topics([topic_id]))
        files.is_full = True
        parts.create(1)
        await until(lambda: parts.replicas.offline_count == 1)
        parts.replicas.close()
        parts.stop()

    uvloop.run(main())


@pytest.mark.parametrize("refuses", ["a file", "a directory"])
def test_a_log_without_room_is_told_of_once_and_again_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refuses: str
) -> None:
    """A line for each of a topic's partitions every second would be all that the log of a broker shows."""
    monkeypatch.setattr(logs_without_room, "RETRY_SECONDS", 0.01)

    async def main() -> None:
        files = NoRoom(refuses)
        parts = Parts(tmp_path, files)
        parts.create(2)
        await until(lambda: files.refusals > 10)
        files.is_full = False
        await until(lambda: not parts.replicas.offline_count)
        parts.replicas.close()
        parts.stop()

    uvloop.run(main())
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("kbroker")]
    told = [each.partition(":")[0].partition(" in ")[0] for each in ours]
    refused = [
        (
            f"creating log failed for t-{index}",
            f"the log of t-{index} could not be made; it answers KAFKA_STORAGE_ERROR",
        )
        for index in (0, 1)
    ]
    assert told == [*refused[0], *refused[1], *(f"the log of t-{index} is there by now" for index in (0, 1))]


def test_a_topic_that_found_no_room_leaves_nothing_when_it_is_deleted(tmp_path: Path) -> None:
    """Its directories would stay, and the next topic of that name be made in them."""

    async def main() -> None:
        files = NoRoom()
        parts = Parts(tmp_path, files)
        topic_id = parts.create(2)
        await until(lambda: parts.replicas.offline_count == 2)
        assert list(tmp_path.glob("t-*"))
        finished(parts.controller.delete_topics([topic_id]))
        await until(lambda: not [*tmp_path.glob("t-0"), *tmp_path.glob("t-1")])
        files.is_full = False
        parts.create(2)
        assert parts.replicas.partition("t", 1).log.log_end_offset == 0
        parts.replicas.close()
        parts.stop()

    uvloop.run(main())


def test_a_partition_that_a_controller_was_told_is_without_room_is_taken_up_once_there_is_some(tmp_path: Path) -> None:
    """The broker refused it, and its deletion, until its next start, as the controller's next word found it offline."""

    async def main() -> None:
        files = NoRoom()
        parts = Parts(tmp_path, files)
        name, image = TopicPartition("asked", 0), PartitionImage(0, 1, 0, (1,), (1,))
        topic = TopicImage(name.topic, random_uuid(), (image,))
        with pytest.raises(KafkaStorageError):
            parts.replicas.roles.become_replica(topic, image)
        assert parts.replicas.logs.without_room.refused == {name}
        assert parts.replicas.roles.is_offline(name)
        files.is_full = False
        parts.replicas.logs.retry_refused()
        assert not parts.replicas.roles.is_offline(name)
        assert parts.replicas.roles.become_replica(topic, image).log.log_end_offset == 0
        parts.replicas.close()
        parts.stop()

    uvloop.run(main())


def test_a_partition_that_found_no_room_leaves_nothing_when_a_controller_stops_it(tmp_path: Path) -> None:
    """What was made of it would stay until the next start, as no log of it was known."""

    async def main() -> None:
        files = NoRoom()
        parts = Parts(tmp_path, files)
        name, image = TopicPartition("asked", 0), PartitionImage(0, 1, 0, (1,), (1,))
        with pytest.raises(KafkaStorageError):
            parts.replicas.roles.become_replica(TopicImage(name.topic, random_uuid(), (image,)), image)
        assert list(tmp_path.glob("asked-0"))
        files.is_full = False
        parts.replicas.logs.retry_refused()
        parts.replicas.roles.drop(name, delete=True)
        assert not list(tmp_path.glob("asked-0"))
        parts.replicas.close()
        parts.stop()

    uvloop.run(main())
