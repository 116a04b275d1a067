"""What is wrong with the log directories, for `/readyz`: those that failed, those without space, logs that refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.metrics.readiness import Problem

if TYPE_CHECKING:
    from kbroker.storage.manager.log_manager import LogManager


def directory_problems(manager: LogManager) -> Iterator[Problem]:
    """One for each directory, and one for all logs whose fsync failed while their directory goes on."""
    for path, reason in manager.failures.offline.items():
        yield Problem(f"log directory {path} has failed and is offline until the broker is started again: {reason}")
    for guard in manager.space_guards:
        if guard.is_refusing:
            yield Problem(f"produce finds no space in log directory {guard.path}: {guard.free_bytes} bytes are left")
    failed = sum(log.local.flush_failed for log in manager.logs.values())
    if failed:
        yield Problem(f"an fsync of {failed} logs has failed: what follows it is checked by the next start")
