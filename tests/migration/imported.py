"""Directories of Kafka, and what an import makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.migration.importing import ImportOptions
from tests.storage.batches import UnsyncedFiles


def options(*paths: Path, **given: Any) -> ImportOptions:
    targets = tuple(map(str, given.pop("targets", ())))
    return ImportOptions(tuple(map(str, paths)), targets, **given)


class Crash(Exception):
    """Stands for the end of the process."""


class CrashingFiles(UnsyncedFiles):
    """Ends at the n-th call that changes something."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def copy_file(self, source: str, target: str) -> None:
        self._count()
        super().copy_file(source, target)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def mkdir(self, path: str) -> None:
        self._count()
        super().mkdir(path)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)
