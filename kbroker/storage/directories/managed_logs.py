"""What work on log directories sees of the broker's logs: `LogManager` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbroker.storage.directories.directory_plans import DirectoryPlans
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
    from kbroker.storage.log.kept_traffic import KeptTraffic
    from kbroker.storage.log.local_log import LogEnvironment
    from kbroker.storage.log.space_guard import DirectorySpaceGuard
    from kbroker.storage.log.unified_log import UnifiedLog
    from kbroker.types import TopicPartition


class Cleaner(Protocol):
    """Compaction, of which work on directories takes logs away."""

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is deleted or moved away."""

    def handle_log_dir_failure(self, path: str) -> None:
        """A directory is offline."""


class Checkpoints(Protocol):
    """The offset checkpoints of all log directories."""

    def drop(self, path: str) -> None:
        """A log directory has failed: nothing is written there any more."""


class ManagedLogs(Protocol):
    """All logs of a broker, the directories that they lie in, and who works on them."""

    directories: list[LogDir]
    environment: LogEnvironment
    failures: LogDirFailureChannel
    space_guards: list[DirectorySpaceGuard]
    logs: dict[TopicPartition, UnifiedLog]
    plans: DirectoryPlans
    traffic: KeptTraffic

    @property
    def cleaner(self) -> Cleaner:
        """Compaction."""

    @property
    def checkpoints(self) -> Checkpoints:
        """The offset checkpoints."""

    def online_directories(self) -> Sequence[LogDir]:
        """The directories that serve: opened at start, and not failed since."""
