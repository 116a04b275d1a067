"""What `kbroker doctor` says of the metadata store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kbroker.cli.checks.host_checks import Finding, Level

SUBJECT = "metadata store"


def check_store(directory: str, *, is_running: bool) -> Iterator[Finding]:
    """Damage of the store in this log directory: what is kept of earlier damage, and what the next start will find.

    `is_running`: a broker writes to it, and what is under way looks like damage.
    """
    from kbroker.metadata.kept_damage import describe, kept_damages
    from kbroker.metadata.local_store import FILE_NAME
    from kbroker.metadata.wal import Copied, ignored_end

    path = Path(directory) / FILE_NAME
    if not path.is_file():
        return
    kept = kept_damages(path)
    for each in kept:
        yield Finding(
            Level.WARNING, SUBJECT, each.text, f"make again what is missing, then rm {each.path} {each.path}-wal"
        )
    end = None if is_running else ignored_end(path)
    if end is not None:
        is_lost = end.copied is Copied.PARTLY
        yield Finding(
            Level.PROBLEM if is_lost else Level.WARNING,
            SUBJECT,
            f"{path}: {describe(end)}",
            "restore it from a backup"
            if is_lost
            else "the next start keeps a copy and goes on without; or restore it from a backup",
        )
    elif not kept:
        yield Finding(
            Level.OK, SUBJECT, f"{path}: its write-ahead log is whole" if not is_running else f"{path} in use"
        )
