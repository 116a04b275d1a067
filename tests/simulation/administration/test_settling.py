"""What has to hold some time after the last change: what the judge of that has to see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration import settling
from tests.simulation.administration.lives import ChangingTopic
from tests.simulation.administration.setting import Setting
from tests.simulation.administration.told import MadeUp
from tests.simulation.judge import ViolationError

SEGMENT_MS = "segment.ms"
ID = b"1" * 16


class Settled:
    """Two brokers, which say of a topic of two partitions and of one that was deleted what is right."""

    def __init__(self, folder: Path) -> None:
        self.world = MadeUp(self.says, log_dirs=lambda node: [str(folder / str(node))], fails=False)
        self.topics = [ChangingTopic("t", self.world.judge), ChangingTopic("u", self.world.judge)]
        for topic in self.topics:
            life = topic.begins(0.0, 2)
            life.topic_id, life.made_at, life.replicas = ID, 1.0, 2
            life.settings[SEGMENT_MS] = Setting(10)
        gone = self.topics[1].lives[0]
        gone.deletion_asked_at, gone.ended_at = 2.0, 3.0
        self.rows = {node: [self.topic("t"), SimpleNamespace(**self.absent("u"))] for node in (1, 2)}
        self.settings = {1: "10", 2: "10"}
        self.settings_error = 0
        self.silent = 0
        self.folders = [folder / "1", folder / "2"]
        for each in self.folders:
            (each / "t-0").mkdir(parents=True)
            (each / "t-1").mkdir()
            (each / "other-7").mkdir()
            (each / "u-0").touch()

    @staticmethod
    def topic(name: str) -> Any:
        partitions = [
            SimpleNamespace(partition_index=number, leader_id=1, leader_epoch=3, replica_nodes=[1, 2], error_code=0)
            for number in (0, 1)
        ]
        return SimpleNamespace(name=name, error_code=0, topic_id=ID, partitions=partitions)

    @staticmethod
    def absent(name: str) -> dict[str, Any]:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {"name": name, "error_code": code, "topic_id": bytes(16), "partitions": []}

    def says(self, node: int, request: Any) -> Any:
        if node == self.silent:
            return None
        if isinstance(request, wire.MetadataRequest):
            return SimpleNamespace(topics=self.rows[node])
        (resource,) = request.resources
        assert resource.resource_name == "t"
        configs = [SimpleNamespace(name=SEGMENT_MS, value=self.settings[node])]
        return SimpleNamespace(results=[SimpleNamespace(error_code=self.settings_error, configs=configs)])

    def settle(self) -> None:
        asyncio.run(settling.settle(self.world, self.topics))  # type: ignore[arg-type]


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settled:
    """One where all is right, and each partition has one record."""

    async def read_whole(_world: Any, partition: tuple[str, int], _key: Any) -> tuple[dict[int, bytes], int]:
        return {0: b"%d" % partition[1]}, 1

    monkeypatch.setattr(settling, "read_whole", read_whole)
    made = Settled(tmp_path)
    for number in (0, 1):
        value = b"%d" % number
        made.world.judge.sends("p", ("t~0", number), [value])
        made.world.judge.acknowledged("p", ("t~0", number), [value], 0, 0, committed=True, certain=True)
    return made


def test_what_is_as_it_was_asked_for_is_no_violation(settled: Settled) -> None:
    """Nobody would look at what is reported."""
    settled.settle()
    life = settled.topics[0].lives[0]
    life.places[1] = [[2, 1], [1, 2]]
    life.grown_amid_moves.add(0)
    for node in (1, 2):
        settled.rows[node][0].partitions[0].replica_nodes = [1]
    settled.world.fails = True
    left("t-0.abc-stray")(settled)
    settled.settle()


def both(change: Callable[[Any], object]) -> Callable[[Settled], None]:
    """A change of what both brokers say of the first topic."""

    def changed(settled: Settled) -> None:
        for node in (1, 2):
            change(settled.rows[node][0])

    return changed


def silent(settled: Settled) -> None:
    settled.silent = 2


def another_epoch(settled: Settled) -> None:
    settled.rows[2][0].partitions[1].leader_epoch = 4


def still_there(settled: Settled) -> None:
    for node in (1, 2):
        settled.rows[node][1] = settled.topic("u")


def not_there(settled: Settled) -> None:
    for node in (1, 2):
        settled.rows[node][0] = SimpleNamespace(**settled.absent("t"))


def elsewhere(settled: Settled) -> None:
    settled.topics[0].lives[0].places[0] = [[2, 1]]


def another_setting(settled: Settled) -> None:
    settled.settings[2] = "1000"


def no_settings(settled: Settled) -> None:
    settled.settings_error = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def left(name: str) -> Callable[[Settled], None]:
    """A directory on the second broker's disk."""

    def changed(settled: Settled) -> None:
        (settled.folders[1] / name).mkdir()

    return changed


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (silent, "broker 2 does not answer"),
        (another_epoch, "broker 2 says .* and broker 1 says"),
        (still_there, "it was deleted"),
        (not_there, "is there"),
        (both(lambda row: setattr(row, "topic_id", b"2" * 16)), "is there"),
        (both(lambda row: row.partitions.pop()), "it has 2 partitions"),
        (both(lambda row: setattr(row.partitions[0], "error_code", 5)), "partition 0 is not well"),
        (both(lambda row: setattr(row.partitions[1], "replica_nodes", [1])), "partition 1 is not well"),
        (elsewhere, r"partition 0 is to be on \[\[2, 1\]\]"),
        (another_setting, "broker 2 says that segment.ms of t~0 is 1000, where 10 was set"),
        (no_settings, "does not tell the settings"),
        (left("u-3"), "broker 2 has u-3 on its disk"),
        (left("t-0.abc-delete"), "broker 2 has t-0.abc-delete on its disk"),
        (left("t-2"), "broker 2 has t-2 on its disk"),
        (left("t-1.abc-future"), "broker 2 has t-1.abc-future on its disk"),
        (left("t-0.abc-stray"), "broker 2 has t-0.abc-stray on its disk"),
    ],
)
def test_what_has_not_settled_is_seen(settled: Settled, change: Callable[[Settled], None], violation: str) -> None:
    """Brokers could differ for ever, or keep what was deleted, and nobody would see."""
    change(settled)
    with pytest.raises(ViolationError, match=f"{violation}.* after the last change"):
        settled.settle()


def test_what_a_settled_topic_has_lost_is_seen(settled: Settled) -> None:
    """Records could go with a move or a new partition."""
    settled.world.judge.sends("p", ("t~0", 1), [b"later"])
    settled.world.judge.acknowledged("p", ("t~0", 1), [b"later"], 1, 1, committed=True, certain=True)
    with pytest.raises(ViolationError, match="was acknowledged at 1"):
        settled.settle()
