"""Results of lanes as rows of a DataFrame, for lanes that are written from one."""

from __future__ import annotations

import pyarrow as pa

from kbroker.replay.load.lanes import LaneResult

RESULT_SCHEMA = "topic string, partition int, written long, found long, position long, state string"
_ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("written", "found", "position")),
        ("state", pa.string()),
    ]
)


def as_batch(result: LaneResult) -> pa.RecordBatch:
    """One row of RESULT_SCHEMA."""
    return pa.RecordBatch.from_pylist([{name: getattr(result, name) for name in result.__slots__}], schema=_ARROW)
