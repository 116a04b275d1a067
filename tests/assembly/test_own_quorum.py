"""What a broker that is its quorum's one controller makes of the log directories that it finds.

Also of `kbroker.migration.takeover`, `kbroker.migration.stored_metadata`, `kbroker.cluster.kraft.new_log`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.assembly.own_quorum import format_alone, make_ready
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.kraft.bootstrap import first_records
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.config import BrokerConfig
from kbroker.metadata.image import ConfigResource, MetadataDelta, PartitionImage, TopicImage
from kbroker.metadata.kafka_metadata import KafkaMetadata
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.security_image import ScramCredential, ScramKey, SecurityDelta
from kbroker.migration.metadata_log import MetadataLog
from kbroker.storage.directories.log_dirs import (
    CLUSTER_METADATA_DIRECTORY,
    LogDirError,
    MetaProperties,
    encode_meta_properties,
)
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.partition_metadata import encode_partition_metadata
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import random_uuid
from tests.descriptors import close_below
from tests.storage.batches import UNSYNCED_FILES
from tests.storage.faulty_files import CrashedError, Fault, FaultyFiles, each_crash

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = bytes(range(1, 16)) + b"\0"
VOTERS = {"controller.quorum.voters": "1@localhost:9093"}
FOUND = {"controller.quorum.bootstrap.servers": "localhost:9093"}
EACH_QUORUM = pytest.mark.parametrize("quorum", [VOTERS, FOUND], ids=["static", "dynamic"])


def settings(data: Path, quorum: dict[str, str], **others: str) -> BrokerConfig:
    """Of a node that is broker and controller."""
    return BrokerConfig.from_mapping(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "log.dirs": str(data),
            **quorum,
            **others,
        }
    )


@contextmanager
def opened(config: BrokerConfig, files: FileSystem = UNSYNCED_FILES) -> Iterator[LogManager]:
    """The node's directories, locked."""
    manager = LogManager(config, SYSTEM_CLOCK, files)
    manager.open_dirs()
    try:
        yield manager
    finally:
        for each in manager.directories:
            each.release()


def ready(config: BrokerConfig, files: FileSystem = UNSYNCED_FILES) -> str:
    """The cluster's id, once the directories are made ready."""
    with opened(config, files) as manager:
        found = make_ready(config, manager).cluster_id
    assert found is not None
    return found


def open_as_voter(data: Path) -> Any:
    """What the node's replica begins with.  MetadataLogError where it must not vote."""
    directory = MetadataDirectory(UNSYNCED_FILES, str(data), MetadataLogSettings(), SYSTEM_CLOCK)
    found = directory.open(is_voter=True)
    directory.close()
    return found


def stored(data: Path, partitions: int = 2, topics: tuple[str, ...] = ("t",)) -> None:
    """A directory that a kbroker with a metadata store has left."""
    data.mkdir(parents=True)
    store = LocalStore.open(data / FILE_NAME, CLUSTER)
    made = []
    for number, name in enumerate(topics):
        images = tuple(PartitionImage(each, 1, 3, (1,), (1,), 4) for each in range(partitions))
        topic_id = TOPIC_ID[:-1] + bytes([number])
        made.append(TopicImage(name, topic_id, images, False, {"retention.ms": "777"}))
        for each in range(partitions):
            (data / f"{name}-{each}").mkdir()
            (data / f"{name}-{each}" / "partition.metadata").write_bytes(encode_partition_metadata(topic_id))
    store.write(
        MetadataDelta(
            created=tuple(made),
            configs={ConfigResource(4, "1"): {"log.cleaner.backoff.ms": "12345"}},
            security=SecurityDelta(scram={ScramKey("alice", 1): ScramCredential(b"salt", b"s" * 32, b"k" * 32)}),
        )
    )
    store.close()
    (data / "meta.properties").write_bytes(encode_meta_properties(MetaProperties(CLUSTER, 1, random_uuid())))


def logged(data: Path) -> KafkaMetadata:
    """What the metadata log of a directory says."""
    metadata = KafkaMetadata()
    metadata.replay(MetadataLog(UNSYNCED_FILES, str(data), was_closed=True).records())
    return metadata


def check_taken_over(data: Path) -> None:
    """All of the store is in a log that the node may vote with."""
    assert open_as_voter(data).state.epoch == 1
    found = logged(data)
    (topic,) = found.topics.values()
    assert topic.topic_id == TOPIC_ID and sorted(topic.partitions) == [0, 1]
    assert found.configs[ConfigResource(2, "t")] == {"retention.ms": "777"}
    assert found.configs[ConfigResource(4, "1")] == {"log.cleaner.backoff.ms": "12345"}
    assert [user for user, _ in found.security.scram] == ["alice"]
    assert not (data / FILE_NAME).exists() and (data / f"{FILE_NAME}.exported").exists()


@EACH_QUORUM
def test_new_directories_are_formatted(tmp_path: Path, quorum: dict[str, str]) -> None:
    """A newcomer would have to format them first, although nothing can be lost."""
    config = settings(tmp_path / "data", quorum)
    cluster = ready(config)
    found = open_as_voter(tmp_path / "data")
    assert (found.log.snapshot is None) == ("voters" in str(quorum))
    assert ready(config) == cluster


