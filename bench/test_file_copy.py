"""What copying a segment costs, and bringing old data into the page cache: `pytest bench/test_file_copy.py`.

Python's own way stands beside each.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from kbroker._fast.files.file_copy import copy_file
from kbroker._fast.files.page_cache import bring_in

COLD_BYTES = 16 << 20


@pytest.mark.benchmark(group="file_copy: 16 MB")
def test_copy_file(benchmark: Any, tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(16 << 20))
    assert benchmark.pedantic(copy_file, (str(source), str(target)), setup=_without(target), rounds=10) == 16 << 20


@pytest.mark.benchmark(group="file_copy: 16 MB")
def test_copy_file_reference(benchmark: Any, tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(16 << 20))
    benchmark.pedantic(lambda: target.write_bytes(source.read_bytes()), setup=_without(target), rounds=10)


def _without(path: pathlib.Path) -> Callable[[], None]:
    return lambda: path.unlink(missing_ok=True)


def _measure_cold(benchmark: Any, tmp_path: pathlib.Path, bring: Callable[[int], None]) -> None:
    """Each round finds the file out of the page cache."""
    path = tmp_path / "cold"
    path.write_bytes(os.urandom(COLD_BYTES))
    with path.open("rb") as file:
        os.fsync(file.fileno())

        def evict() -> None:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        benchmark.pedantic(bring, (file.fileno(),), setup=evict, rounds=10)


@pytest.mark.benchmark(group="page_cache: 16 MB that lie on the disk")
def test_bring_in(benchmark: Any, tmp_path: pathlib.Path) -> None:
    sink = os.open(os.devnull, os.O_WRONLY)
    _measure_cold(benchmark, tmp_path, lambda fd: _brought(fd, sink))
    os.close(sink)


@pytest.mark.benchmark(group="page_cache: 16 MB that lie on the disk")
def test_bring_in_reference(benchmark: Any, tmp_path: pathlib.Path) -> None:
    _measure_cold(benchmark, tmp_path, lambda fd: _read(fd, bytearray(COLD_BYTES)))


def _brought(fd: int, sink: int) -> None:
    assert bring_in(fd, 0, COLD_BYTES, sink) == COLD_BYTES


def _read(fd: int, buffer: bytearray) -> None:
    assert os.preadv(fd, [buffer], 0) == COLD_BYTES
