"""What the judges of administration have to see, and what they may not invent."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.administration.in_sync import judge_acknowledged, may_be_too_few
from tests.simulation.administration.limited import NO_QUOTA, Limited
from tests.simulation.administration.lives import FOREVER, MIN_IN_SYNC, ChangingTopic, Life, fitting
from tests.simulation.administration.setting import Setting
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.judged_batches import batches


def topic_of_two_lives() -> ChangingTopic:
    """One made at 1, deleted between 2 and 3, made again between 4 and 5."""
    topic = ChangingTopic("t", Judge(lambda: 0.0))
    first = topic.begins(0.5, 1)
    first.topic_id, first.made_at, first.deletion_asked_at, first.ended_at = b"1", 1.0, 2.0, 3.0
    second = topic.begins(4.0, 1)
    second.topic_id, second.made_at = b"2", 5.0
    return topic


@pytest.mark.parametrize(
    ("since", "until", "met", "absent"),
    [(1.2, 1.8, [0], False), (1.2, 2.1, [0], True), (3.1, 3.9, [], True), (2.5, 4.5, [0, 1], True), (6, 7, [1], False)],
)
def test_a_request_by_name_has_met_the_topics_of_its_time(
    since: float, until: float, met: list[int], absent: bool
) -> None:
    """Errors would be allowed where a topic is there, or records where it is not."""
    topic = topic_of_two_lives()
    assert [each.number for each in topic.between(since, until)] == met
    assert topic.may_be_absent(since, until) is absent


def test_records_of_a_deleted_topic_do_not_fit_the_new_one() -> None:
    """A topic could show what one of its name had, and nobody would see."""
    topic = topic_of_two_lives()
    first, second = topic.lives
    topic.sends("p", first, 0, [b"a"], 1.5, by_name=False)
    topic.sends("p", second, 0, [b"b"], 6.0, by_name=False)
    assert fitting(topic.judge, topic.lives, 0, batches(b"a")) == [first]
    assert fitting(topic.judge, topic.lives, 0, batches(b"b")) == [second]
    assert not fitting(topic.judge, topic.lives, 0, batches(b"a", b"b"))
    # What is under way by name may get to a topic that is made meanwhile.
    topic.sends("p", second, 0, [b"c"], 6.0, by_name=True)
    assert fitting(topic.judge, [topic.begins(7.0, 1)], 0, batches(b"c"))


def test_a_setting_has_its_old_value_until_the_new_one_is_in_force() -> None:
    """What was refused or taken by the right value would be a violation."""
    setting = Setting(1)
    setting.asked(2, 10.0)
    assert setting.between(5.0, 9.0) == [1]
    assert setting.between(9.0, 11.0) == [1, 2]
    setting.acknowledged(12.0)
    assert setting.between(12.5, 13.0) == [2]


def cluster(*ends: int, crashed: float = -FOREVER) -> Any:
    """Brokers whose logs end there; the last one has crashed at a time."""

    def broker(end: int) -> Any:
        hosted = SimpleNamespace(log=SimpleNamespace(log_end_offset=end))
        manager = SimpleNamespace(hosted=lambda _: hosted)
        return SimpleNamespace(replicas=manager)

    nodes = range(1, len(ends) + 1)
    return SimpleNamespace(
        nodes=nodes,
        brokers={node: broker(end) for node, end in zip(nodes, ends, strict=True)},
        starting={},
        controllers_lost_at=-math.inf,
        crashed_at={len(ends): crashed},
        loop=SimpleNamespace(time=lambda: 9.0),
        judge=Judge(lambda: 9.0),
        setting=lambda *_: "2",
        disks=SimpleNamespace(take_part=False),
        may_lose_leaders=False,
        may_lag=False,
    )


def life_of(min_in_sync: int) -> Life:
    made = Life("t", 0, 0.0, 1, 1, replicas=3)
    made.settings[MIN_IN_SYNC] = Setting(min_in_sync)
    return made


@pytest.mark.parametrize("min_in_sync", [2, 0])
def test_an_acknowledgement_of_too_few_replicas_is_seen(min_in_sync: int) -> None:
    """acks=all could be answered while one broker alone has the record."""
    judge_acknowledged(cluster(5, 5, 4), "p", life_of(min_in_sync), 0, 4, 8.0)
    judge_acknowledged(cluster(5, 4, 4, crashed=8.5), "p", life_of(min_in_sync), 0, 4, 8.0)
    judge_acknowledged(cluster(5, 4, 4), "p", life_of(1), 0, 4, 8.0)
    with pytest.raises(ViolationError, match="is acknowledged"):
        judge_acknowledged(cluster(5, 4, 4, crashed=7.0), "p", life_of(min_in_sync), 0, 4, 8.0)


def test_too_few_replicas_are_no_excuse_where_one_is_enough() -> None:
    """A broker could refuse acks=all for nothing."""
    world = cluster(5, 5, 5)
    world.may_lag = True
    assert may_be_too_few(world, life_of(2), 0.0, 1.0) and not may_be_too_few(world, life_of(1), 0.0, 1.0)
    world.may_lag = False
    assert not may_be_too_few(world, life_of(2), 0.0, 1.0)


class Muted(Limited):
    """With a quota of 100 bytes a second over two windows, and time by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.world: Any = SimpleNamespace(loop=SimpleNamespace(time=lambda: self.now))
        self.judge = Judge(lambda: self.now)
        self.name, self.windows = "m", 2
        self.limit = Setting(100)
        self._uses = []
        self.muted_until = 0.0
        self._throttle_ms = 0

    def tells(self, at: float, size: int, throttle_ms: int) -> None:
        self.now = at
        self.told(at, size, size, throttle_ms)


