"""Partitions that leave a directory whose disk fails: the disk that they have gone to is not blamed for it."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from kbroker.storage.files.filesystem import FileSystem
from tests.storage.batches import append, batch
from tests.storage.moves import Inline, Storage


class UnsyncableDirectory(FileSystem):
    """A file system that does not make the names in one directory durable; its errors name no file, as fsync's do."""

    def __init__(self) -> None:
        self.bad = ""

    def fsync_directory(self, path: str) -> None:
        if path == self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def fsync(self, fd: int) -> None:
        pass

    def fdatasync(self, fd: int) -> None:
        pass


@pytest.mark.parametrize("bad", ["a", "b"])
def test_the_directory_that_cannot_be_synced_behind_a_move_is_the_one_that_fails(tmp_path: Path, bad: str) -> None:
    """Partitions that were moved away from a failing disk would go offline with it, and a broker without another
    directory would halt."""

    async def body() -> None:
        files = UnsyncableDirectory()
        storage = Storage(tmp_path, files, executor=Inline())
        storage.lead()
        append(storage.log, batch([b"kept"]))
        take_over = storage.moves._take_over

        def then_fail(future: object) -> str:
            doomed = take_over(future)  # type: ignore[arg-type]
            files.bad = str(tmp_path / bad)
            return doomed

        storage.moves._take_over = then_fail  # type: ignore[method-assign]
        await storage.move(storage.b)
        assert storage.log.parent == storage.b
        assert list(storage.logs.failures.offline) == [str(tmp_path / bad)]
        await storage.moves.stop()

    asyncio.run(body())
