"""The SQLite store: what goes in comes out, whole or not at all, and damage is told.

Also of `kbroker.metadata.quota_rows`, `kbroker.metadata.store_tables`, `kbroker.startup.new_store`.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.metadata.image import MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.metadata.local_store import SCHEMA_VERSION, LocalStore
from kbroker.metadata.store import (
    ClusterIdMismatchError,
    CorruptMetadataError,
    MetadataStoreError,
    MetadataVersionError,
)
from kbroker.types import random_uuid, uuid_from_text

FILE = "metadata.sqlite"
node_ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True).map(tuple)


def topic(name: str, partition_count: int = 2, **configs: str) -> TopicImage:
    partitions = tuple(PartitionImage(n, 1, 3, (1, 2), (1,), 5) for n in range(partition_count))
    return TopicImage(name, random_uuid(), partitions, configs=configs)


@st.composite
def topic_images(draw: st.DrawFn) -> TopicImage:
    name = draw(st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,40}", fullmatch=True))
    partitions = []
    for number in range(draw(st.integers(1, 5))):
        replicas = draw(node_ids)
        epochs = (draw(st.integers(0, 2**31 - 1)), draw(st.integers(0, 2**31 - 1)))
        leader = draw(st.sampled_from((-1, *replicas)))
        partitions.append(PartitionImage(number, leader, epochs[0], replicas, replicas[:1], epochs[1]))
    configs = draw(st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=20), max_size=3))
    return TopicImage(name, random_uuid(), tuple(partitions), configs=configs)


@settings(max_examples=25, deadline=None)
@given(st.lists(topic_images(), max_size=5, unique_by=lambda image: image.name))
def test_topics_survive_a_restart(tmp_path_factory: pytest.TempPathFactory, topics: list[TopicImage]) -> None:
    """Topics, replicas, epochs or settings would be lost or changed by a restart."""
    path = tmp_path_factory.mktemp("store") / FILE
    store = LocalStore.open(path)
    store.write(MetadataDelta(created=tuple(topics)))
    store.close()
    store = LocalStore.open(path, store.cluster_id)
    assert store.topics() == sorted(topics, key=lambda image: image.name)
    store.close()


def test_changes_are_read_back(tmp_path: Path) -> None:
    """A grown, altered or deleted topic would come back as it was."""
    store = LocalStore.open(tmp_path / FILE)
    grown, altered, deleted = topic("grown"), topic("altered", a="1"), topic("deleted", a="1")
    store.write(MetadataDelta(created=(grown, altered, deleted)))
    added = PartitionImage(2, 1, 0, (1,), (1,))
    larger = replace(grown, partitions=(*grown.partitions, added))
    changes = (TopicChange(grown, larger), TopicChange(altered, replace(altered, configs={"b": "2"})))
    store.write(MetadataDelta(changed=changes, deleted=(deleted, topic("unknown"))))
    store.close()
    with closing(LocalStore.open(tmp_path / FILE)) as store:
        found = {image.name: image for image in store.topics()}
    assert set(found) == {"grown", "altered"}
    assert found["grown"].partitions == (*grown.partitions, added)
    assert dict(found["altered"].configs) == {"b": "2"}


def test_changed_partitions_are_read_back_and_no_others(tmp_path: Path) -> None:
    """Leader epochs would go back with a restart, and clients take what is older than they know for stale."""
    store = LocalStore.open(tmp_path / FILE)
    changed, other = topic("changed", 3), topic("other", 3)
    store.write(MetadataDelta(created=(changed, other)))
    offline = PartitionImage(1, -1, 4, (1, 2), (), 6)
    leaderless = replace(changed, partitions=(changed.partitions[0], offline, changed.partitions[2]))
    unknown = topic("unknown")
    store.write(
        MetadataDelta(
            changed=(
                TopicChange(changed, leaderless),
                TopicChange(unknown, replace(unknown, partitions=(unknown.partitions[0], offline))),
            )
        )
    )
    store.close()
    store = LocalStore.open(tmp_path / FILE)
    first, second = store.topics()
    assert first.partitions == (changed.partitions[0], offline, changed.partitions[2])
    assert second == other
    store.close()


def test_a_failed_change_leaves_nothing_behind(tmp_path: Path) -> None:
    """Half of a request's topics would exist although the client was told that it failed."""
    with closing(LocalStore.open(tmp_path / FILE)) as store:
        store.write(MetadataDelta(created=(topic("taken"),)))
        with pytest.raises(MetadataStoreError):
            store.write(MetadataDelta(created=(topic("new"), topic("taken"))))
        assert [image.name for image in store.topics()] == ["taken"]
        store.write(MetadataDelta(created=(topic("new"),)))
        assert [image.name for image in store.topics()] == ["new", "taken"]


def test_producer_id_blocks_never_repeat(tmp_path: Path) -> None:
    """Two producers would get one id, and one's records be dropped as the other's duplicates."""
    blocks = []
    for _ in range(3):
        store = LocalStore.open(tmp_path / FILE)
        blocks += [store.allocate_producer_id_block(), store.allocate_producer_id_block()]
        store.close()
    assert [block.first_id for block in blocks] == [0, 1000, 2000, 3000, 4000, 5000]
    assert {block.length for block in blocks} == {1000}


