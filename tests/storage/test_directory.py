"""Listing a directory and reading small files, done in C for the sake of a start with thousands of partitions.

Also of `kbroker._fast.files.directory`.
"""

from __future__ import annotations

import os
import pathlib
import threading

import pytest

from kbroker.storage.files.filesystem import SYSTEM_FILES, DirectoryEntry


def test_a_listing_has_every_name_with_its_size(tmp_path: pathlib.Path) -> None:
    """A segment that a start does not see is data lost, and a wrong size cuts it."""
    expected = {DirectoryEntry("inner", True, 0)}
    (tmp_path / "inner").mkdir()
    for number in range(300):
        (tmp_path / f"{number:020d}.log").write_bytes(b"x" * number)
        expected.add(DirectoryEntry(f"{number:020d}.log", False, number))
    entries = SYSTEM_FILES.list_directory(str(tmp_path))
    assert len(entries) == 301
    assert set(entries) == expected


def test_a_listing_follows_links_and_takes_any_name(tmp_path: pathlib.Path) -> None:
    """Partitions linked in from another disk would vanish, or one odd name would keep the broker from starting."""
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "to-file").symlink_to(tmp_path / "file")
    odd = os.fsdecode(b"caf\xe9\xff")
    (tmp_path / odd).write_bytes(b"")
    (tmp_path / "\u540d\u524d").write_bytes(b"1")
    entries = {entry.name: (entry.is_directory, entry.size) for entry in SYSTEM_FILES.list_directory(str(tmp_path))}
    assert entries == {
        "real": (True, 0),
        "linked": (True, 0),
        "file": (False, 5),
        "to-file": (False, 5),
        odd: (False, 0),
        "\u540d\u524d": (False, 1),
    }


def test_files_that_are_unlinked_meanwhile_do_not_fail_a_listing(tmp_path: pathlib.Path) -> None:
    """A compaction would be given up for a file of its log that a thread deletes just then."""
    (tmp_path / "stays").write_bytes(b"1")
    stopped = threading.Event()

    def come_and_go() -> None:
        while not stopped.is_set():
            names = [tmp_path / f"{number:020d}.timeindex.1.deleted" for number in range(50)]
            for name in names:
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
            for name in names:
                name.unlink()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(10_000):
            assert DirectoryEntry("stays", False, 1) in SYSTEM_FILES.list_directory(str(tmp_path))
    finally:
        stopped.set()
        thread.join()


def test_a_link_to_nothing_fails_a_listing(tmp_path: pathlib.Path) -> None:
    """A partition linked in from a disk that is not mounted would count as one that is not there, and be made anew."""
    (tmp_path / "orders-0").symlink_to(tmp_path / "missing" / "orders-0")
    with pytest.raises(FileNotFoundError):
        SYSTEM_FILES.list_directory(str(tmp_path))


def test_errors_of_a_listing_name_the_directory(tmp_path: pathlib.Path) -> None:
    """A start that fails without saying which directory is to blame leaves its user searching."""
    with pytest.raises(FileNotFoundError) as missing:
        SYSTEM_FILES.list_directory(str(tmp_path / "missing"))
    assert missing.value.filename == str(tmp_path / "missing")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        SYSTEM_FILES.list_directory(str(tmp_path / "file"))
    with pytest.raises(ValueError, match="null byte"):
        SYSTEM_FILES.list_directory("a\0b")


def test_errors_of_reading_name_the_file(tmp_path: pathlib.Path) -> None:
    """A failing disk is told from a missing file by these."""
    with pytest.raises(FileNotFoundError) as missing:
        SYSTEM_FILES.read_file(str(tmp_path / "missing"))
    assert missing.value.filename == str(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        SYSTEM_FILES.read_file(str(tmp_path))
    with pytest.raises(ValueError, match="null byte"):
        SYSTEM_FILES.read_file("a\0b")


@pytest.mark.parametrize("size", [0, 1, 43, 4095, 4096, 4097, 8192, 100_000])
def test_a_file_is_read_whole_whatever_its_size(tmp_path: pathlib.Path, size: int) -> None:
    """A checkpoint cut at the size of a buffer would set thousands of logs back."""
    path = tmp_path / "file"
    content = os.urandom(size)
    path.write_bytes(content)
    assert SYSTEM_FILES.read_file(str(path)) == content
