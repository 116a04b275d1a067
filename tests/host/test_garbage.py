"""When cycles are collected: by a task, not by Python in the middle of a request, and before they could be frozen."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType

import pytest

from kbroker.errors import KafkaError
from kbroker.host.garbage import PORTION_BLOCKS, GarbageCollection, left_by_requests
from kbroker.quotas.filters import Component, describe

FULL = 2
# So many objects would have Python start several full collections.
STAYING = 300_000


@pytest.fixture(name="loop")
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(name="collection")
def _collection(loop: asyncio.AbstractEventLoop) -> Iterator[GarbageCollection]:
    threshold, debug = gc.get_threshold(), gc.get_debug()
    collection = GarbageCollection(loop)
    collection.start()
    yield collection
    collection.stop()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)
    gc.garbage.clear()
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


def collected(work: Callable[[], object]) -> list[int]:
    """The generations that were collected meanwhile."""
    begun: list[int] = []

    def note(phase: str, said: dict[str, int]) -> None:
        if phase == "start":
            begun.append(said["generation"])

    gc.callbacks.append(note)
    try:
        work()
    finally:
        gc.callbacks.remove(note)
    return begun


@pytest.mark.usefixtures("collection")
def test_python_starts_no_full_collection_by_itself() -> None:
    """Each would hold the loop for 100 ms and more while a large request is served."""
    assert gc.get_freeze_count() > 0
    kept: list[Node] = []
    begun = collected(lambda: kept.extend(Node() for _ in range(STAYING)))
    assert len(kept) == STAYING and 1 in begun and FULL not in begun


def test_garbage_goes_with_the_task(collection: GarbageCollection) -> None:
    """Memory of cycles that other libraries leave would stay."""
    cycle = old_cycle()
    assert cycle() is not None
    collection.run()
    gc.garbage.clear()  # Where the debug build has saved it.
    assert gc.collect() >= 0 and cycle() is None


def test_no_garbage_is_frozen(collection: GarbageCollection) -> None:
    """What had grown old before the middle generation was collected would never be freed."""
    cycle = old_cycle()
    stays = [[number, []] for number in range(PORTION_BLOCKS)]
    before = gc.get_freeze_count()
    collection.run()
    gc.garbage.clear()
    assert len(stays) == PORTION_BLOCKS and gc.get_freeze_count() > before
    gc.collect()
    assert cycle() is None


def test_what_came_to_stay_is_frozen_and_freed_all_the_same(collection: GarbageCollection) -> None:
    """Every collection would walk the objects of thousands of topics; or those of deleted ones would stay."""
    before = gc.get_freeze_count()
    stays = [[number, []] for number in range(PORTION_BLOCKS)]
    collection.run()
    assert gc.get_freeze_count() - before >= 2 * PORTION_BLOCKS
    leaves = weakref.ref(node := Node())
    node.me = None  # type: ignore[assignment]
    del node
    assert leaves() is None
    stays.clear()


def test_what_a_large_request_makes_is_walked_in_portions(
    loop: asyncio.AbstractEventLoop, collection: GarbageCollection
) -> None:
    """All of it would be walked at once when the request is over, and the loop be held for that long."""
    walked: list[int] = []

    def note(phase: str, said: dict[str, int]) -> None:
        if said["generation"] == FULL and phase == "start":
            walked.append(len(gc.get_objects()))

    async def work() -> list[Node]:
        made = []
        for number in range(STAYING):
            made.append(Node())
            if number % 1000 == 0:
                await asyncio.sleep(0)
        return made

    at_first = len(gc.get_objects())
    gc.callbacks.append(note)
    try:
        kept = loop.run_until_complete(work())
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == STAYING
    # A node has three blocks of memory at least, of which one or two are walked.
    assert len(walked) > 5 and max(walked) - at_first < 2 * PORTION_BLOCKS, walked


def test_objects_of_a_thread_count_as_well(loop: asyncio.AbstractEventLoop, collection: GarbageCollection) -> None:
    """Python collects in the thread that makes an object; the loop, in which portions are walked, would not hear."""
    before, kept = gc.get_freeze_count(), []
    thread = threading.Thread(target=lambda: kept.extend(Node() for _ in range(STAYING)))
    thread.start()
    thread.join()
    loop.run_until_complete(asyncio.sleep(0))
    assert len(kept) == STAYING and gc.get_freeze_count() - before > PORTION_BLOCKS
    assert collection is not None


def test_errors_kept_with_their_frames_are_known_as_left_by_requests() -> None:
    """The debug build and the simulation would assert what nothing breaks."""
    try:
        describe({}, [Component("", 0, None)], True)
    except KafkaError as error:
        places = left_by_requests([error, error.__traceback__.tb_next if error.__traceback__ else None])
        assert isinstance(error.__traceback__, TracebackType)
        assert len(places) == 1 and places[0].startswith("describe at ")
        assert not left_by_requests([error.__traceback__])
