"""Answers as the bytes that their client gets."""

from __future__ import annotations

import os
from typing import Any

from kbroker._fast.files.file_region import FileRegion


def plain(frame: Any) -> bytes:
    """A frame, or its parts, with what its file regions stand for."""
    parts = [frame] if isinstance(frame, bytes) else frame
    return b"".join(
        os.pread(part.fd, part.size, part.position) if isinstance(part, FileRegion) else part for part in parts
    )
