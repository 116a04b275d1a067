"""Fetch sessions that make room for others: what their judge has to see, and what it may not invent."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from kbroker._fast.log.fetch_target import FetchTarget
from kbroker.errors import KafkaError
from kbroker.replication import fetch_session
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.types import ZERO_UUID
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.session_keeper import SLOTS, SessionKeeper
from tests.unbroken import finished


class Kept:
    """A broker that has sessions and nothing else."""

    name, gone = "keeper", True

    def __init__(self, slots: int, partitions: int) -> None:
        self.now = 0.0
        self._sessions = FetchSessionCache(slots, 1)
        self.world: Any = SimpleNamespace(
            topics={"t": SimpleNamespace(name="t", partitions=partitions)},
            judge=Judge(lambda: self.now),
            later=random.Random(1),
            connect=self._connect,
            loop=SimpleNamespace(time=lambda: self.now),
            standstill=SimpleNamespace(sleeps_until=lambda _: None),
        )

    async def _connect(self, *_: object) -> Kept:
        return self

    async def answer(self, request: Any, _version: int) -> Any:
        targets = [
            FetchTarget(topic.topic, ZERO_UUID, row.partition, 0, 1000, -1, -1, 0)
            for topic in request.topics
            for row in topic.partitions
        ]
        now_ms = int(self.now * 1000)
        try:
            plan = self._sessions.plan(request.session_id, request.session_epoch, targets, (), False, now_ms)
        except KafkaError as error:
            return SimpleNamespace(error_code=int(error.code), session_id=0)
        return SimpleNamespace(error_code=0, session_id=plan.session_id)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def judged(self) -> None:
        with patch.object(asyncio, "sleep", self._sleep):
            finished(SessionKeeper(self.world).run())


@pytest.mark.parametrize("partitions", [1, 3])
def test_sessions_as_kafka_keeps_them_are_no_violation(partitions: int) -> None:
    """Nobody would look at what makes room for what."""
    Kept(SLOTS, partitions).judged()


@pytest.mark.parametrize(("slots", "idle_ms"), [(SLOTS + 1, 120_000), (SLOTS, 1_000), (SLOTS, 1_000_000)])
def test_a_session_too_many_or_too_few_is_seen(slots: int, idle_ms: int) -> None:
    """Clients would lose sessions that they use, or a broker hold more of them than it has memory for."""
    with patch.object(fetch_session, "EVICT_AFTER_MS", idle_ms), pytest.raises(ViolationError, match="session"):
        Kept(slots, 3).judged()
