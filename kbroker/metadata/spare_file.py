"""Disk space that is kept for one thing: changing the metadata when the disk is full.

Deleting topics frees a full disk, but the metadata store needs a few pages for that, and also to record that another
disk has failed.  The spare file holds that many pages; it is deleted when the store finds no space, and made again when
there is some.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

logger = logging.getLogger("kbroker.metadata")

SPARE_BYTES = 1 << 20
SUFFIX = ".spare"


class SpareFile:
    """The file next to `path`.  Nothing here raises: without it the store works as it would without it."""

    __slots__ = ("_held", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + SUFFIX)
        self._held = False

    def hold(self) -> None:
        """Make it if it is not there in full; leaves nothing half made."""
        if self._held:
            return
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        try:
            os.posix_fallocate(fd, 0, SPARE_BYTES)
            self._held = True
        except OSError as error:
            logger.debug("no space for %s: %s", self._path, error)
            with contextlib.suppress(OSError):
                self._path.unlink()
        finally:
            os.close(fd)

    def give_up(self) -> bool:
        """Free its space; whether there was any."""
        self._held = False
        try:
            self._path.unlink()
        except OSError:
            return False
        logger.warning("the disk is full: gave up %s, so that the metadata can be changed", self._path)
        return True
