"""Incremental fetch sessions (KIP-227): a consumer names its partitions once and later sends the changes only.

What a request means follows from its session id and epoch:

    id 0,  epoch -1   sessionless: a full fetch, no session is kept
    id 0,  epoch 0    a full fetch that asks for a new session
    id n,  epoch -1   a full fetch that ends session n
    id n,  epoch 0    a full fetch that ends session n and asks for a new one
    id n,  epoch m    an incremental fetch: changes and forgotten partitions of session n, in order

A session's epoch grows by one with each fetch and wraps from 2^31-1 to 1; a fetch out of step is refused, and the
client starts over.  An incremental answer leaves out partitions with nothing new: no records, no error, and high
watermark and log start as last sent.  The cache holds a bounded number of sessions; when it is full, a new session
evicts one that has been idle for two minutes, else the smallest of those that had existed for so long when they were
last used, if it is smaller.  A follower's session evicts any consumer's as well, and a consumer's none of a follower.
Where none gives way, the fetch is served without a session.

Invariant: all partitions of a session are named in the same way, by topic name (up to v12) or by id (v13 on).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.fetch_target import FetchTarget
from kbroker.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
MAX_EPOCH = 0x7FFFFFFF
EVICT_AFTER_MS = 120_000

PartitionKey = tuple[str | bytes, int]


class FetchSession:
    """A client's standing list of partitions."""

    __slots__ = (
        "session_id",
        "uses_topic_ids",
        "is_of_follower",
        "epoch",
        "targets",
        "created_ms",
        "last_used_ms",
        "cached_size",
    )

    def __init__(
        self,
        session_id: int,
        uses_topic_ids: bool,
        is_of_follower: bool,
        now_ms: int,
        targets: dict[PartitionKey, FetchTarget],
    ) -> None:
        self.session_id = session_id
        self.is_of_follower = is_of_follower
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.targets = targets
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.cached_size = len(targets)

    def advance(self, now_ms: int) -> None:
        """A fetch in order has come."""
        self.cached_size = len(self.targets)
        self.last_used_ms = now_ms
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    @property
    def value(self) -> tuple[bool, int]:
        """One that is worth less gives way to one that is worth more."""
        return self.is_of_follower, self.cached_size

    def may_be_evicted(self, by_follower: bool) -> bool:
        """Whether it gives way to one of more value, though it is in use."""
        is_old = self.last_used_ms - self.created_ms > EVICT_AFTER_MS
        return is_old or (by_follower and not self.is_of_follower)


@dataclass(slots=True)
class FetchPlan:
    """What to read for one fetch and how to answer it.

    `incremental`: partitions without news are left out.  `session`: the session that the answer belongs to, if any.
    """

    targets: Iterable[FetchTarget]
    session: FetchSession | None
    incremental: bool

    @property
    def session_id(self) -> int:
        """The session's id for the answer; 0 without a session."""
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessionCache:
    """The sessions of a broker, `max.incremental.fetch.session.cache.slots` at most."""

    def __init__(self, slots: int, seed: int | None = None) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        self._random = random.Random(seed)
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """The session, at any epoch."""
        return self._sessions.get(session_id)

    def drop_new(self, session_id: int) -> bool:
        """Forget a session that nothing but its first fetch belongs to; whether there was one."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != 1:
            return False
        del self._sessions[session_id]
        return True

    def plan(
        self,
        session_id: int,
        epoch: int,
        targets: list[FetchTarget],
        forgotten: Iterable[PartitionKey],
        uses_topic_ids: bool,
        now_ms: int,
        is_of_follower: bool = False,
    ) -> FetchPlan:
        """How to serve a fetch.  Raises when its session is unknown, out of step, or named its topics otherwise."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            session = None
            if epoch == INITIAL_EPOCH:
                session = self._create(targets, uses_topic_ids, now_ms, is_of_follower)
            return FetchPlan(targets, session, incremental=False)
        return self._continue(session_id, epoch, targets, forgotten, uses_topic_ids, now_ms)

    def _continue(
        self,
        session_id: int,
        epoch: int,
        targets: list[FetchTarget],
        forgotten: Iterable[PartitionKey],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchPlan:
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFoundError()
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError()
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError()
        for target in targets:
            key = (target.topic_id if uses_topic_ids else target.topic or "", target.index)
            known = session.targets.get(key)
            if known is None:
                session.targets[key] = target
            else:
                known.update(target)
        for key in forgotten:
            session.targets.pop(key, None)
        session.advance(now_ms)
        if not session.targets:
            del self._sessions[session_id]
            return FetchPlan((), None, incremental=False)
        # A fetch moves the partitions that it answers to the end, so that one partition with much data cannot starve
        # the others of a session: the order of reading is the order of this dictionary.
        return FetchPlan(list(session.targets.values()), session, incremental=True)

    def _create(
        self, targets: list[FetchTarget], uses_topic_ids: bool, now_ms: int, is_of_follower: bool
    ) -> FetchSession | None:
        if not targets or not self._make_room((is_of_follower, len(targets)), now_ms):
            return None
        session_id = self._random.randint(1, MAX_EPOCH)
        while session_id in self._sessions:
            session_id = self._random.randint(1, MAX_EPOCH)
        keyed: dict[PartitionKey, FetchTarget] = {
            (target.topic_id if uses_topic_ids else target.topic or "", target.index): target for target in targets
        }
        assert session_id not in self._sessions and session_id != NO_SESSION, f"session {session_id} is another's"
        session = FetchSession(session_id, uses_topic_ids, is_of_follower, now_ms, keyed)
        self._sessions[session_id] = session
        if CHECKED:
            self.check_invariants()
        return session

    def check_invariants(self) -> None:
        """Raises AssertionError unless each session has its id and partitions, and there is room for all."""
        assert len(self._sessions) <= self._slots, (len(self._sessions), self._slots)
        for session_id, session in self._sessions.items():
            assert session_id == session.session_id != NO_SESSION, (session_id, session.session_id)
            assert session.targets and 1 <= session.epoch <= MAX_EPOCH, (session_id, session.epoch)

    def _make_room(self, value: tuple[bool, int], now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        victim = self._idle(now_ms) or self._of_less(value)
        if victim is None:
            return False
        del self._sessions[victim.session_id]
        self.evictions += 1
        assert len(self._sessions) < self._slots, (len(self._sessions), self._slots)
        return True

    def _idle(self, now_ms: int) -> FetchSession | None:
        """The longest unused, if that is long enough."""
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms, default=None)
        return oldest if oldest is not None and now_ms - oldest.last_used_ms > EVICT_AFTER_MS else None

    def _of_less(self, value: tuple[bool, int]) -> FetchSession | None:
        """The one of the least value among those that may be evicted, if that is less than this."""
        by_follower, _ = value
        evictable = [session for session in self._sessions.values() if session.may_be_evicted(by_follower)]
        least = min(evictable, key=lambda session: session.value, default=None)
        return least if least is not None and least.value < value else None

    def rotate(self, session: FetchSession, answered: Iterable[FetchTarget]) -> None:
        """Move partitions that carried records behind those that did not, for the next fetch's fairness."""
        for target in answered:
            key: PartitionKey = (target.topic_id if session.uses_topic_ids else target.topic or "", target.index)
            if session.targets.get(key) is target:
                del session.targets[key]
                session.targets[key] = target
