"""Whether a log may be written to: the watch over the free space of the log directories, and logs that have failed.

    open    free space is at least the reserve (`kbroker.disk.reserve.bytes`)
    closed  it fell below: clients' appends are refused, the rest goes on; it opens again by itself an eighth of the
            reserve above the line, so that a disk at the line does not flap

A write may find no space while the guard is open, as with a reserve of 0 or a quota.  The guard stays open, since a
smaller write may still fit.  The directory counts as refusing until the log of that write grows, or ROOM_BYTES more are
free.

Coordinators (committed offsets, group metadata) may use half of the reserve: consumers can commit their offsets while
the disk is cleared.  Deletion, compaction, checkpoints and the metadata may use all of it.

A log asks its guard with every append, so the open guard costs one attribute.  The logs of a directory share one; a log
whose fsync failed gets one of its own that stays closed.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from kbroker._fast.log.log_fields import SpaceFields
from kbroker.errors import KafkaError, KafkaStorageError, again
from kbroker.outage import Outage
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.types import Offset

SHORT_BYTES = 256 << 20
ROOM_BYTES = 1 << 20

logger = logging.getLogger("kbroker.storage")


class Growing(Protocol):
    """A log, as far as it shows whether appends succeed."""

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""


class _FoundFull(NamedTuple):
    """A write that found no space: which log's, where that ended, and how much was said to be free."""

    log: Growing
    end_offset: Offset
    free_bytes: int


class SpaceGuard(SpaceFields):
    """An open guard."""

    __slots__ = ()

    def __init__(self) -> None:
        self.closed = False

    @property
    def is_refusing(self) -> bool:
        """Whether appends find no space, or are not let through."""
        return self.closed

    def check(self, origin: AppendOrigin) -> None:
        """Raises KafkaStorageError when an append of that origin may not go on; ask when `closed`."""

    def ran_out(self, log: Growing) -> None:
        """A write of a log found no space."""


class FailedDirectoryGuard(SpaceGuard):
    """The guard of a log that must not be written to any more."""

    __slots__ = ("_error",)

    def __init__(self, error: KafkaError) -> None:
        self._error = error
        self.closed = True

    def check(self, origin: AppendOrigin) -> None:
        """Raises the error that closed the guard."""
        raise again(self._error)


class DirectorySpaceGuard(SpaceGuard):
    """The guard of one log directory; `measure` opens and closes it."""

    __slots__ = (
        "_failures",
        "_files",
        "_found_full",
        "_outage",
        "free_bytes",
        "path",
        "refused_count",
        "reserve_bytes",
    )

    def __init__(
        self, files: FileSystem, path: str, reserve_bytes: int, failures: LogDirFailureChannel | None = None
    ) -> None:
        super().__init__()
        self._failures = failures
        self._files = files
        self._found_full: _FoundFull | None = None
        self._outage = Outage(logger, logging.ERROR)
        self.path = path
        self.reserve_bytes = reserve_bytes
        self.free_bytes = 0
        self.refused_count = 0

    @property
    def is_refusing(self) -> bool:
        """Closed, or open but full, as a write has found or the file system says."""
        return self.closed or self._found_full is not None or self.free_bytes <= 0

    @property
    def is_short(self) -> bool:
        """Open, but a few looks away from the reserve at the speed of a fast disk."""
        return not self.closed and self.reserve_bytes > 0 and self.free_bytes < self.reserve_bytes + SHORT_BYTES

    def is_roomy(self, room_bytes: int) -> bool:
        """Open, with that much to spare above the reserve."""
        return not self.closed and self.free_bytes >= self.reserve_bytes + room_bytes

    def keep(self, reserve_bytes: int) -> None:
        """Another reserve counts from now on."""
        if reserve_bytes != self.reserve_bytes:
            self.reserve_bytes = reserve_bytes
            self.measure()

    def measure(self) -> None:
        """Looks at the free space; says so when that opens or closes the guard."""
        try:
            free = self.free_bytes = self._files.free_bytes(self.path)
        except OSError as error:
            if self._failures is not None and self._failures.report(self.path, "looking at the free space", error):
                return
            self._outage.failed("Cannot tell the free space of %s: %s", self.path, error)
            return
        self._outage.over("The free space of %s is known again", self.path)
        reserve = self.reserve_bytes
        if not self.closed and free < reserve:
            self.closed = True
            logger.error(
                "%s has %d bytes left, less than kbroker.disk.reserve.bytes=%d: produce is refused there with "
                "KAFKA_STORAGE_ERROR until there is more; fetch and deletion go on",
                self.path,
                free,
                reserve,
            )
        elif self.closed and free >= reserve + reserve // 8:
            self.closed = False
            logger.warning("%s has %d bytes left: produce is accepted there again", self.path, free)
        full = self._found_full
        if full is not None and (free >= full.free_bytes + ROOM_BYTES or full.log.log_end_offset > full.end_offset):
            self._found_full = None
            logger.warning("%s has %d bytes left: writes find space there again", self.path, free)

    def check(self, origin: AppendOrigin) -> None:
        """KafkaStorageError while the directory is short of space; coordinators may use half of the reserve."""
        if origin is AppendOrigin.COORDINATOR and self.free_bytes >= self.reserve_bytes // 2:
            return
        self.refused_count += 1
        raise KafkaStorageError(f"Log directory {self.path} is short of space")

    def ran_out(self, log: Growing) -> None:
        """A write found no space: the guard stays closed until there is more."""
        self.refused_count += 1
        self.measure()
        if self._found_full is None:
            logger.error("A write found no space in %s, which has %d bytes left", self.path, self.free_bytes)
        self._found_full = _FoundFull(log, log.log_end_offset, self.free_bytes)
