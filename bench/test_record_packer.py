"""What packing rows of columns into a batch costs, the reference beside it: `pytest bench/test_record_packer.py`."""

from __future__ import annotations

import array
from typing import Any

import pytest

from kbroker._fast.records.record_packer import BatchPacker, RowColumns
from tests.records import reference

ROWS = 1_000
VALUE_BYTES = 100
NOW_MS = 1_700_000_000_000


@pytest.mark.benchmark(group="record_packer: 1,000 rows of 100 bytes")
def test_pack_rows(benchmark: Any) -> None:
    offsets = array.array("i", [at * VALUE_BYTES for at in range(ROWS + 1)])
    columns = RowColumns(ROWS, None, (None, offsets, b"x" * VALUE_BYTES * ROWS, 0))
    rows = array.array("q", range(ROWS))

    def run() -> bytearray:
        packer = BatchPacker(1 << 20)
        assert packer.append(columns, rows, 0, NOW_MS) == ROWS
        return packer.take()

    assert len(run()) > ROWS * VALUE_BYTES
    benchmark(run)


@pytest.mark.benchmark(group="record_packer: 1,000 rows of 100 bytes")
def test_pack_rows_reference(benchmark: Any) -> None:
    values: list[bytes | None] = [b"x" * VALUE_BYTES] * ROWS

    def run() -> bytearray:
        payload = reference.simple_records(values, keys=[None] * ROWS, deltas=[0] * ROWS)
        return reference.encode_batch(payload, ROWS, base_timestamp=NOW_MS, max_timestamp=NOW_MS)

    benchmark(run)
