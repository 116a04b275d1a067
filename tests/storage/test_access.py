"""What is said of log directories that the broker may not write."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kbroker.storage.directories.access import access_refused
from kbroker.storage.directories.log_dirs import LogDirError, open_directories
from tests.storage.batches import UnsyncedFiles


class Refusing(UnsyncedFiles):
    """Files of another user."""

    __slots__ = ()

    def makedirs(self, path: str) -> None:
        if not os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)


def test_a_directory_below_one_that_may_not_be_searched_is_named_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason would be lost with the look for it."""
    closed, stat = tmp_path / "closed", Path.stat

    def refusing(path: Path, **options: Any) -> os.stat_result:
        if closed in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    closed.mkdir()
    monkeypatch.setattr(Path, "stat", refusing)
    monkeypatch.setattr(os, "geteuid", lambda: 999)
    refusal = access_refused(str(closed / "a"))
    assert refusal.reason.startswith(f"cannot be made: {closed} may not be written by user 999")


def test_a_directory_of_another_user_is_told_with_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who mounts a directory into a container would read "Permission denied", and not whose it must be."""
    monkeypatch.setattr(os, "geteuid", lambda: 999)
    owner = tmp_path.stat().st_uid
    with pytest.raises(LogDirError) as raised:
        open_directories(Refusing(), [str(tmp_path)])
    assert f"{tmp_path} may not be written by user 999: it belongs to user {owner}" in str(raised.value)
    assert f"`sudo chown -R 999 {tmp_path}`" in str(raised.value)
    with pytest.raises(LogDirError) as raised:
        open_directories(Refusing(), [str(tmp_path / "a" / "b")])
    assert f"cannot be made: {tmp_path} may not be written by user 999: it belongs to user {owner}" in str(raised.value)
    assert f"`sudo install -d -o 999 {tmp_path}/a/b`" in str(raised.value)
