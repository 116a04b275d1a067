"""Logs that were not closed cleanly, opened side by side: reading and checking bytes needs no GIL.

All directories are listed first, so that progress knows what is to do; then the logs with the most to read begin, so
that no thread is left with a long one at the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue

from kbroker.storage.directories.log_dirs import LogDir
from kbroker.storage.log.local_log import LogEnvironment
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.recovery.log_loader import LoadRequest, PreparedLog, finish_log, load_log, prepare_log
from kbroker.storage.recovery.recovery_progress import REPORT_SECONDS, RecoveryProgress
from kbroker.types import Offset, TopicPartition

logger = logging.getLogger("kbroker.storage")

Opener = Callable[[], UnifiedLog]


def recover_logs(
    requests: list[LoadRequest],
    environment: LogEnvironment,
    workers: int,
    progress: RecoveryProgress,
    guard: Callable[[LoadRequest, Opener], UnifiedLog | None],
) -> Iterator[UnifiedLog | None]:
    """The logs in the order in which they are ready.

    `guard` runs on a thread: it calls what opens a log and says what becomes of its errors.  LoadingInterruptedError
    when the start is to end (`RecoveryProgress.interrupted`).
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="log-recovery") as pool:
        prepared = list(pool.map(lambda request: _prepare(request, environment, progress), requests))
        work = sorted(zip(requests, prepared, strict=True), key=_bytes_left, reverse=True)
        done: SimpleQueue[Future[UnifiedLog | None]] = SimpleQueue()
        for request, ready in work:
            pool.submit(guard, request, _opener(request, ready, environment, progress)).add_done_callback(done.put)
        try:
            for _ in work:
                yield _next(done, progress).result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _prepare(request: LoadRequest, environment: LogEnvironment, progress: RecoveryProgress) -> PreparedLog | None:
    """None where that fails: opening the log then fails in the same way, and says so."""
    progress.check()
    try:
        return prepare_log(request, environment)
    except OSError:
        return None


def _opener(
    request: LoadRequest, prepared: PreparedLog | None, environment: LogEnvironment, progress: RecoveryProgress
) -> Opener:
    def open_log() -> UnifiedLog:
        progress.check()
        if prepared is None:
            return load_log(request, environment)
        progress.take_up(prepared.progress)
        return finish_log(prepared)

    return open_log


def _bytes_left(work: tuple[LoadRequest, PreparedLog | None]) -> int:
    return work[1].progress.bytes_left if work[1] is not None else 0


def _next(done: SimpleQueue[Future[UnifiedLog | None]], progress: RecoveryProgress) -> Future[UnifiedLog | None]:
    while True:
        try:
            return done.get(timeout=max(0.0, progress.next_report - time.monotonic()))
        except Empty:
            logger.info("%s", progress.text)
            progress.next_report = time.monotonic() + REPORT_SECONDS


def note_loaded(
    directories: Iterable[LogDir],
    found: Mapping[str, Iterable[LoadRequest]],
    logs: Mapping[TopicPartition, UnifiedLog] | None = None,
) -> None:
    """Notes of which directories all logs are loaded: those that were listed, if `logs`, where given, has all of it."""

    def is_loaded(request: LoadRequest) -> bool:
        log = logs.get(request.topic_partition) if logs is not None else None
        return log is not None and log.directory == request.directory

    for directory in directories:
        requests = found.get(directory.path)
        directory.loaded = requests is not None and (logs is None or all(map(is_loaded, requests)))


def take_saved_points(logs: Iterable[UnifiedLog], requests: Iterable[LoadRequest]) -> None:
    """Ends the saving of recoveries; what they made durable is durable for the logs too."""
    savers = {request.saver for request in requests if request.saver is not None}
    saved: dict[str, Offset] = {}
    for saver in savers:
        saver.close()
        saved.update(saver.saved)
    for log in logs:
        point = saved.get(log.directory)
        if point is not None:
            log.local.recovery_point = max(log.recovery_point, min(point, log.log_end_offset))
