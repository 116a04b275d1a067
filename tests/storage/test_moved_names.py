"""What a machine that loses its power may take of a partition that has just moved: names that are not durable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.storage.batches import UnsyncedFiles, append, batch
from tests.storage.moves import Storage

VALUE = b"v" * 80


class NotedFiles(UnsyncedFiles):
    """Names that are not durable yet, by directory, and those that the old directory left behind when it went."""

    def __init__(self) -> None:
        self.loose: dict[str, set[str]] = {}
        self.left: list[dict[str, set[str]]] = []

    def rename(self, source: str, target: str) -> None:
        if target.endswith("-delete"):
            self.left.append({folder: set(found) for folder, found in self.loose.items() if found})
        super().rename(source, target)
        self.loose.setdefault(target.rpartition("/")[0], set()).add(target.rpartition("/")[2])

    def fsync_directory(self, path: str) -> None:
        super().fsync_directory(path)
        self.loose.pop(path, None)


@pytest.mark.parametrize("rolls", [False, True])
def test_the_names_in_the_copy_are_durable_before_the_old_directory_goes(rolls: bool, tmp_path: Path) -> None:
    """A power cut took the name of the active segment's copy, and the whole partition with it (seed 688)."""

    async def run() -> None:
        files = NotedFiles()
        storage = Storage(tmp_path, files)
        storage.lead()
        if rolls:
            for at in range(12):
                append(storage.log, batch([VALUE + b"%d" % at]))
        else:
            append(storage.log, batch([VALUE]))
        await storage.move(storage.b)
        assert len(files.left) == 1
        assert not [name for found in files.left[0].values() for name in found if name.endswith(".log")]
        storage.logs.shutdown()

    asyncio.run(run())
