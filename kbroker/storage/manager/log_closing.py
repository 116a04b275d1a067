"""The clean end of a directory's logs: each is brought into its final form, then all are made durable.

A few logs are fsynced file by file, side by side.  Thousands that were never flushed would cost several fsyncs each, so
one call makes the whole file system durable instead.  It fails when anything on the file system could not be written
since the directory was locked.  In that case, and where the system has no such call, each log is fsynced by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kbroker.errors import KafkaError, bare
from kbroker.storage.directories.log_dirs import LogDir
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.recovery.recovery_progress import RecoveryProgress

logger = logging.getLogger("kbroker.storage")

CLOSE_WORKERS = 16
AT_ONCE_FROM = 500

Waiting = list[tuple[UnifiedLog, Callable[[], None]]]


class _Failures:
    """Counts; a full disk fails every log for the same reason, which is said once."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, log: UnifiedLog, error: Exception) -> None:
        self.count += 1
        if self.count == 1:
            logger.error("%s was not closed cleanly: %s", log.topic_partition, error)


def may_end_clean(directory: LogDir, progress: RecoveryProgress) -> bool:
    """Whether a directory's next start may take this stop for a clean one, once its logs are closed.

    If the start was interrupted: whether the stop before it was clean, and no index was being rebuilt.
    """
    if directory.loaded:
        return True
    rebuilding = any(path.startswith(f"{directory.path}/") for path in progress.rebuilding)
    return directory.is_taken and directory.clean and not rebuilding


def close_logs(directory: LogDir, logs: list[UnifiedLog], files: FileSystem) -> bool:
    """Closes the logs of a directory; whether all of them are durable, so that its stop is a clean one."""
    failures = _Failures()
    waiting: Waiting = []
    for log in logs:
        try:
            make_durable = log.prepare_close()
        except (OSError, KafkaError) as error:
            failures.add(log, error)
        else:
            if make_durable is not None:
                waiting.append((log, make_durable))
    if len(waiting) >= AT_ONCE_FROM:
        waiting = _sync_at_once(directory, waiting, files)
    with ThreadPoolExecutor(CLOSE_WORKERS, thread_name_prefix="log-close") as pool:
        futures = [(log, pool.submit(_outcome_of, make_durable)) for log, make_durable in waiting]
        for log, future in futures:
            failed = future.result()
            if failed is not None:
                failures.add(log, failed)
            else:
                log.closed_durably()
    if failures.count:
        logger.error("%d of %d logs were not closed cleanly; the next start recovers them", failures.count, len(logs))
    return failures.count == 0


def _outcome_of(make_durable: Callable[[], None]) -> OSError | None:
    try:
        make_durable()
    except OSError as error:
        return bare(error)  # `close_logs` has the future, and would be one of the error's frames.
    return None


def _sync_at_once(directory: LogDir, waiting: Waiting, files: FileSystem) -> Waiting:
    """Makes the logs on the directory's own file system durable; returns those that are still to be fsynced."""
    try:
        device = files.device(directory.path)
        here = [log for log, _ in waiting if files.device(log.directory) == device]
        if not directory.sync_file_system():
            return waiting
        # Staged files are renamed only now that their content is durable; then the renames must become durable.
        renamed = [log.leader_epoch_cache.put_in_place() for log in here]
        if any(renamed) and not directory.sync_file_system():
            return waiting
    except OSError as error:
        logger.warning("Flushing %s log by log: %s", directory.path, error)
        return waiting
    for log in here:
        log.closed_durably()
    done = set(map(id, here))
    return [(log, make_durable) for log, make_durable in waiting if id(log) not in done]
