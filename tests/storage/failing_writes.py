"""Writes that fail beneath a log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kbroker._fast.log.log_fields import FileFields
from kbroker.storage.log.log_segment import LogSegment


@contextmanager
def failing_writes(segment: LogSegment, failure: str) -> Iterator[None]:
    """Puts a file behind the segment that is "closed" or lies on a "full" disk."""
    held = segment.file()
    full = os.open("/dev/full", os.O_WRONLY)
    broken = FileFields()
    broken.fd = -1 if failure == "closed" else full
    segment.open_file = broken  # type: ignore[assignment]
    try:
        yield
    finally:
        os.close(full)
        segment.open_file = held
