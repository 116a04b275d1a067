"""`kbroker export` on recorded directories: what a Kafka will find, and that nothing is lost there and back.

Also of `kbroker.cli.storage.export_kafka`, `kbroker.migration.state_topics`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.snapshots import encoded_snapshot, snapshot_name
from kbroker.metadata.features import Features
from kbroker.metadata.image import ConfigResource, MetadataDelta, PartitionImage, TopicImage
from kbroker.metadata.kafka_metadata import KafkaMetadata
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.migration.export_plan import RELEASES, Node, Stored, UnknownReleaseError, plan_export
from kbroker.migration.exporting import ExportOptions, run_export
from kbroker.migration.importing import run_import
from kbroker.migration.stored_metadata import ExportRefusedError
from kbroker.storage.directories.log_dirs import META_PROPERTIES, decode_meta_properties
from kbroker.types import TopicPartition
from tests.migration.imported import Crash, CrashingFiles, options
from tests.migration.kafka_data import CLUSTER_ID, FILES, META, log_sums, read, sums, unpack


def exported(paths: Sequence[Path], release: str = "4.3.1", **given: Any) -> Any:
    targets = tuple(map(str, given.pop("targets", ())))
    return run_export(FILES, ExportOptions(tuple(map(str, paths)), release, targets, **given))


def imported(version: str, folder: Path) -> list[Path]:
    """Recorded directories of a Kafka, taken over."""
    directories = unpack(version, folder)
    run_import(FILES, options(*directories))
    return directories


def contents(metadata: KafkaMetadata) -> dict[str, Any]:
    """All of a cluster but epochs."""
    return {
        "topics": {each.name: (each.topic_id, sorted(each.partitions)) for each in metadata.topics.values()},
        "configs": metadata.configs,
        "quotas": metadata.quotas,
        "features": metadata.features,
        "security": metadata.security,
    }


@pytest.mark.parametrize(("version", "count"), [("4.3.1", 1), ("3.9.1", 2)])
def test_what_kafka_had_it_gets_back(tmp_path: Path, version: str, count: int) -> None:
    """Who goes back after a trial would miss topics, settings, quotas, ACLs or users."""
    directories = imported(version, tmp_path)
    before, earlier = read(directories[0])
    epochs = {name: each.partitions[0].leader_epoch for name, each in before.topics.items()}
    logs = log_sums(directories)
    report = exported(directories, version)
    assert log_sums(directories) == logs and len(directories) == count and report.plan.left == ()
    after, log = read(directories[0])
    assert contents(after) == contents(before)
    assert {name: each.partitions[0].leader_epoch for name, each in after.topics.items()} == {
        name: epoch + 2 for name, epoch in epochs.items()
    }
    # Behind the end of the log that is there, so that Kafka begins with the snapshot.
    assert log.end_offset > earlier.end_offset and log.epoch == earlier.epoch + 1
    assert not (directories[0] / FILE_NAME).exists() and (directories[0] / f"{FILE_NAME}.exported").exists()
    run_import(FILES, options(*directories))
    assert (directories[0] / FILE_NAME).exists()


def test_what_an_older_import_left_out_goes_back_to_kafka(tmp_path: Path) -> None:
    """ACLs and users that kbroker did not know once would be gone, and a Kafka be open or closed to all."""
    directories = imported("3.9.1", tmp_path)
    before, _ = read(directories[0])
    with sqlite3.connect(directories[0] / FILE_NAME) as connection:
        connection.execute("DELETE FROM cluster WHERE key = 'keeps_security'")
        for table in ("acls", "scram_credentials", "delegation_tokens"):
            connection.execute(f"DELETE FROM {table}")
    connection.close()
    exported(directories, "3.9.1")
    after, _ = read(directories[0])
    assert after.security == before.security and after.security.acls and after.security.scram


def test_a_copy_has_what_kafka_needs_and_the_original_stays(tmp_path: Path) -> None:
    """A Kafka would not start on the copy, or kbroker not any more on its own directories."""
    sources = imported("3.9.1", tmp_path / "kbroker")
    before = sums(sources)
    targets = [tmp_path / "kafka" / "a", tmp_path / "kafka" / "b"]
    report = exported(sources, targets=targets)
    assert sums(sources) == before and log_sums(targets) == log_sums(sources)
    metadata, log = read(targets[0], was_closed=True)
    assert log.epoch == 2 and metadata.next_producer_id >= 1000
    by_name = {each.name: each for each in metadata.topics.values()}
    assert by_name["orders"].partitions[0].isr == (1,)
    ids = {}
    for target in targets:
        meta = decode_meta_properties((target / META_PROPERTIES).read_bytes(), META_PROPERTIES)
        assert (meta.cluster_id, meta.node_id, meta.version) == (CLUSTER_ID, 1, 1)
        assert (target / ".kafka_cleanshutdown").exists() and not (target / FILE_NAME).exists()
        ids[str(target)] = meta.directory_id
    assert (targets[0] / "bootstrap.checkpoint").exists()
    (placed,) = [
        record.value.directories
        for record in report.plan.records
        if record.name == "PartitionRecord"
        and record.value.topic_id == by_name["orders"].topic_id
        and record.value.partition_id == 0
    ]
    assert placed == [ids[str(targets[1])]]


def test_only_what_was_stopped_in_order_is_exported(tmp_path: Path) -> None:
    """Kafka would recover what kbroker has not told it, or take a log for whole that is not."""
    (directory,) = unpack("4.3.1", tmp_path)
    with pytest.raises(ExportRefusedError, match="has no metadata store"):
        exported([directory])
    run_import(FILES, options(directory))
    (directory / ".kafka_cleanshutdown").unlink()
    with pytest.raises(ExportRefusedError, match="was not stopped in order"):
        exported([directory])
    with pytest.raises(UnknownReleaseError, match="known are"):
        exported([directory], "2.8.0")


def test_partitions_that_other_workers_have_are_not_left_behind(tmp_path: Path) -> None:
    """Kafka would make them anew and empty, as its metadata would have them and its directories would not."""
    (directory,) = imported("4.3.1", tmp_path)
    store = LocalStore.open(directory / FILE_NAME)
    theirs = PartitionImage(0, 2, 3, (2, 1), (2,))
    store.write(MetadataDelta(created=(TopicImage("spread", b"s" * 16, (theirs,)),)))
    store.close()
    before = sums([directory])
    with pytest.raises(ExportRefusedError, match="1 partitions, spread-0 among them, are with other workers"):
        exported([directory])
    assert sums([directory]) == before


def test_directories_whose_partitions_the_store_does_not_know_are_refused(tmp_path: Path) -> None:
    """Kafka would set all of them aside as strays."""
    (directory,) = imported("4.3.1", tmp_path)
    for path in directory.glob(f"{FILE_NAME}*"):
        path.unlink()
    LocalStore.open(directory / FILE_NAME, CLUSTER_ID).close()
    with pytest.raises(ExportRefusedError, match="knows none of the partitions in these directories"):
        exported([directory])


def test_a_crash_leaves_a_kbroker_or_a_kafka(tmp_path: Path) -> None:
    """Neither would start, or both, one of them with metadata that the other has changed since."""
    directories = imported("3.9.1", tmp_path)
    calls = 0
    while True:
        before = log_sums(directories)
        try:
            run_export(CrashingFiles(calls), ExportOptions(tuple(map(str, directories)), "4.3.1"))
            break
        except Crash:
            calls += 1
        assert log_sums(directories) == before and (directories[0] / FILE_NAME).exists()
    assert calls >= 3 and not (directories[0] / FILE_NAME).exists()


_NAMES = st.text("abc.-", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
_IDS = st.binary(min_size=16, max_size=16)
_VALUES = st.dictionaries(_NAMES, st.text("xyz1", max_size=5), max_size=3)


@settings(max_examples=25)
@given(
    topics=st.dictionaries(_NAMES, st.tuples(_IDS, st.integers(1, 3), st.integers(0, 9), _VALUES), max_size=4),
    quotas=st.dictionaries(_NAMES, st.floats(0.1, 1e9), max_size=3),
    groups=st.dictionaries(_NAMES, _VALUES, max_size=2),
    release=st.sampled_from(sorted(RELEASES)),
)
def test_a_snapshot_says_what_the_store_says(
    tmp_path_factory: pytest.TempPathFactory,
    topics: dict[str, tuple[bytes, int, int, dict[str, str]]],
    quotas: dict[str, float],
    groups: dict[str, dict[str, str]],
    release: str,
) -> None:
    """A topic, a setting or a quota would be another one in Kafka."""
    if len({each[0] for each in topics.values()}) < len(topics):
        return
    images = [
        TopicImage(
            name,
            topic_id,
            tuple(PartitionImage(number, 7, epoch, (7,), (7,)) for number in range(count)),
            configs=configs,
        )
        for name, (topic_id, count, epoch, configs) in topics.items()
    ]
    configs = {ConfigResource(32, name): values for name, values in groups.items() if values}
    limits = {(("user", name),): {"producer_byte_rate": value} for name, value in quotas.items()}
    stored = Stored(CLUSTER_ID, images, configs, limits, Features(), 5000)
    places = {TopicPartition(name, number): bytes(16) for name, each in topics.items() for number in range(each[1])}
    plan = plan_export(stored, Node(7, 4, [bytes(16)], places), f"{release}.0", {})
    directory = tmp_path_factory.mktemp("snapshot")
    (directory / META_PROPERTIES).write_text(META)
    folder = directory / "__cluster_metadata-0"
    folder.mkdir()
    content = b"".join(encoded_snapshot(plan.records, 3, 1_000))
    (folder / snapshot_name(SnapshotId(2000, 3))).write_bytes(content)
    metadata, log = read(directory, was_closed=True)
    assert (log.end_offset, log.epoch) == (2000, 3)
    found = {each.name: each for each in metadata.topics.values()}
    assert {name: (each.topic_id, len(each.partitions)) for name, each in found.items()} == {
        name: each[:2] for name, each in topics.items()
    }
    for name, (_id, _count, epoch, values) in topics.items():
        assert metadata.topic_configs(name) == values
        assert all(each.leader_epoch == epoch + 1 and each.isr == (7,) for each in found[name].partitions.values())
    has_groups = release >= "4.0"
    assert {key: value for key, value in metadata.configs.items() if key.kind == 32} == (configs if has_groups else {})
    assert len(plan.left) == (0 if has_groups else len(configs))
    assert metadata.quotas == limits and metadata.next_producer_id == 5000
    assert metadata.features == {name: level for name, level in RELEASES[release].items() if level}
