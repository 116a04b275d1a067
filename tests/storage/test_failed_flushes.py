"""What an fsync that fails on a thread leaves of its log: `kbroker.storage.log.local_log` keeps the outcome, and
`kbroker.storage.manager.log_closing` waits for it."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbroker.host.garbage import left_by_requests
from kbroker.storage.log.local_log import LocalLog
from kbroker.storage.manager import log_closing
from tests.garbage.uncollected import uncollected
from tests.storage.batches import append, batch
from tests.storage.two_directories import Two


def test_a_log_whose_flush_has_failed_is_freed_with_its_last_reference(tmp_path: Path) -> None:
    """Each log of a directory that fails would stay in memory, with its indexes and producers, as a cycle with the
    error of its flush (seed 728)."""
    two = Two(tmp_path)
    path, lost = two.bad_path, two.bad.topic_partition
    pool, may_run = ThreadPoolExecutor(1), threading.Event()
    pool.submit(may_run.wait)

    def fail() -> None:
        """The directory goes while the flush waits for its thread."""
        append(two.bad, batch())
        two.files.fail(errno.EIO, "fsync")
        two.bad.local.environment.executor = pool
        two.bad.flush_later()
        assert two.bad.local.is_flushing
        two.manager.failures.report(path, "a test", OSError(errno.EIO, "failed"))
        assert two.manager.drop_failed() == [lost]
        two.bad = two.good
        may_run.set()
        pool.shutdown()

    with uncollected() as left:
        fail()
    assert "fsync" in two.files.failed
    assert not left_by_requests(left) and not any(isinstance(each, LocalLog) for each in left)
    left.clear()
    two.manager.shutdown()


def test_a_flush_that_has_failed_keeps_the_recovery_point_and_a_bare_error(tmp_path: Path) -> None:
    """What follows the failure would count as durable at the next start."""
    two = Two(tmp_path)
    two.files.fail(errno.EMFILE, "fsync")
    before = two.bad.recovery_point
    append(two.bad, batch())
    two.bad.flush_later()
    flushes = two.bad.local.flushes_under_way
    two.bad.local.wait_for_flushes()
    error = flushes[-1].result()
    assert isinstance(error, OSError) and error.errno == errno.EMFILE and error.__traceback__ is None
    assert two.bad.local.flush_failed and two.bad.recovery_point == before < two.bad.log_end_offset
    two.files.heal()
    two.manager.shutdown()


def test_logs_that_cannot_be_made_durable_at_a_stop_leave_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs would be a cycle with the errors of their fsyncs, whose futures the stop waits for."""
    monkeypatch.setattr(log_closing.logger, "disabled", True)  # pytest would keep the error with the line.
    two = Two(tmp_path)
    append(two.bad, batch())
    two.bad.local.wait_for_flushes()
    assert two.bad.recovery_point < two.bad.log_end_offset
    two.files.fail(errno.EMFILE, "fsync")
    with uncollected() as left:
        two.manager.shutdown()
    assert "fsync" in two.files.failed, "nothing was flushed"
    assert not two.bad.local.flush_failed, "it was flushed before the stop"
    assert not left_by_requests(left)
