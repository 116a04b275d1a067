"""The metadata store of a broker that keeps its cluster's metadata: in the first of its log directories."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.store import StoreCalls
from kbroker.metrics.readiness import Problem
from kbroker.periodic import PeriodicTask
from kbroker.startup.metadata_at_start import check_metadata_is_there, check_node_has_partitions
from kbroker.startup.strays_at_start import SETTING, check_strays
from kbroker.storage.manager.known_directories import claim_with_store

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage
    from kbroker.storage.directories.log_dirs import OpenedDirs
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.broker")

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

    def claim(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        others: Collection[int] = (),
        directories_of_others: Iterable[str] = (),
    ) -> None:
        """Bind the log directories to the cluster.  LogDirError where they, or all partitions, are of another node, or
        where the store does not know most of them.

        `others`: the ids of the other workers of this host.
        """
        check_node_has_partitions(image, config.node_id, others)
        manager = self._log_manager
        if config.get(SETTING):
            logger.warning(
                "%s is set: partitions that the metadata store does not know are set aside, however many there are. "
                "Leave it out from the next start on",
                SETTING,
            )
        else:
            paths = [each.path for each in manager.online_directories()]
            check_strays(manager.environment.files, (*paths, *directories_of_others), self.store, image)
        claim_with_store(self._log_manager, self.store, self._directory)

    def watch(self) -> None:
        """From now on a store that fails is a log directory that has failed."""
        failed = self._log_manager.failures.maybe_add_offline_log_dir
        self.store.keep_spare()
        self.store.on_failure = lambda reason: failed(self._directory, reason)

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        """What the loop runs from time to time."""
        return (PeriodicTask("keep space for deletions", SPARE_INTERVAL_MS, self.store.keep_spare),)

    def problems(self) -> Iterable[Problem]:
        """The damages of the store, for as long as what was kept of them is there."""
        return [Problem(each.text) for each in self.store.damages if each.path.exists()]

    def close(self) -> None:
        """A call that is under way comes to its end."""
        self._thread.shutdown(cancel_futures=True)
        if self._is_open:
            self.store.close()
