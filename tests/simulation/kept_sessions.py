"""Which fetch sessions a broker may give up to make room for others (KIP-227): a plain copy of Kafka's rule, which
goes through all that a broker's cache is asked, and the one excuse for a broker that does not know a session.

A new session of a full cache takes the place of the one that has been unused for longest, if for over two minutes;
else of the least of those that give way, if that is less: one of a consumer is less than one of a follower, and of two
alike the one with fewer partitions.  To consumers those give way that were over two minutes old when they were last
used, to followers all consumers' as well.  Where there is none, there is no new session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker
    from kbroker.replication.fetch_session import FetchPlan, FetchSession, PartitionKey
    from tests.simulation.judge import Judge

EVICTION_MS = 120_000
SLOTS = "max.incremental.fetch.session.cache.slots"


@dataclass(slots=True, repr=False)
class Kept:
    """A session, as the rule sees it."""

    is_of_follower: bool
    partitions: set[PartitionKey]
    created_ms: int
    used_ms: int

    def __repr__(self) -> str:
        who = "follower" if self.is_of_follower else "consumer"
        return f"{who}'s of {len(self.partitions)} since {self.created_ms}, used {self.used_ms}"

    @property
    def worth(self) -> tuple[bool, int]:
        return self.is_of_follower, len(self.partitions)


class SessionRule:
    """What is in a cache with so many slots, by what it was asked.  `fail` is called with what Kafka's does not do."""

    def __init__(self, slots: int, fail: Callable[[str], None]) -> None:
        self._slots = slots
        self._fail = fail
        self.sessions: dict[int, Kept] = {}
        self.given_up: set[int] = set()
        """Those that made room for others."""

    def giving_way(self, is_of_follower: bool, size: int, now_ms: int) -> set[int]:
        """The sessions one of which gives way to a new one; of those that are alike any may."""
        if not self.sessions:
            return set()
        unused_since = min(each.used_ms for each in self.sessions.values())
        if now_ms - unused_since > EVICTION_MS:
            return {name for name, each in self.sessions.items() if each.used_ms == unused_since}
        least = {
            name: each.worth
            for name, each in self.sessions.items()
            if each.used_ms - each.created_ms > EVICTION_MS or (is_of_follower and not each.is_of_follower)
        }
        worth = min(least.values(), default=(is_of_follower, size))
        return {name for name in least if least[name] == worth} if worth < (is_of_follower, size) else set()

    def begins(self, session_id: int, made: Kept, left: set[int]) -> None:
        """A session was asked for, and has this id, or 0; `left`: those that are there since, but for the new one."""
        gone = self.sessions.keys() - left
        is_full = len(self.sessions) >= self._slots
        may_go = self.giving_way(*made.worth, made.created_ms) if is_full else set()
        expected = bool(made.partitions) and (not is_full or bool(may_go))
        if bool(session_id) != expected:
            self._fail(f"a session ({made}) is {session_id}, and is to be: {expected}, beside {self.sessions}")
        if len(gone) != int(expected and is_full) or not gone <= may_go:
            self._fail(f"for a session ({made}) {sorted(gone)} go, of {sorted(may_go)} one is to, of {self.sessions}")
        for each in gone:
            del self.sessions[each]
        self.given_up |= gone
        if session_id:
            self.sessions[session_id] = made

    def goes_on(self, session_id: int, named: set[PartitionKey], forgotten: set[PartitionKey], at: int) -> None:
        """A fetch of a session was in order."""
        session = self.sessions[session_id]
        session.partitions |= named
        session.partitions -= forgotten
        session.used_ms = at
        if not session.partitions:
            del self.sessions[session_id]

    def ends(self, session_id: int) -> None:
        """A session has ended; one that is not known here is passed over."""
        self.sessions.pop(session_id, None)


class SessionWitness:
    """Knows for each broker which sessions it may have given up; of a broker that it does not watch, none."""

    def __init__(self, judge: Judge, setting: Callable[[int, str], str | None]) -> None:
        self._judge = judge
        self._setting = setting
        self._watched: dict[int, _Watched] = {}

    def watch(self, node: int, broker: Broker) -> None:
        """A broker has started."""

        def fail(what: str) -> None:
            self._judge.fail(f"broker {node}: {what}")

        rule = SessionRule(int(self._setting(node, SLOTS) or 0), fail)
        self._watched[node] = _Watched(broker.services.fetch_sessions, broker.services.clock.now_ms, rule, fail)

    def excuses(self, code: int, node: int, session_id: int) -> bool:
        """Whether a broker may answer this to a fetch of a session that it has given out and that was not ended."""
        if code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND or node not in self._watched:
            return False
        return session_id in self._watched[node].rule.given_up


class _Watched:
    """The cache of a broker: what is asked of it from now on, the rule goes through as well."""

    def __init__(self, cache: Any, now_ms: Callable[[], int], rule: SessionRule, fail: Callable[[str], None]) -> None:
        self.rule = rule
        self._cache = cache
        self._now_ms = now_ms
        self._fail = fail
        self._got: tuple[FetchSession, int, int] | None = None
        """The session that was looked up last, its epoch then, and when."""
        for each in cache:
            kept = Kept(each.is_of_follower, set(each.targets), each.created_ms, each.last_used_ms)
            rule.sessions[each.session_id] = kept
        self._plan, cache.plan = cache.plan, self.plan
        self._get, cache.get = cache.get, self.get
        self._drop_new, cache.drop_new = cache.drop_new, self.drop_new

    def get(self, session_id: int) -> FetchSession | None:
        """The way in C looks a session up, and goes on with it where all is in order: its partitions stay."""
        self._catch_up()
        found: FetchSession | None = self._get(session_id)
        self._got = None if found is None else (found, found.epoch, self._now_ms())
        return found

    def _catch_up(self) -> None:
        if self._got is not None:
            session, epoch, at = self._got
            self._got = None
            if session.epoch != epoch:
                self.rule.goes_on(session.session_id, set(), set(), at)
        self._compare()

    def _compare(self) -> None:
        there = {each.session_id for each in self._cache}
        if there != self.rule.sessions.keys():
            self._fail(f"has fetch sessions {sorted(there)}, and is to have {self.rule.sessions}")

    def drop_new(self, session_id: int) -> bool:
        """One is ended that nothing but its first fetch belongs to."""
        self._catch_up()
        dropped: bool = self._drop_new(session_id)
        if dropped:
            self.rule.ends(session_id)
        self._compare()
        return dropped

    def plan(
        self,
        session_id: int,
        epoch: int,
        targets: list[Any],
        forgotten: Iterable[PartitionKey],
        uses_topic_ids: bool,
        now_ms: int,
        is_of_follower: bool = False,
    ) -> FetchPlan:
        """All other fetches come here; one that is refused changes nothing."""
        self._catch_up()
        forgotten = set(forgotten)
        keys = {(each.topic_id if uses_topic_ids else each.topic or "", each.index) for each in targets}
        made: FetchPlan = self._plan(session_id, epoch, targets, forgotten, uses_topic_ids, now_ms, is_of_follower)
        if epoch > 0:
            self.rule.goes_on(session_id, keys, forgotten, now_ms)
        else:
            self.rule.ends(session_id)
            if epoch == 0:
                left = {each.session_id for each in self._cache if each.session_id != made.session_id}
                self.rule.begins(made.session_id, Kept(is_of_follower, keys, now_ms, now_ms), left)
        self._compare()
        return made


__all__ = ["Kept", "SessionRule", "SessionWitness"]
