"""Log directories that have failed: who reports it, what counts as a failure, and how the report reaches its consumer.

    I/O error anywhere -> report -> (each directory once) -> queue -> wake -> the loop takes the directory offline

Code that meets an I/O error, on the loop or on a thread, reports it here.  The queue is bounded: only directories of
`log.dirs` enter, each of them once.  A directory that is offline stays so until the broker is started again.

Not every error is the disk's.  A disk without space refuses what needs space and heals by itself (`space_guard`); a
process without descriptors or memory has another cause; a single file that is gone concerns its partition, as long as
the directory with its lock is there.  A failed fsync counts even for lack of space, because the content of the disk is
unknown then.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.storage")

WITNESS_FILE = ".lock"
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NOT_THE_DISK = NO_SPACE | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EBADF}


@contextmanager
def suppressing_no_space() -> Iterator[None]:
    """Suppresses the lack of space for writes that can be left out without a loss; raises every other error."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise


class LogDirFailureChannel:
    """From any thread to the one that takes directories offline.  Without `listen` failures wait in the queue."""

    __slots__ = ("_files", "_lock", "_paths", "_queue", "_reasons", "_wake")

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._paths: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._queue: list[str] = []
        self._wake: Callable[[], object] | None = None

    def watch(self, paths: Iterable[str]) -> None:
        """The directories that can fail; errors elsewhere are ignored here."""
        for path in paths:
            self._paths[path] = self._paths[os.path.realpath(path)] = path

    def listen(self, wake: Callable[[], object] | None) -> None:
        """Call `wake`, from any thread, when a directory has entered the queue; at once if one has already."""
        self._wake = wake
        if wake is not None and self._queue:
            wake()

    def is_offline(self, path: str) -> bool:
        """Whether the directory has failed."""
        return path in self._reasons

    @property
    def offline(self) -> dict[str, str]:
        """The directories that have failed, each with the reason, in the order of their failures."""
        return dict(self._reasons)

    def parent_of(self, path: str) -> str | None:
        """The log directory that a file or directory lies in."""
        return next((named for each, named in self._paths.items() if path == each or path.startswith(f"{each}/")), None)

    def report(self, path: str, what: str, error: BaseException | None, *, fsync: bool = False) -> bool:
        """An operation on a file or directory at `path` failed: queues its log directory if that has failed.

        Returns whether it has.  `fsync`: the operation was an fsync.
        """
        if not isinstance(error, OSError) or error.errno is None:
            return False
        if error.errno in NOT_THE_DISK and not (fsync and error.errno in NO_SPACE):
            return False
        parent = self.parent_of(path)
        if parent is None:
            return False
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and self._has_witness(parent):
            return False
        self.maybe_add_offline_log_dir(parent, f"{what}: {error.strerror or error}")
        return True

    def report_read(self, fd: int, error: OSError) -> bool:
        """The same for an open file that could not be read."""
        return self.report(str(Path(f"/proc/self/fd/{fd}").readlink()), "reading records", error)

    def maybe_add_offline_log_dir(self, path: str, reason: str) -> bool:
        """Puts a directory into the queue, once; False when it was reported before."""
        with self._lock:
            if path in self._reasons or path not in self._paths:
                return False
            self._reasons[path] = reason
            self._queue.append(path)
        logger.error(
            "Log directory %s has failed (%s): it is taken offline until the broker is restarted", path, reason
        )
        wake = self._wake
        if wake is not None:
            wake()
        return True

    def take_next_offline_log_dir(self) -> str | None:
        """The next directory to take offline; None when there is none.  Never waits."""
        with self._lock:
            return self._queue.pop(0) if self._queue else None

    def _has_witness(self, parent: str) -> bool:
        try:
            return self._files.exists(f"{parent}/{WITNESS_FILE}")
        except OSError:
            return False