def test_a_new_store_makes_a_cluster_id_in_kafkas_form(tmp_path: Path) -> None:
    """Kafka's tools would not accept the cluster id."""
    with closing(LocalStore.open(tmp_path / FILE)) as store:
        cluster_id = store.cluster_id
    assert len(cluster_id) == 22
    assert len(uuid_from_text(cluster_id)) == 16


def test_the_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """The broker would serve one cluster's data under another cluster's topics."""
    LocalStore.open(tmp_path / FILE, "MkU3OEVBNTcwNTJENDM2Qg").close()
    with pytest.raises(ClusterIdMismatchError, match="belongs to cluster MkU3OEVBNTcwNTJENDM2Qg"):
        LocalStore.open(tmp_path / FILE, "4L6g3nShT-eMCtK--X86sw")


def test_a_newer_schema_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    """An old kbroker would write into a layout that it does not know, or into somebody else's file."""
    LocalStore.open(tmp_path / FILE).close()
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(MetadataVersionError, match=f"schema version 99, this kbroker knows {SCHEMA_VERSION}"):
        LocalStore.open(tmp_path / FILE)
    connection = sqlite3.connect(tmp_path / "other")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(MetadataVersionError, match="not one of kbroker's"):
        LocalStore.open(tmp_path / "other")


def test_skipped_producer_ids_are_not_given_out(tmp_path: Path) -> None:
    """Two producers would have the same id, and one be refused as out of order."""
    store = LocalStore.open(tmp_path / FILE)
    store.skip_producer_ids(4_711)
    assert store.allocate_producer_id_block().first_id == 5_000
    store.skip_producer_ids(17)
    assert store.allocate_producer_id_block().first_id == 6_000
    store.close()


def _filled(path: Path) -> bytes:
    store = LocalStore.open(path)
    store.write(MetadataDelta(created=tuple(topic(f"topic-{number}", 8, a="1") for number in range(60))))
    store.close()
    return path.read_bytes()


def test_garbage_instead_of_a_database_is_told(tmp_path: Path) -> None:
    """The user would see a stack trace instead of which file is broken and what to do."""
    path = tmp_path / FILE
    path.write_bytes(b"not a database at all" * 500)
    with pytest.raises(CorruptMetadataError) as caught:
        LocalStore.open(path)
    assert str(path) in str(caught.value)
    assert ".recover" in str(caught.value)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("page", range(1, 6))
def test_a_damaged_page_is_told_or_harmless(tmp_path: Path, page: int) -> None:
    """A broker would start with some of its topics missing."""
    path = tmp_path / FILE
    original = _filled(path)
    expected = LocalStore.open(path)
    topics = expected.topics()
    expected.close()
    damaged = bytearray(original)
    damaged[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    path.write_bytes(damaged)
    try:
        store = LocalStore.open(path)
        assert store.topics() == topics
        store.close()
    except CorruptMetadataError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM partitions WHERE partition = 0", "its partitions are"),
        ("UPDATE partitions SET replicas = '1,x'", "no readable replicas"),
        ("UPDATE topics SET name = 'bad name' WHERE name = 'topic-7'", "'bad name'"),
        ("DELETE FROM partitions", "its partitions are"),
        ("DELETE FROM cluster", "no cluster id"),
    ],
)
def test_contradicting_rows_are_told(tmp_path: Path, statement: str, told: str) -> None:
    """A partition would be served under another's number."""
    path = tmp_path / FILE
    _filled(path)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(CorruptMetadataError, match=told), closing(LocalStore.open(path)) as store:
        store.topics()


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """The user would not learn which path is wrong."""
    with pytest.raises(MetadataStoreError, match="cannot use the metadata store"):
        LocalStore.open(tmp_path / "no" / "such" / FILE)


CRASH = """
import os, sys
from kbroker.metadata import local_store
from kbroker.metadata.image import MetadataDelta, PartitionImage, TopicImage
store = local_store.LocalStore.open(sys.argv[1])
count = 0
def trace(statement):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os._exit(9)
store._connection.set_trace_callback(trace)
partitions = tuple(PartitionImage(n, 1, 0, (1,), (1,)) for n in range(4))
topics = [TopicImage(f"t{n}", bytes([n]) * 16, partitions, configs={"a": "1"}) for n in (1, 2)]
store.write(MetadataDelta(created=tuple(topics)))
store.allocate_producer_id_block()
store.write(MetadataDelta(deleted=(topics[0],)))
"""


def test_a_crash_at_any_statement_leaves_whole_changes(tmp_path: Path) -> None:
    """After a power cut a topic would have some of its partitions, or a request half of its topics."""
    states = []
    for at in (1, 2, 3, 5, 7, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 10_000):
        path = tmp_path / f"{at}.sqlite"
        process = subprocess.run([sys.executable, "-c", CRASH, str(path), str(at)], check=False, timeout=60)
        assert process.returncode == (0 if at == 10_000 else 9)
        store = LocalStore.open(path)
        topics = store.topics()
        for image in topics:
            assert len(image.partitions) == 4
            assert dict(image.configs) == {"a": "1"}
        states.append(([image.name for image in topics], store.allocate_producer_id_block().first_id))
        store.close()
    allowed = [([], 0), (["t1", "t2"], 0), (["t1", "t2"], 1000), (["t2"], 1000)]
    places = [allowed.index(state) for state in states]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2, 3}
