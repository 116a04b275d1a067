"""What a broker without a metadata store knows of its log directories, whichever of them is away."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import BrokerConfig
from kbroker.storage.directories.log_dirs import META_PROPERTIES, LogDirError
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.manager.known_directories import FILE_NAME, claim_directories
from kbroker.storage.manager.log_manager import LogManager
from tests.storage.failing_directory import FailingDirectory

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def make(root: Path, files: FileSystem | None = None) -> LogManager:
    """Over two directories."""
    config = BrokerConfig.from_mapping({"log.dirs": f"{root}/a,{root}/b"})
    return LogManager(config, SYSTEM_CLOCK, files or FileSystem())


def start(root: Path, files: FileSystem | None = None) -> LogManager:
    """As a member of a cluster."""
    manager = make(root, files)
    manager.open_dirs(first_has_metadata=False)
    claim_directories(manager, CLUSTER)
    return manager


def online(manager: LogManager) -> list[str]:
    """The names of directories that serve."""
    return [Path(directory.path).name for directory in manager.online_directories()]


@pytest.mark.parametrize(("lost", "left"), [("a", "b"), ("b", "a")])
def test_each_directory_knows_of_the_others(tmp_path: Path, lost: str, left: str) -> None:
    """A disk that is not mounted would be filled with partitions that are made anew and empty."""
    start(tmp_path).shutdown()
    shutil.rmtree(tmp_path / lost)
    manager = start(tmp_path)
    assert online(manager) == [left]
    manager.shutdown()


@pytest.mark.parametrize(("bad", "good"), [("a", "b"), ("b", "a")])
def test_any_directory_may_fail_where_none_has_metadata(tmp_path: Path, bad: str, good: str) -> None:
    """A member of a cluster would lose all that it has for one disk that is the first of several."""
    start(tmp_path).shutdown()
    files = FailingDirectory(f"{tmp_path}/{bad}")
    files.fail(errno.EIO)
    manager = start(tmp_path, files)
    assert online(manager) == [good]
    manager.shutdown()


def test_a_directory_that_cannot_be_written_when_it_is_claimed_is_offline(tmp_path: Path) -> None:
    """The start would end for one of several disks."""
    files = FailingDirectory(f"{tmp_path}/a")
    manager = make(tmp_path, files)
    manager.open_dirs(first_has_metadata=False)
    files.fail(errno.EIO, "open")
    claim_directories(manager, CLUSTER)
    assert online(manager) == ["b"]
    manager.shutdown()


def test_there_is_no_start_without_any_directory(tmp_path: Path) -> None:
    """A broker with nowhere to put a partition would be given some."""
    start(tmp_path).shutdown()
    files = FailingDirectory(str(tmp_path))
    files.fail(errno.EIO)
    with pytest.raises(LogDirError, match=r"none of log\.dirs works: .*/a.*/b"):
        make(tmp_path, files).open_dirs(first_has_metadata=False)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', "\xff"])
def test_a_file_that_is_damaged_is_written_anew(tmp_path: Path, content: str) -> None:
    """One byte of a file that others have, too, would keep the broker from starting."""
    start(tmp_path).shutdown()
    whole = json.loads((tmp_path / "b" / FILE_NAME).read_text())
    assert set(whole) == {f"{tmp_path}/a", f"{tmp_path}/b"}
    (tmp_path / "a" / FILE_NAME).write_text(content, encoding="latin-1")
    manager = start(tmp_path)
    assert online(manager) == ["a", "b"]
    manager.shutdown()
    assert json.loads((tmp_path / "a" / FILE_NAME).read_text()) == whole


@pytest.mark.parametrize("left", ["workers", "lost+found", "t-0"])
def test_a_directory_that_does_not_say_whose_it_is_is_not_mounted(tmp_path: Path, left: str) -> None:
    """What anything made below a mount point would pass for the disk, and partitions be made anew there."""
    start(tmp_path).shutdown()
    (tmp_path / "b").rename(tmp_path / "away")
    for _ in range(2):
        (tmp_path / "b" / left).mkdir(parents=True, exist_ok=True)
        manager = start(tmp_path)
        assert online(manager) == ["a"]
        manager.shutdown()
        assert not (tmp_path / "b" / META_PROPERTIES).exists()
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "away").rename(tmp_path / "b")
    manager = start(tmp_path)
    assert online(manager) == ["a", "b"]
    manager.shutdown()


def test_directories_of_which_none_says_whose_it_is_are_taken(tmp_path: Path) -> None:
    """A broker whose files were lost one by one would have no directory to start with."""
    start(tmp_path).shutdown()
    for name in ("a", "b"):
        (tmp_path / name / META_PROPERTIES).unlink()
    manager = start(tmp_path)
    assert online(manager) == ["a", "b"]
    manager.shutdown()


@pytest.mark.parametrize("cluster", ["", f"cluster.id={CLUSTER}\n"])
def test_a_directory_of_another_node_is_refused_with_and_without_a_cluster_id(tmp_path: Path, cluster: str) -> None:
    """A directory of a broker before 0.10.1 would be renumbered by a start that does not say who it is."""
    meta = tmp_path / "a" / META_PROPERTIES
    meta.parent.mkdir()
    meta.write_text(f"version=0\nbroker.id=3\n{cluster}")
    before = meta.read_text()
    with pytest.raises(LogDirError, match="belongs to node 3, but this node is 1"):
        start(tmp_path)
    assert meta.read_text() == before


def test_what_a_directory_lacks_is_written_down(tmp_path: Path) -> None:
    """A directory that names no node would be another one's with each start."""
    meta = tmp_path / "a" / META_PROPERTIES
    meta.parent.mkdir()
    meta.write_text(f"version=0\ncluster.id={CLUSTER}\n")
    start(tmp_path).shutdown()
    assert "node.id=1\n" in meta.read_text()
