"""What copying a segment to another directory costs, Python's own way beside it: `pytest bench/test_file_copy.py`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from kbroker._fast.file_copy import copy_file


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
