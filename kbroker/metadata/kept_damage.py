"""A metadata store whose write-ahead log is damaged: what is done about it before SQLite opens it.

SQLite writes over what it does not read (`wal`), so both files are kept as they were, beside the store, until a person
removes them:

    kbroker-metadata.damaged-20260131T120000123Z.sqlite, and the same with -wal

Each start tells of those that are there, and so do `/readyz` and `kbroker doctor`.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbroker.metadata.store import CorruptMetadataError, MetadataStoreError, damaged
from kbroker.metadata.wal import WAL_SUFFIX, Copied, IgnoredEnd, ignored_end

logger = logging.getLogger("kbroker.metadata")

MARK = ".damaged-"
PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class KeptDamage:
    """A store as it was when it was found damaged.  `end`: what was not read of its WAL; None where that is gone."""

    path: Path
    end: IgnoredEnd | None

    @property
    def text(self) -> str:
        """One line for people: what is lost, and what to do with the files."""
        lost = "changes of topics, settings, ACLs and users were lost" if self.end is None else describe(self.end)
        return (
            f"the metadata store was damaged: {lost}. It is kept as it was in {self.path}, with its {WAL_SUFFIX}: "
            "remove both when what is missing has been made again (docs/operations.md)"
        )


def describe(end: IgnoredEnd) -> str:
    """What is missing, and why."""
    count = "a transaction" if end.transactions == 1 else f"{end.transactions} transactions"
    frames = "a frame" if end.frames == 1 else f"{end.frames} frames"
    if end.is_certain:
        return (
            f"{count} ({frames}) at the end of its write-ahead log cannot be read, since {end.reason}; the topics, "
            "settings, ACLs and users that they changed are as before"
        )
    return (
        f"its last transaction ({frames}) cannot be read, since {end.reason}; if the machine lost its power while it "
        "was written, nothing that was acknowledged is missing"
    )


def settle(path: Path) -> bool:
    """Called before SQLite opens the store.  Whether it will leave something out, of which there is a copy now.

    CorruptMetadataError where the files make no state of the store; MetadataStoreError where there is no room for the
    copy.
    """
    for each in kept_damages(path):
        logger.warning("%s", _sentence(each.text))
    end = ignored_end(path)
    if end is None:
        return False
    if end.copied is Copied.PARTLY:
        raise CorruptMetadataError(
            damaged(path, f"{describe(end)}, and a checkpoint had copied a part of what comes behind")
        )
    if end.copied is Copied.WHOLLY:
        logger.warning(
            "The write-ahead log of the metadata store %s is damaged (%s); the store has all of it: nothing is lost",
            path,
            end.reason,
        )
        _drop_wal(path)
        return False
    kept = KeptDamage(_keep(path), end)
    logger.log(logging.ERROR if end.is_certain else logging.WARNING, "%s", _sentence(kept.text))
    return True


def kept_damages(path: Path) -> Sequence[KeptDamage]:
    """The damaged stores that are kept beside the store at `path`, oldest first."""
    found = sorted(path.parent.glob(f"{path.stem}{MARK}*{path.suffix}"))
    return [KeptDamage(each, ignored_end(each)) for each in found]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _keep(path: Path) -> Path:
    """Copies the store and its WAL: durable, and under its name once both are whole."""
    now = time.time()
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}{int(now * 1000) % 1000:03d}Z"
    kept = path.with_name(f"{path.stem}{MARK}{stamp}{path.suffix}")
    part = _of(kept, PART_SUFFIX)
    try:
        for source, target in ((_of(path, WAL_SUFFIX), _of(kept, WAL_SUFFIX)), (path, part)):
            shutil.copyfile(source, target)
            _sync(target)
        part.rename(kept)
        _sync(path.parent)
    except OSError as error:
        for each in (_of(kept, WAL_SUFFIX), part, kept):
            each.unlink(missing_ok=True)
        raise MetadataStoreError(
            f"the write-ahead log of the metadata store {path} is damaged, and a start would write over it; a copy of "
            f"both cannot be kept: {error}. Make room for that, or restore the store from a backup"
        ) from error
    return kept


def _drop_wal(path: Path) -> None:
    _sync(path)
    _of(path, WAL_SUFFIX).unlink()
    _sync(path.parent)


def _of(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
