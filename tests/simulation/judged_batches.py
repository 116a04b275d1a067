"""Batches as a judge is given them."""

from __future__ import annotations

import struct
from typing import Any

from tests.simulation.records import encode_batch, read_batches


def batches(*values: bytes, base: int = 0) -> list[Any]:
    data = bytearray(encode_batch(values, 0))
    struct.pack_into(">q", data, 0, base)
    return list(read_batches(data))
