"""What cells read is where their names say: in the page cache, or out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import raw

SIZE = 4 << 20


def cached_percent(path: Path) -> float:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pages = range(0, SIZE, 4096)
        return 100 * sum(raw._is_cached(descriptor, at) for at in pages) / len(pages)
    finally:
        os.close(descriptor)


def test_a_topic_is_in_memory_for_hot_cells_whatever_cold_ones_did_before(tmp_path: Path) -> None:
    """Hot fetches would measure the disk, in each round after the first."""
    path = tmp_path / "read-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(os.urandom(SIZE))
    # To look for a page has those behind it read ahead, so not all are found dropped.
    if raw.evict(tmp_path, "read") < 50:
        pytest.skip("files here cannot be dropped from memory")
    raw.bring_in(tmp_path, "read")
    assert cached_percent(path) == 100