@EACH_QUORUM
def test_an_earlier_store_becomes_the_log(tmp_path: Path, quorum: dict[str, str]) -> None:
    """Topics, settings and users would be gone with the change."""
    data = tmp_path / "data"
    stored(data)
    config = settings(data, quorum)
    assert ready(config) == CLUSTER
    check_taken_over(data)
    assert ready(config) == CLUSTER
    check_taken_over(data)


@each_crash
def test_a_takeover_that_is_cut_off_is_made_again(tmp_path: Path, fault: Fault) -> None:
    """A crash amid the first start would leave half of the metadata, or neither the store nor the log."""
    for number in range(1, 200):
        data = tmp_path / str(number)
        stored(data)
        config, files = settings(data, FOUND), FaultyFiles(number, fault)
        try:
            ready(config, files)
        except CrashedError:
            close_below(data)
            files.after_crash()
            if (data / FILE_NAME).exists():
                assert ready(config) == CLUSTER
            found = logged(data)
            assert [each.topic_id for each in found.topics.values()] == [TOPIC_ID]
            assert open_as_voter(data).state.epoch >= 1
            continue
        check_taken_over(data)
        return
    pytest.fail("there was a crash at each of 200 calls")


def test_partitions_without_their_metadata_are_refused(tmp_path: Path) -> None:
    """A log that is gone would begin anew, and all partitions would be set aside."""
    data = tmp_path / "data"
    stored(data)
    config = settings(data, VOTERS)
    ready(config)
    for each in (data / CLUSTER_METADATA_DIRECTORY).iterdir():
        each.unlink()
    with pytest.raises(LogDirError, match="there is no metadata log in"):
        ready(config)


def test_partitions_of_a_store_that_is_gone_are_refused(tmp_path: Path) -> None:
    """The same of a store that was to become the log."""
    data = tmp_path / "data"
    stored(data)
    (data / FILE_NAME).unlink()
    with pytest.raises(LogDirError, match="kbroker metadata rebuild"):
        ready(settings(data, FOUND))


def test_a_store_that_knows_too_few_partitions_is_no_log(tmp_path: Path) -> None:
    """A wrong store would have most partitions set aside."""
    data = tmp_path / "data"
    stored(data)
    for each in range(5):
        (data / f"unknown-{each}").mkdir()
    with pytest.raises(LogDirError, match="does not know 5 of the 7 partitions"):
        ready(settings(data, FOUND))
    assert (data / FILE_NAME).exists() and not (data / CLUSTER_METADATA_DIRECTORY).exists()
    assert ready(settings(data, FOUND, **{"kbroker.accept.strays": "true"})) == CLUSTER


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    """Another node's store would become this one's log."""
    data = tmp_path / "data"
    stored(data)
    config = settings(data, {"controller.quorum.voters": "2@localhost:9093"}, **{"node.id": "2"})
    with pytest.raises(LogDirError, match="belongs to node 1"):
        ready(config)
    assert (data / FILE_NAME).exists() and not (data / CLUSTER_METADATA_DIRECTORY).exists()


def test_a_log_in_another_directory_is_named(tmp_path: Path) -> None:
    """Two logs of one node would each say something else."""
    data, other = tmp_path / "data", tmp_path / "other"
    stored(data)
    config = settings(data, VOTERS)
    ready(config)
    (data / f"{FILE_NAME}.exported").rename(data / FILE_NAME)
    other.mkdir()
    (other / "meta.properties").write_bytes(encode_meta_properties(MetaProperties(CLUSTER, 1, random_uuid())))
    moved = settings(data, VOTERS, **{"log.dirs": f"{data},{other}", "metadata.log.dir": str(other)})
    with pytest.raises(LogDirError, match=r"set metadata\.log\.dir="):
        ready(moved)


def test_a_store_beside_a_log_that_has_gone_on_is_refused(tmp_path: Path) -> None:
    """An old store would take the place of what was decided since."""
    data = tmp_path / "data"
    stored(data)
    config = settings(data, VOTERS)
    ready(config)
    segment = max((data / CLUSTER_METADATA_DIRECTORY).glob("*.log"))
    segment.write_bytes(b"records")
    (data / f"{FILE_NAME}.exported").rename(data / FILE_NAME)
    with pytest.raises(LogDirError, match="each says something else"):
        ready(config)
    assert segment.read_bytes() == b"records"


@EACH_QUORUM
def test_the_first_users_of_new_directories_are_in_the_log(tmp_path: Path, quorum: dict[str, str]) -> None:
    """A container's users could not log in at its first start."""
    config = settings(tmp_path / "data", quorum)
    users = {ScramKey("alice", 1): ScramCredential(b"salt", b"s" * 32, b"k" * 32)}
    with opened(config) as manager:
        format_alone(config, UNSYNCED_FILES, manager.directories, manager.directories[0], CLUSTER, users)
    assert ready(config) == CLUSTER
    found = [each.name for each in first_records(UNSYNCED_FILES, str(tmp_path / "data"))]
    assert found.count("UserScramCredentialRecord") == 1
