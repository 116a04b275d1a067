"""The judges of what replicas a cluster gives up, and of what a disk loses amid a clean stop."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.copies import Copies, Layout
from tests.simulation.cut_logs import cut_logs
from tests.storage.batches import batch

KEY = ("t", b"i" * 16, 0)


class Failed(AssertionError):
    """The judge has spoken."""


class FewBrokers:
    """Brokers 1 to 4 with logs that end at `ends`; 10 is committed."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.nodes = range(1, 5)
        self.found: dict[tuple[str, bytes, int], Layout] = {}
        self.version = 0
        self.disks = SimpleNamespace(take_part=False)
        self.judge = SimpleNamespace(fail=self._fail)
        self.states = SimpleNamespace(committed=lambda _replica: 10)
        self.brokers = {node: self._broker(end) for node, end in ends.items()}

    @staticmethod
    def _broker(end: int) -> Any:
        log = SimpleNamespace(log_end_offset=end, high_watermark=0)
        manager = SimpleNamespace(hosted=lambda _name: SimpleNamespace(log=log))
        return SimpleNamespace(services=SimpleNamespace(replica_manager=manager))

    @staticmethod
    def _fail(what: str) -> None:
        raise Failed(what)

    def cuts_by_epochs(self, _topic: str) -> bool:
        return True

    def is_there(self, node: int) -> bool:
        return node in self.brokers

    def layouts_version(self) -> int:
        return self.version

    def layouts(self) -> dict[tuple[str, bytes, int], Layout]:
        return dict(self.found)

    def becomes(self, copies: Copies, *rows: Layout) -> None:
        for row in rows:
            self.version += 1
            self.found = {KEY: row}
            copies.look()


def layout(replicas: tuple[int, ...], isr: tuple[int, ...], adding: tuple[int, ...] = (), least: int = 2) -> Layout:
    return Layout(replicas, adding, isr, least, isr)


@pytest.mark.parametrize(
    ("ends", "before", "now", "is_wrong"),
    [
        ({1: 10, 2: 10, 3: 4}, layout((1, 3, 2), (1, 2)), layout((1, 3), (1,)), True),
        ({1: 10, 2: 10, 3: 10}, layout((1, 3, 2), (1, 2, 3)), layout((1, 3), (1, 3)), False),
        ({1: 10, 2: 10, 3: 4}, layout((1, 3, 2), (1, 2), least=1), layout((1, 3), (1,), least=1), False),
        ({1: 10, 3: 4}, layout((1, 3, 2), (1, 2)), layout((1, 3), (1,)), False),  # The other one is gone.
        ({1: 10, 2: 10}, layout((1, 3, 2), (1, 2)), layout((1, 3), (1, 3)), False),  # It has just gone, with all.
        ({1: 10, 2: 10}, layout((1, 2), (1, 2), adding=(2,)), layout((1,), (1,)), False),  # Called off.
        ({1: 10, 2: 10}, layout((1, 2), (1, 2)), layout((2,), (2,)), False),  # One is what was asked for.
        ({1: 10, 4: 10}, layout((4, 1), (1,), adding=(4,)), layout((4,), (4,)), False),
    ],
)
def test_replicas_are_given_up_when_enough_others_have_what_is_committed(
    ends: dict[int, int], before: Layout, now: Layout, is_wrong: bool
) -> None:
    """The judge would not see that acknowledged records are on one broker alone, or see it where they are not."""
    world = FewBrokers(ends)
    copies = Copies(world)  # type: ignore[arg-type]
    if is_wrong:
        with pytest.raises(Failed, match="have all below 10"):
            world.becomes(copies, before, now)
    else:
        world.becomes(copies, before, now)


def test_a_topic_that_is_made_anew_gives_up_nothing() -> None:
    """Its replicas have nothing to do with those of the one before."""
    world = FewBrokers({1: 10, 2: 10})
    copies = Copies(world)  # type: ignore[arg-type]
    world.becomes(copies, layout((1, 2), (1, 2)))
    world.found, world.version = {("t", b"j" * 16, 0): layout((1, 3), (1,))}, 9
    copies.look()
    assert copies.changes == 0


def test_a_disk_loses_the_end_of_logs_that_others_have(tmp_path: Path) -> None:
    """Only one broker's, of topics with several replicas, or what is acknowledged would be gone."""
    whole = bytes(batch([b"a"])) + bytes(batch([b"b"]))
    for node in (1, 2):
        for name in ("two-0", "one-0"):
            (tmp_path / str(node) / name).mkdir(parents=True)
            (tmp_path / str(node) / name / f"{0:020d}.log").write_bytes(whole)
    topics = {
        name: SimpleNamespace(name=name, partitions=1, replicas=replicas) for name, replicas in (("two", 2), ("one", 1))
    }
    world: Any = SimpleNamespace(
        nodes=(1, 2),
        topics=topics,
        log_dirs=lambda node: [str(tmp_path / str(node))],
        judge=SimpleNamespace(note=lambda *_: None),
        states=SimpleNamespace(cut=set()),
    )
    rng = random.Random(1)
    for _ in range(20):
        cut_logs(world, rng)
        sizes = {node: (tmp_path / str(node) / "two-0" / f"{0:020d}.log").stat().st_size for node in (1, 2)}
        assert all((tmp_path / str(node) / "one-0" / f"{0:020d}.log").stat().st_size == len(whole) for node in (1, 2))
        if min(sizes.values()) < len(whole):
            assert max(sizes.values()) == len(whole)
            assert world.states.cut == {(min(sizes, key=lambda node: sizes[node]), "two", 0)}
            return
    raise AssertionError("nothing was lost in twenty stops")