@pytest.mark.parametrize(
    ("throttle_ms", "violation"), [(9_000, ""), (7_000, ""), (6_000, "follow"), (10_000, "follow"), (0, "follow")]
)
def test_a_throttle_time_is_what_the_quotas_rule_gives(throttle_ms: int, violation: str) -> None:
    """A client could be throttled for ever, or not at all."""
    # 1000 bytes at 100 a second, over one to three seconds.
    muted = Muted()
    if not violation:
        muted.tells(1.0, 1000, throttle_ms)
        return
    with pytest.raises(ViolationError, match=violation):
        muted.tells(1.0, 1000, throttle_ms)


def test_an_answer_before_a_client_is_lifted_is_seen() -> None:
    """Quotas could be told and not be kept."""
    muted = Muted()
    muted.tells(1.0, 1000, 8_500)
    with pytest.raises(ViolationError, match="is muted"):
        muted.tells(9.0, 1, 0)


class Reconnecting(Muted):
    """Its first connection ends while it is muted; the second one is answered at once."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 2
        self.rng: Any = SimpleNamespace(choice=lambda values: values[0], random=lambda: 0.5)

    async def connect(self, _node: int) -> Any:
        return SimpleNamespace(gone=False, finish=lambda _rng: None)

    async def _alter(self, _limit: int) -> None:
        """The quota stays."""

    async def _use(self, connection: Any) -> None:
        if not self._uses:
            self.tells(1.0, 1000, 8_500)
            connection.gone = True
        else:
            self.tells(1.5, 1, 0)


def test_another_connection_than_the_throttled_one_is_not_muted() -> None:
    """A client that connects again could be held to a throttle that ended with the connection before."""
    reconnecting = Reconnecting()
    asyncio.run(reconnecting.run())
    assert [each.answered_at for each in reconnecting._uses] == [1.0, 1.5]


def test_without_a_quota_nobody_is_throttled() -> None:
    """A quota could outlive its removal."""
    muted = Muted()
    muted.limit = Setting(NO_QUOTA)
    muted.tells(1.0, 100_000, 0)
    with pytest.raises(ViolationError, match="is throttled"):
        muted.tells(2.0, 1, 5)
