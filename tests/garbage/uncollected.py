"""What reference counts did not free while something ran in this process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[list[object]]:
    """No garbage is collected meanwhile; afterwards the list has what there is.  Its reader empties it."""
    found: list[object] = []
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
