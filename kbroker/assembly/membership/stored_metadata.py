"""The metadata store of a broker that keeps its cluster's metadata: in the first of its log directories."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.store import StoreCalls
from kbroker.periodic import PeriodicTask
from kbroker.startup.metadata_at_start import check_metadata_is_there, check_node_has_partitions
from kbroker.storage.manager.known_directories import claim_with_store

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage
    from kbroker.storage.directories.log_dirs import OpenedDirs
    from kbroker.storage.manager.log_manager import LogManager

SPARE_INTERVAL_MS = 5_000


class StoredMetadata:
    """`calls` runs what writes to `store` in a thread of its own; `open` comes first, `close` ends both."""

    store: LocalStore

    def __init__(self, log_manager: LogManager) -> None:
        self._log_manager = log_manager
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metadata-store")
        self._is_open = False
        self.calls = StoreCalls(self._thread)

    def open(self, dirs: OpenedDirs) -> LocalStore:
        """Open the store, or make one where there is nothing yet.  LogDirError where one should be there."""
        manager = self._log_manager
        check_metadata_is_there(manager.environment.files, manager.online_directories())
        self._directory = dirs.first
        self.store = LocalStore.open(Path(dirs.first) / FILE_NAME, dirs.cluster_id)
        self._is_open = True
        return self.store

    def claim(self, image: ClusterImage, node_id: int, others: Collection[int] = ()) -> None:
        """Bind the log directories to the cluster.  LogDirError where they, or all partitions, are of another node.

        `others`: the ids of the other workers of this host.
        """
        check_node_has_partitions(image, node_id, others)
        claim_with_store(self._log_manager, self.store, self._directory)

    def watch(self) -> None:
        """From now on a store that fails is a log directory that has failed."""
        failed = self._log_manager.failures.maybe_add_offline_log_dir
        self.store.keep_spare()
        self.store.on_failure = lambda reason: failed(self._directory, reason)

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        """What the loop runs from time to time."""
        return (PeriodicTask("keep space for deletions", SPARE_INTERVAL_MS, self.store.keep_spare),)

    def close(self) -> None:
        """A call that is under way comes to its end."""
        self._thread.shutdown(cancel_futures=True)
        if self._is_open:
            self.store.close()
