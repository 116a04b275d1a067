"""Who asks what there is while topics change: what its judge has to see, and what it may not invent."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration.asker import ChangingAsker
from tests.simulation.administration.lives import ChangingTopic
from tests.simulation.administration.setting import Setting
from tests.simulation.administration.told import MadeUp, Told
from tests.simulation.judge import ViolationError
from tests.unbroken import finished

ID = b"1" * 16
SEGMENT_MS = "segment.ms"
TOPIC_GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Asked:
    """One broker that is asked about a topic of two partitions, which is there from the first minute on."""

    def __init__(self, lag: float = 0.0) -> None:
        self.world: Any = MadeUp(self.says, nodes=1, log_dirs=lambda _: ["/d1", "/d2"])
        topic = ChangingTopic("t", self.world.judge, lag=lag)
        self.life = topic.begins(0.0, 2)
        self.life.topic_id, self.life.made_at, self.life.grown_at = ID, 1.0, 1.0
        self.life.settings[SEGMENT_MS] = Setting(10)
        self.asker = ChangingAsker(self.world, "asker", 1, [topic])
        partitions = [SimpleNamespace(partition_index=number) for number in (0, 1)]
        self.row = SimpleNamespace(name="t", error_code=0, topic_id=ID, partitions=partitions)
        self.setting = "10"
        self.settings_error = 0
        self.cluster = SimpleNamespace(error_code=0, brokers=[SimpleNamespace(broker_id=1)])
        self.dirs = ["/d2"]
        self.moves_error, self.moves = 0, [self.move([1], [1], [])]
        self.life.moved_at = 1.0

    @staticmethod
    def move(replicas: list[int], adding: list[int], removing: list[int]) -> Any:
        return SimpleNamespace(partition_index=0, replicas=replicas, adding_replicas=adding, removing_replicas=removing)

    def says(self, _node: int, request: Any) -> Any:
        if isinstance(request, wire.DescribeConfigsRequest):
            configs = [SimpleNamespace(name=SEGMENT_MS, value=self.setting)]
            return SimpleNamespace(results=[SimpleNamespace(error_code=self.settings_error, configs=configs)])
        if isinstance(request, wire.ListPartitionReassignmentsRequest):
            return SimpleNamespace(
                error_code=self.moves_error, topics=[SimpleNamespace(name="t", partitions=self.moves)]
            )
        if isinstance(request, wire.DescribeClusterRequest):
            return self.cluster
        if isinstance(request, wire.DescribeLogDirsRequest):
            return SimpleNamespace(results=[SimpleNamespace(log_dir=each) for each in self.dirs])
        return SimpleNamespace(topics=[self.row])

    def ask(self, *kinds: str) -> None:
        for kind in kinds:
            # The version is drawn: those that name ids, and those that do not.
            for _ in range(20):
                finished(getattr(self.asker, kind)(Told(1, self.says)))


EVERY = ("_metadata", "_partitions", "_settings", "_cluster", "_log_dirs", "_moves")


def test_what_there_is_is_no_violation() -> None:
    """Nobody would look at what is reported."""
    Asked().ask(*EVERY)
    late = Asked(lag=float("inf"))
    late.row.error_code, late.settings_error = TOPIC_GONE, 0
    late.ask("_metadata", "_partitions")
    deleted = Asked()
    deleted.life.deletion_asked_at = 2.0
    deleted.row.error_code = deleted.settings_error = TOPIC_GONE
    deleted.ask("_metadata", "_partitions", "_settings")


def says(change: Callable[[Asked], object]) -> Callable[[Asked], object]:
    return change


@pytest.mark.parametrize(
    ("kind", "change", "violation"),
    [
        ("_metadata", lambda asked: setattr(asked.row, "error_code", TOPIC_GONE), "t is not there"),
        ("_partitions", lambda asked: setattr(asked.row, "error_code", TOPIC_GONE), "t is not there"),
        ("_metadata", lambda asked: setattr(asked.row, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR), "UNKNOWN_SERV"),
        ("_metadata", lambda asked: setattr(asked.row, "topic_id", b"2" * 16), "has the id"),
        ("_partitions", lambda asked: setattr(asked.row, "topic_id", b"2" * 16), "has the id"),
        ("_metadata", lambda asked: asked.row.partitions.pop(0), r"t has \[1\]"),
        ("_metadata", lambda asked: asked.row.partitions.pop(), "not 2 to 2"),
        (
            "_partitions",
            lambda asked: asked.row.partitions.append(SimpleNamespace(partition_index=2)),
            "not 2 to 2",
        ),
        ("_settings", lambda asked: setattr(asked, "settings_error", TOPIC_GONE), "settings of t"),
        ("_settings", lambda asked: setattr(asked, "settings_error", -1), "settings of t"),
        ("_settings", lambda asked: setattr(asked, "setting", "1000"), "segment.ms is 1000"),
        ("_cluster", lambda asked: setattr(asked.cluster, "error_code", -1), "the cluster is"),
        ("_cluster", lambda asked: asked.cluster.brokers.append(SimpleNamespace(broker_id=7)), "the cluster is"),
        ("_cluster", lambda asked: asked.cluster.brokers.append(SimpleNamespace(broker_id=1)), "the cluster is"),
        ("_log_dirs", lambda asked: asked.dirs.append("/d3"), "/d3"),
        ("_moves", lambda asked: setattr(asked, "moves_error", ErrorCode.NOT_CONTROLLER), "what moves is"),
        ("_moves", lambda asked: setattr(asked.life, "moved_at", float("inf")), "t moves as"),
        ("_moves", lambda asked: asked.moves.append(asked.move([1], [], [])), "t moves as"),
        ("_moves", lambda asked: asked.moves.append(asked.move([1], [2], [])), "t moves as"),
        ("_moves", lambda asked: asked.moves.append(asked.move([1], [1], [1])), "t moves as"),
        ("_moves", lambda asked: asked.moves.append(asked.move([1, 1], [1], [])), "t moves as"),
        ("_moves", lambda asked: asked.moves.append(asked.move([1, 7], [7], [])), "t moves as"),
    ],
)
def test_an_answer_that_is_wrong_is_seen(kind: str, change: Callable[[Asked], object], violation: str) -> None:
    """Clients could be told of topics that are not there, or of none that is."""
    asked = Asked()
    change(asked)
    with pytest.raises(ViolationError, match=violation):
        asked.ask(kind)


def test_a_setting_is_one_of_those_that_it_had_meanwhile() -> None:
    """A change under way would be a violation, or an old value never one."""
    asked = Asked()
    asked.life.settings[SEGMENT_MS].asked(1000, 50.0)
    for asked.setting in ("10", "1000"):
        asked.ask("_settings")
    asked.life.settings[SEGMENT_MS].acknowledged(51.0)
    asked.setting = "10"
    with pytest.raises(ViolationError, match=r"segment\.ms is 10"):
        asked.ask("_settings")
