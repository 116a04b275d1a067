"""A write-ahead log of the metadata store that is damaged: what SQLite leaves out of it is said, and kept.

Also of `kbroker.metadata.wal`, `kbroker.metadata.kept_damage`.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.metadata.image import MetadataDelta, PartitionImage, TopicImage
from kbroker.metadata.kept_damage import kept_damages
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.store import CorruptMetadataError, MetadataStoreError
from kbroker.metadata.wal import HEADER_BYTES, Copied, ignored_end
from kbroker.types import random_uuid
from tests.metadata.wal_files import FILE, FRAME, IN_FRAME, IN_HEADER, PAGE, Crashed, commits, flipped, frame_at

TOPICS = tuple(f"topic-{number}" for number in range(8))


def one_partition(name: str) -> TopicImage:
    return TopicImage(name, random_uuid(), (PartitionImage(0, 1, 0, (1,), (1,)),))


def fill(directory: Path, prepare: Callable[[LocalStore], object] = lambda store: None) -> Crashed:
    """A store with all TOPICS in its WAL, as a process leaves it that is killed."""
    directory.mkdir(exist_ok=True)
    path = directory / FILE
    with closing(LocalStore.open(path)) as store:
        prepare(store)
        wal = path.with_name(f"{FILE}-wal")
        ends = []
        for name in TOPICS:
            partitions = tuple(PartitionImage(number, 1, 0, (1,), (1,)) for number in range(3))
            store.write(MetadataDelta(created=(TopicImage(name, random_uuid(), partitions),)))
            ends.append(commits(wal.read_bytes())[-1])
        return Crashed(path.read_bytes(), wal.read_bytes(), tuple(ends))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    def empty_wal(store: LocalStore) -> None:
        # The tables are in the database, and the WAL has the topics alone.
        with closing(sqlite3.connect(store.path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return fill(tmp_path_factory.mktemp("crashed"), empty_wal)


def as_sqlite_reads(path: Path, scratch: Path) -> list[str]:
    """The topics that SQLite finds, asked of a copy."""
    scratch.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", scratch / f"{FILE}{suffix}")
    with closing(sqlite3.connect(scratch / FILE)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM topics ORDER BY name")]


def damages() -> Iterator[tuple[str, Callable[[Crashed], bytes]]]:
    """Each region of the header, and of the first and last frame of the first, a middle and the last transaction."""
    for region, at in IN_HEADER.items():
        yield f"header, {region}", lambda store, at=at: flipped(store.wal, at)
    for which in (0, len(TOPICS) // 2, -1):
        for region in IN_FRAME:
            yield (
                f"last frame of transaction {which}, {region}",
                lambda store, which=which, region=region: flipped(store.wal, frame_at(store.ends[which], region)),
            )
            yield (
                f"first frame of transaction {which}, {region}",
                lambda store, which=which, region=region: flipped(
                    store.wal, frame_at(0 if not which else store.ends[which - 1] + 1, region)
                ),
            )


@pytest.mark.parametrize(("_what", "damage"), [*damages()], ids=[each[0] for each in damages()])
def test_what_sqlite_leaves_out_is_said(
    crashed: Crashed,
    _what: str,
    damage: Callable[[Crashed], bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Topics, ACLs and users would go back to what they were, and no line would say so."""
    path = crashed.put(tmp_path / "store", damage(crashed))
    left = as_sqlite_reads(path, tmp_path / "scratch")
    lost = len(TOPICS) - len(left)
    end = ignored_end(path)
    assert lost > 0
    assert end is not None
    assert (end.transactions, end.copied) == (lost, Copied.NOT)
    # What was written last may have been cut short; what is behind a salt that a right sum belies, was not.
    assert end.is_certain == (lost > 1 or "salt" in _what or "header" in _what)
    with closing(LocalStore.open(path)) as store:
        assert [each.name for each in store.topics()] == left
        (kept,) = store.damages
        assert f"({end.frames} frame" in kept.text
    assert [(each.levelno, each.message) for each in caplog.records if each.levelno >= logging.WARNING] == [
        (logging.ERROR if end.is_certain else logging.WARNING, kept.text[0].upper() + kept.text[1:])
    ]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_flipped_bit_that_costs_a_topic_is_said(
    crashed: Crashed, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A place that the table above does not have would cost topics in silence, or be reported without a loss."""
    at = data.draw(st.integers(0, len(crashed.wal) - 1))
    directory = tmp_path_factory.mktemp("flipped")
    path = crashed.put(directory / "store", flipped(crashed.wal, at, data.draw(st.integers(0, 7))))
    end = ignored_end(path)
    lost = len(TOPICS) - len(as_sqlite_reads(path, directory / "scratch"))
    assert (0 if end is None else end.transactions) == lost
    shutil.rmtree(directory)


def test_what_a_crash_cuts_short_is_not_said(crashed: Crashed, tmp_path: Path) -> None:
    """Each kill while a topic is made would be called damage, and the next real one be taken for another of these."""
    begins = HEADER_BYTES + (crashed.ends[-2] + 1) * FRAME
    last = HEADER_BYTES + crashed.ends[-1] * FRAME
    for length in (0, 31, HEADER_BYTES, HEADER_BYTES + 7, begins, begins + 24, last, last + 24, len(crashed.wal) - 1):
        assert ignored_end(crashed.put(tmp_path, crashed.wal[:length])) is None
    # The file had its new length, and not its new bytes.
    assert ignored_end(crashed.put(tmp_path, crashed.wal[:begins].ljust(len(crashed.wal), b"\0"))) is None
    assert ignored_end(crashed.put(tmp_path, bytes(len(crashed.wal)))) is None
    assert ignored_end(crashed.put(tmp_path, crashed.wal)) is None


def test_frames_of_an_earlier_time_are_not_said(tmp_path: Path) -> None:
    """A WAL begins again over its old frames: each crash of a store that has lived would be called damage."""

    def begin_again(store: LocalStore) -> None:
        for number in range(20):
            store.write(
                MetadataDelta(
                    created=(TopicImage(f"a-{number}", random_uuid(), (PartitionImage(0, 1, 0, (1,), (1,)),)),)
                )
            )
        with closing(sqlite3.connect(store.path)) as other:
            assert other.execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0] == 0

    crashed = fill(tmp_path / "first", begin_again)
    assert len(crashed.wal) > HEADER_BYTES + (crashed.ends[-1] + 2) * FRAME, "no frame of an earlier time is left"
    path = crashed.put(tmp_path / "store", crashed.wal)
    assert ignored_end(path) is None
    # Damage in front of them counts what is of this time alone.
    path = crashed.put(tmp_path / "store", flipped(crashed.wal, frame_at(crashed.ends[2], "page")))
    end = ignored_end(path)
    assert end is not None
    assert (end.transactions, end.is_certain) == (len(TOPICS) - 2, True)


def checkpointed(crashed: Crashed, directory: Path) -> bytes:
    """The database once all of the WAL is in it."""
    path = crashed.put(directory, crashed.wal)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@pytest.mark.parametrize("at", [26, frame_at(3, "page"), frame_at(5, "salt 1")])
def test_a_damaged_wal_that_is_in_the_database_costs_nothing(
    crashed: Crashed, at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite would cover the newer pages of the database by the older ones that it takes: topics and rows mixed of two
    times."""
    whole = Crashed(checkpointed(crashed, tmp_path / "whole"), crashed.wal, crashed.ends)
    path = whole.put(tmp_path / "store", flipped(crashed.wal, at))
    with closing(LocalStore.open(path)) as store:
        assert [each.name for each in store.topics()] == list(TOPICS)
        assert not store.damages
    assert any("nothing is lost" in each for each in caplog.messages)


def test_a_checkpoint_that_was_under_way_over_a_damaged_wal_is_refused(crashed: Crashed, tmp_path: Path) -> None:
    """No part of the files makes a state that the store ever had."""
    whole = checkpointed(crashed, tmp_path / "whole")
    # Pages are copied in their order: the first that differs is there, the others are not yet.
    old = crashed.database.ljust(len(whole), b"\0")
    first = next(at for at in range(0, len(whole), PAGE) if whole[at : at + PAGE] != old[at : at + PAGE])
    database = old[:first] + whole[first : first + PAGE] + old[first + PAGE :]
    path = Crashed(database, crashed.wal, crashed.ends).put(tmp_path, flipped(crashed.wal, frame_at(1, "page")))
    with pytest.raises(CorruptMetadataError, match="a checkpoint had copied a part"):
        LocalStore.open(path)
    assert path.read_bytes() == database


def test_what_was_ignored_is_kept_until_it_is_removed(
    crashed: Crashed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next change would be written over the only copy of what was lost, and the next start know nothing of it."""
    damaged = flipped(crashed.wal, frame_at(crashed.ends[2], "page"))
    path = crashed.put(tmp_path, damaged)
    for _ in range(3):
        with closing(LocalStore.open(path)) as store:
            store.write(
                MetadataDelta(created=(TopicImage("new", random_uuid(), (PartitionImage(0, 1, 0, (1,), (1,)),)),))
            )
            store.write(MetadataDelta(deleted=tuple(each for each in store.topics() if each.name == "new")))
            (kept,) = store.damages
            assert f"{len(TOPICS) - 2} transactions" in kept.text
    assert kept.path.read_bytes() == crashed.database
    assert kept.path.with_name(f"{kept.path.name}-wal").read_bytes() == damaged
    assert sum(each.startswith("The metadata store was damaged") for each in caplog.messages) == 3
    for each in tmp_path.glob("*.damaged-*"):
        each.unlink()
    assert not kept_damages(path)


def test_a_killed_start_over_a_damaged_wal_does_not_find_it_again(crashed: Crashed, tmp_path: Path) -> None:
    """Each crash after it would find the frames that were ignored once, behind the new ones, and keep another copy."""
    path = crashed.put(tmp_path / "store", flipped(crashed.wal, frame_at(crashed.ends[2], "page")))
    with closing(LocalStore.open(path)) as store:
        store.write(MetadataDelta(created=(one_partition("new"),)))
        left = Crashed(path.read_bytes(), path.with_name(f"{FILE}-wal").read_bytes(), ())
    assert ignored_end(left.put(tmp_path / "after", left.wal)) is None


def test_without_room_for_the_copy_nothing_is_written_over(
    crashed: Crashed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only copy of what was lost would be gone because the disk was full."""

    def full(_source: Path, target: Path) -> None:
        target.write_bytes(b"a part")
        raise OSError(28, "No space left on device")

    damaged = flipped(crashed.wal, frame_at(crashed.ends[2], "page"))
    path = crashed.put(tmp_path, damaged)
    with monkeypatch.context() as context:
        context.setattr(shutil, "copyfile", full)
        with pytest.raises(MetadataStoreError, match="No space left on device"):
            LocalStore.open(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [FILE, f"{FILE}-wal"]
    assert path.with_name(f"{FILE}-wal").read_bytes() == damaged
