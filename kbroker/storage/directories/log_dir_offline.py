"""Taking a log directory out of service, and watching those that serve.

Offline, in Kafka's order: it is no directory to place partitions in any more, its checkpoints are not written, the
cleaner leaves it alone, its logs are closed and forgotten, its lock is given back.  Nothing is written to it, so what
lies there is what a restart finds; the partitions' names are returned, for the metadata to tell of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.errors import KafkaStorageError
from kbroker.storage.directories.log_dirs import META_PROPERTIES
from kbroker.storage.log.space_guard import FailedDirectoryGuard
from kbroker.types import TopicPartition, uuid_to_text

if TYPE_CHECKING:
    from kbroker.storage.directories.managed_logs import ManagedLogs

logger = logging.getLogger("kbroker.storage")

SHORT_SPACE_INTERVAL_SECONDS = 0.01
SPACE_INTERVAL_MS = 100
# The interval while no client writes and ROOMY_BYTES are free, which no disk can fill before the next look.
IDLE_SPACE_INTERVAL_MS = 500
ROOMY_BYTES = 4 << 30


def take_offline(manager: ManagedLogs, path: str) -> list[TopicPartition]:
    """Closes everything below a directory that has failed.  The partitions that lay there."""
    refusal = KafkaStorageError(f"Log directory {path} is offline")
    gone = [log for log in manager.logs.values() if log.parent == path]
    for log in gone:
        del manager.logs[log.topic_partition]
        manager.traffic.keep(log)
        log.space_guard = FailedDirectoryGuard(refusal)
        log.local.left = True
        manager.cleaner.forget(log.topic_partition)
        if log.committer is not None:
            log.committer.close(refusal)
        with contextlib.suppress(OSError):
            log.close(clean=False)
    for tp, future in list(manager.plans.futures.items()):
        if path in (future.parent, future.log.parent):
            manager.plans.cancel(tp)
    manager.cleaner.handle_log_dir_failure(path)
    manager.checkpoints.drop(path)
    manager.space_guards[:] = [guard for guard in manager.space_guards if guard.path != path]
    manager.environment.space_guards.pop(path, None)
    for directory in manager.directories:
        if directory.path == path:
            with contextlib.suppress(OSError):
                directory.release()
    logger.error("Log directory %s is offline with %d partitions; the others serve on", path, len(gone))
    return [log.topic_partition for log in gone]


def miss_lost(manager: ManagedLogs, known: Mapping[str, str], keeper: str | None) -> None:
    """Takes directories offline that the broker has used before but that lack `meta.properties`: their disks are not
    mounted.

    `known` has the ids of directories that were used, by path; `keeper` is the directory with the metadata store, which
    is proof enough.  Other files in a directory prove nothing: other programs, and this host's other workers, write
    below a mount point, too.  With such a directory online the broker would create all its partitions anew, and have
    two of each once the disk is back.
    """
    online = manager.online_directories()
    if keeper is None and not any(directory.meta is not None for directory in online):
        return
    for directory in online:
        if directory.meta is None and directory.path in known and directory.path != keeper:
            manager.failures.maybe_add_offline_log_dir(
                directory.path,
                f"it has no {META_PROPERTIES}, but was directory {known[directory.path]}: is its disk mounted?  If its "
                "data are gone for good, stop the broker and run `kbroker format --ignore-formatted` with its settings",
            )


def directory_ids(manager: ManagedLogs) -> dict[str, str]:
    """The ids of the directories that serve, by path."""
    return {each.path: uuid_to_text(each.meta.directory_id) for each in manager.online_directories() if each.meta}


class DirectoryWatch:
    """Looks at every directory in short intervals: whether it is still there, and its free space (`space_guard`).

    A directory that was removed or unmounted gives no error where files are open, so it is asked for its lock file.
    `make_room` is called when a directory begins to refuse: there may be something to delete.  `activity` returns a
    number that changes while clients may write, such as the count of requests; without it every moment is a busy one.
    """

    __slots__ = ("_activity", "_closed", "_make_room", "_manager", "_seen")

    def __init__(
        self,
        manager: ManagedLogs,
        make_room: Callable[[], Awaitable[None]],
        activity: Callable[[], int] | None = None,
    ) -> None:
        self._manager = manager
        self._make_room = make_room
        self._closed: set[str] = set()
        self._seen = -1
        self._activity = activity

    def interval_ms(self) -> int:
        """How long until the next look; asked after each."""
        if self._activity is None:
            return SPACE_INTERVAL_MS
        before, self._seen = self._seen, self._activity()
        idle = self._seen == before and all(guard.is_roomy(ROOMY_BYTES) for guard in self._manager.space_guards)
        return IDLE_SPACE_INTERVAL_MS if idle else SPACE_INTERVAL_MS

    async def run(self) -> None:
        """One look, and more of them close together while space gets short."""
        manager = self._manager
        while True:
            self.look_for_lost()
            for guard in manager.space_guards:
                guard.measure()
            closed = {guard.path for guard in manager.space_guards if guard.is_refusing}
            newly, self._closed = closed - self._closed, closed
            if newly:
                await self._make_room()
            if not any(guard.is_short for guard in manager.space_guards):
                return
            await asyncio.sleep(SHORT_SPACE_INTERVAL_SECONDS)

    def look_for_lost(self) -> None:
        """Reports directories that are not the ones that were opened any more."""
        for directory in self._manager.online_directories():
            try:
                present = directory.is_present()
            except OSError as error:
                self._manager.failures.report(directory.path, "looking at the directory", error)
                continue
            if not present:
                lost = OSError(errno.ENOENT, "the directory was removed or replaced")
                self._manager.failures.maybe_add_offline_log_dir(directory.path, str(lost.strerror))
