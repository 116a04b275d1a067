"""What happens to partitions when a log directory fails, on the event loop.

    channel wakes the loop -> logs closed -> image without their leaders -> clients get errors, groups move away

As in Kafka a partition on a failed directory has no leader, an empty ISR and this broker as an offline replica in the
metadata, and everything that asks for its records is answered with KAFKA_STORAGE_ERROR.  `leader_changes` says which
leader epochs are published.

The first directory has the metadata: without it, or without any directory left, the broker halts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.replication.leader_changes import offline_delta

if TYPE_CHECKING:
    import asyncio

    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.store import MetadataStore
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.replication")


class LogDirFailureHandler:
    """`halt` is called, once, with the reason why the broker cannot go on."""

    __slots__ = ("_cache", "_halt", "_halted", "_log_manager", "_loop", "_node_id", "_store")

    def __init__(
        self,
        log_manager: LogManager,
        cache: MetadataCache,
        store: MetadataStore,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        halt: Callable[[str], None],
    ) -> None:
        self._log_manager = log_manager
        self._cache = cache
        self._store = store
        self._node_id = node_id
        self._loop = loop
        self._halt = halt
        self._halted = False

    def start(self) -> None:
        """From now on act on failures, those that wait already included."""
        self._log_manager.failures.listen(lambda: self._loop.call_soon_threadsafe(self.handle_log_dir_failures))

    def stop(self) -> None:
        """The broker stops: what fails now is for the next start to find."""
        self._log_manager.failures.listen(None)

    def handle_log_dir_failures(self) -> None:
        """Take every directory that has failed since the last time offline."""
        gone = self._log_manager.drop_failed()
        if gone:
            delta = offline_delta(self._cache.image, self._node_id, frozenset(gone), self._store)
            self._cache.publish(self._cache.image.with_topics(delta), delta)
        reason = reason_to_halt(self._log_manager)
        if reason is not None and not self._halted:
            self._halted = True
            self._halt(reason)


def reason_to_halt(log_manager: LogManager) -> str | None:
    """Why the broker cannot go on with the directories that are left; None when it can."""
    offline = log_manager.failures.offline
    if not log_manager.online_directories():
        reasons = "; ".join(f"{path}: {reason}" for path, reason in offline.items())
        return f"all log directories have failed ({reasons})"
    first = log_manager.directories[0].path
    if first in offline:
        return f"log directory {first}, which has the metadata, has failed ({offline[first]})"
    return None
