"""The controller's writes: many in one transaction, each as if it were by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.election import Fence
from kbroker.cluster.zookeeper.session import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Stat,
    ZooKeeperError,
)
from kbroker.cluster.zookeeper.writer import IN_A_TRANSACTION, ControllerMovedError, FencedWriter
from tests.cluster.zookeeper.fake import FakeEnsemble

OPERATIONS = st.lists(
    st.one_of(
        st.builds(Set, st.integers(0, 30).map("/{}".format), st.just(b"x"), st.integers(-1, 1)),
        st.builds(Create, st.integers(25, 60).map("/{}".format), st.just(b"y")),
        st.builds(Delete, st.integers(20, 35).map("/{}".format)),
    ),
    max_size=12,
    unique_by=lambda each: each.path,
)


class CountingEnsemble(FakeEnsemble):
    """Counts its transactions."""

    count = 0

    def multi(self, operations: Sequence[Operation], session: int) -> list[Stat | None]:
        self.count += 1
        return super().multi(operations, session)


def written(operations: list[Operation], *, at_once: bool, epoch: int = 0) -> tuple[list[Any], dict[str, Any], int]:
    """(what came of each, what there is then, the transactions that it took)."""
    ensemble = CountingEnsemble()
    for name in (paths.CONTROLLER_EPOCH, *(f"/{number}" for number in range(30))):
        ensemble.apply(Create(name, b""), 0)

    async def run() -> list[Any]:
        writer = FencedWriter(ensemble.session(), Fence(1, epoch))
        if at_once:
            return await writer.write_each(operations)
        found: list[Stat | ZooKeeperError | None] = []
        for each in operations:
            try:
                found.append(await writer.write(each))
            except ZooKeeperError as error:
                found.append(error)
        return found

    results = [type(each) if isinstance(each, Exception) else each for each in asyncio.run(run())]
    return results, {path: (node.data, node.version) for path, node in ensemble.nodes.items()}, ensemble.count


@settings(deadline=None, max_examples=40)
@given(OPERATIONS)
def test_writes_at_once_come_to_what_they_come_to_one_by_one(operations: list[Operation]) -> None:
    """A partition whose state is newer than the controller knows would keep others from their leaders."""
    at_once, then, _ = written(operations, at_once=True)
    one_by_one, expected, _ = written(operations, at_once=False)
    # The time of a creation counts what was written before it.
    assert [each and (each if isinstance(each, type) else each.version) for each in at_once] == [
        each and (each if isinstance(each, type) else each.version) for each in one_by_one
    ]
    assert then == expected


def test_many_writes_take_few_transactions() -> None:
    """A controller of 10,000 partitions would take seconds for what takes tenths."""
    operations: list[Operation] = [Create(f"/new-{number}", b"") for number in range(3 * IN_A_TRANSACTION)]
    results, there, count = written(operations, at_once=True)
    assert results == [None] * len(operations)
    assert count == 3
    assert all(each.path in there for each in operations)


def test_each_that_cannot_be_is_named() -> None:
    """The controller could not tell which states others have changed."""
    operations: list[Operation] = [
        Set("/1", b"a", 0),
        Set("/2", b"a", 7),
        Create("/3", b""),
        Delete("/99"),
        Set("/4", b"a", 0),
    ]
    results, there, _ = written(operations, at_once=True)
    assert results[1:4] == [BadVersionError, NodeExistsError, NoNodeError]
    assert (there["/1"], there["/4"]) == ((b"a", 1), (b"a", 1))


def test_a_deposed_controller_writes_nothing() -> None:
    """Two controllers would decide about the same partitions."""
    with pytest.raises(ControllerMovedError):
        written([Set("/1", b"a", 0)], at_once=True, epoch=5)
