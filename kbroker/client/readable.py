"""Waits for a descriptor of any number in blocking code: `select.select` refuses those from 1,024 on."""

from __future__ import annotations

import math
import select


def readable(descriptor: int, seconds: float) -> bool:
    """Whether bytes, or the end of the stream, can be read at once, or can within `seconds`."""
    looked = select.poll()
    looked.register(descriptor, select.POLLIN)
    return bool(looked.poll(math.ceil(seconds * 1000)))
