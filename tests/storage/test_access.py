"""What is said of log directories that the broker may not write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

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
    assert f"cannot be made: {tmp_path} may not be written by user 999" in str(raised.value)
    assert f"`sudo install -d -o 999 {tmp_path}/a/b`" in str(raised.value)
