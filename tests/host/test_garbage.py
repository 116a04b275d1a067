"""When cycles are collected: by a task, not by Python in the middle of a request."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kbroker.host.garbage import FROZEN_FROM_BLOCKS, GarbageCollection

FULL = 2
# So many objects would have Python start several full collections.
STAYING = 300_000


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    gc.enable()


class Node:
    def __init__(self) -> None:
        self.me = self


def old_cycle() -> weakref.ref[Node]:
    """A cycle that is garbage, in the generation that only a full collection looks at."""
    node = Node()
    gc.collect(1)
    gc.collect(1)
    found = weakref.ref(node)
    del node
    return found


def test_python_starts_no_full_collection_by_itself() -> None:
    """Each would hold the loop for 100 ms and more while a large request is served."""
    GarbageCollection(lambda: False).start()
    assert gc.get_freeze_count() > 0
    begun = []
    gc.callbacks.append(lambda phase, said: begun.append(said["generation"]))
    try:
        kept = [Node() for _ in range(STAYING)]
    finally:
        gc.callbacks.pop()
    assert len(kept) == STAYING and 1 in begun and FULL not in begun


def test_garbage_goes_with_the_task_unless_work_is_under_way() -> None:
    """Memory of closed connections would stay, or the loop be held in the middle of a large request."""
    busy = True
    collection = GarbageCollection(lambda: busy)
    collection.start()
    cycle = old_cycle()
    assert cycle() is not None
    collection.run()
    assert cycle() is not None
    busy = False
    collection.run()
    assert cycle() is None


def test_what_came_to_stay_is_frozen_and_freed_all_the_same() -> None:
    """Every collection would walk the objects of thousands of topics; or those of deleted ones would stay."""
    collection = GarbageCollection(lambda: False)
    collection.start()
    before = gc.get_freeze_count()
    stays = [[number, []] for number in range(FROZEN_FROM_BLOCKS)]
    collection.run()
    assert gc.get_freeze_count() - before >= 2 * FROZEN_FROM_BLOCKS
    leaves = weakref.ref(node := Node())
    node.me = None  # type: ignore[assignment]
    del node
    assert leaves() is None
    stays.clear()
