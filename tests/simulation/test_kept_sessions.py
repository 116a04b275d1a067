"""Fetch sessions that make room (`kbroker.replication.fetch_session`): what the model's own copy of the rule sees."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from kbroker._fast.log.fetch_target import FetchTarget
from kbroker.error_codes import ErrorCode
from kbroker.errors import FetchSessionIdNotFoundError, KafkaError
from kbroker.replication import fetch_session
from kbroker.replication.fetch_session import FetchSession, FetchSessionCache
from kbroker.types import ZERO_UUID
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.kept_sessions import SessionWitness

MISSING = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
OLD_MS = 120_001


class Broker:
    """The one part of a broker that is looked at, watched as node 1."""

    def __init__(self, slots: int) -> None:
        self.now = 0
        self.cache = FetchSessionCache(slots, 1)
        self.services = SimpleNamespace(fetch_sessions=self.cache, clock=SimpleNamespace(now_ms=lambda: self.now))
        self.judge = Judge(lambda: self.now)
        self.witness = SessionWitness(self.judge, lambda _node, _name: str(slots))
        watched: Any = self
        self.witness.watch(1, watched)

    def fetch(self, session_id: int, epoch: int, count: int = 0, *, is_of_follower: bool = False) -> int:
        """The id that the answer has."""
        targets = [FetchTarget("t", ZERO_UUID, index, 0, 1000, -1, -1, 0) for index in range(count)]
        plan = self.cache.plan(session_id, epoch, targets, (), False, self.now, is_of_follower)
        return plan.session_id

    def fetch_in_c(self, session_id: int) -> None:
        """As the fast path goes on with a session."""
        session = self.cache.get(session_id)
        assert session is not None
        session.advance(self.now)


def test_a_session_that_made_room_is_excused_and_no_other() -> None:
    """A broker could forget sessions as it likes, and clients that begin anew would hide it."""
    broker = Broker(1)
    consumer = broker.fetch(0, 0, 3)
    assert not broker.witness.excuses(MISSING, 1, consumer)
    follower = broker.fetch(0, 0, 1, is_of_follower=True)
    with pytest.raises(FetchSessionIdNotFoundError):
        broker.fetch(consumer, 1)
    assert broker.witness.excuses(MISSING, 1, consumer)
    assert not broker.witness.excuses(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1, consumer)
    assert not broker.witness.excuses(MISSING, 1, follower)
    assert not broker.witness.excuses(MISSING, 2, consumer)


def test_a_session_that_is_lost_while_there_is_room_is_seen() -> None:
    """The one excuse of an error is that others were given the room."""
    broker = Broker(3)
    lost = broker.fetch(0, 0, 1)
    del broker.cache._sessions[lost]
    assert not broker.witness.excuses(MISSING, 1, lost)
    with pytest.raises(ViolationError, match="is to have"):
        broker.fetch(0, 0, 1)


@contextmanager
def wrong(name: str, rule: Any) -> Iterator[None]:
    with patch.object(FetchSession, name, rule), pytest.raises(ViolationError, match="session"):
        yield


def test_a_young_session_that_makes_room_for_a_consumer_is_seen() -> None:
    """A consumer of few partitions would lose its session whenever another one comes."""
    broker = Broker(1)
    broker.fetch(0, 0, 1)
    with wrong("may_be_evicted", lambda _session, _by_follower: True):
        broker.fetch(0, 0, 2)


def test_a_larger_session_that_makes_room_for_a_smaller_one_is_seen() -> None:
    """Those would go that save the most."""
    broker = Broker(1)
    first = broker.fetch(0, 0, 2)
    broker.now = OLD_MS - 1
    broker.fetch_in_c(first)
    broker.now = OLD_MS
    broker.fetch_in_c(first)
    with wrong("value", property(lambda session: (False, -session.cached_size))):
        broker.fetch(0, 0, 1)


def test_a_session_that_keeps_its_place_for_too_long_is_seen() -> None:
    """A client that has gone would keep others from a session of their own."""
    broker = Broker(1)
    broker.fetch(0, 0, 1)
    broker.now = OLD_MS
    with patch.object(fetch_session, "EVICT_AFTER_MS", 2 * OLD_MS), pytest.raises(ViolationError, match="is to be"):
        broker.fetch(0, 0, 1)


def test_a_use_that_only_the_way_in_c_sees_counts() -> None:
    """What a session was used for last would be taken from before, and its eviction for right or wrong by that."""
    broker = Broker(2)
    busy, idle = broker.fetch(0, 0, 1), broker.fetch(0, 0, 1)
    broker.now = OLD_MS - 1
    broker.fetch_in_c(busy)
    broker.now = OLD_MS
    assert broker.fetch(0, 0, 1)
    assert broker.witness.excuses(MISSING, 1, idle) and not broker.witness.excuses(MISSING, 1, busy)


def test_ended_and_dropped_sessions_are_no_violation() -> None:
    """Histories would fail for brokers that keep sessions as Kafka does."""
    rng = random.Random(7)
    for slots in (0, 1, 3):
        broker, epochs = Broker(slots), dict[int, int]()
        for _ in range(2000):
            broker.now += rng.choice((0, 1, 1000, 50_000))
            known = [each for each in epochs if rng.random() < 0.7]
            session_id = rng.choice(known) if known else 0
            epoch = rng.choice((epochs[session_id], epochs[session_id], 0, -1)) if session_id else 0
            if session_id and rng.random() < 0.1:
                if broker.cache.drop_new(session_id):
                    del epochs[session_id]
                continue
            try:
                made = broker.fetch(session_id, epoch, rng.randrange(4), is_of_follower=rng.random() < 0.3)
            except KafkaError as error:
                assert error.code == MISSING and broker.witness.excuses(MISSING, 1, session_id)
                del epochs[session_id]
                continue
            if epoch <= 0:
                epochs.pop(session_id, None)
            if made:
                epochs[made] = epochs.get(made, 0) + 1
