"""A voter of the controllers' quorum: elections, leading and following (KIP-595, KIP-853, KIP-996).

A machine without I/O, clock or chance: times are arguments, in seconds on any clock that does not go back.

    steps = machine.start(now)
    steps = machine.tick(now)                          at `machine.deadline()`, or later
    answer, steps = machine.asked(request, now)        a Vote, BeginEpoch or EndEpoch of another voter
    steps = machine.answered(request, answer, now)     … or `machine.failed(request, now)`
    verdict, steps = machine.fetched(key, place, now)  a replica asks for records: this node must lead
    machine.appended(start_offset, end_offset)
    steps = machine.synced(end_offset), machine.followed(found, now), machine.voters_changed(voters, now)

Steps are carried out in their order, each before the answer and before the next one: `Persist` is durable when it is
done, so no vote, no epoch leaves this node that a power cut takes back.  What a follower asks its leader, and what that
answers, is `kraft.quorum`'s: the same machine serves brokers, which only observe.

Rules: one vote for each epoch; votes for logs that are as new as the own one alone; a leader takes no part in its epoch
again once it has resigned or was restarted; an epoch is raised only after a majority has said that it would vote.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.kraft.quorum_steps import NO_LEADER, Committed, Elected
from kbroker.cluster.raft.election import (
    LAST_EPOCH,
    Answer,
    BeginEpoch,
    Election,
    EndEpoch,
    EpochAnswer,
    RaftState,
    RaftTiming,
    ReplicaKey,
    Request,
    Tally,
    Vote,
    VoteAnswer,
    Voters,
)
from kbroker.cluster.raft.leader import LeaderProgress
from kbroker.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.cluster.kraft.quorum import Quorum
    from kbroker.cluster.kraft.quorum_steps import EpochStart, LogPlace, SnapshotId
    from kbroker.cluster.kraft.quorum_steps import Step as FollowerStep

CHECK_QUORUM_FETCHES = 1.5
"""A leader that no majority has fetched from for so many fetch timeouts resigns."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Have this in `quorum-state`, synced, before anything that follows."""

    election: Election


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to `request.to`; call `answered` with its answer, or `failed`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Lead:
    """Append the LeaderChange record of this epoch, which names who voted for this node; `appended` follows."""

    epoch: int
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StopLeading:
    """What waits for this leader fails; nothing is appended any more."""

    epoch: int


RaftStep = Persist | Send | Lead | StopLeading | Committed


class Fetched(NamedTuple):
    """What a replica that asks for records gets: an error, or where its log differs, or records from its place on."""

    error: int = 0
    diverging: EpochStart | None = None
    high_watermark: int = -1
    needs_snapshot: bool = False


class RaftMachine:
    """See the module.  `log` is the replica's place in the log, and its follower (`kraft.quorum`).

    `begins()`: the offset at which the log on disk begins, and the snapshot before it, if there is one.
    """

    def __init__(
        self,
        me: ReplicaKey,
        log: Quorum,
        voters: Voters,
        kept: Election,
        timing: RaftTiming,
        rng: random.Random,
        begins: Callable[[], tuple[int, SnapshotId | None]] = lambda: (0, None),
    ) -> None:
        self.me = me
        self.voters = voters
        self.timing = timing
        self._log = log
        self._random = rng
        self._begins = begins
        self._kept = kept
        """What was persisted last."""
        self.state = RaftState.UNATTACHED
        self._voted: ReplicaKey | None = None
        self._timer = math.inf
        self._tally = Tally(())
        self._retries: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        """Requests in a row, by voter, that got no answer in this state."""
        self._sent: dict[int, Request] = {}
        self._has_fetched = False
        self._progress: LeaderProgress | None = None
        self._preferred: tuple[ReplicaKey, ...] = ()
        self._begun_at: dict[int, float] = {}
        self._is_leaving = False

    @property
    def epoch(self) -> int:
        """The epoch by now."""
        return self._log.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch; NO_LEADER where it is not known."""
        return self._log.leader_id

    @property
    def voted_id(self) -> int:
        """For whom this node has voted in this epoch, itself included; -1: for none."""
        if self.state in (RaftState.CANDIDATE, RaftState.LEADER):
            return self.me.node_id
        return -1 if self._voted is None else self._voted.node_id

    @property
    def is_voter(self) -> bool:
        """Whether this replica votes by now."""
        return self.voters.has(self.me)

    @property
    def _may_stand(self) -> bool:
        """Whether this replica stands for election: as a voter, or while its removal may not be committed, since it
        may be the only one that has what the others need to elect a leader."""
        return self.is_voter or self._is_leaving

    @property
    def progress(self) -> LeaderProgress | None:
        """Of the leader; None on other nodes."""
        return self._progress

    def deadline(self) -> float:
        """When `tick` is due."""
        times = [self._timer, *self._retries.values()]
        if self._progress is not None:
            times += [self._quorum_deadline(), *self._begin_times()]
        return min(times)

    # -- start --------------------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[RaftStep]:
        """Take up what is kept: the state in which this node stopped, or one that promises less."""
        kept = self._kept
        if kept.epoch < self.epoch:
            # The log is newer than the votes: it has followed a leader since, and voted in none of the epochs after.
            self._unattached(now)
            return [self._persist()]
        self._voted = kept.voted
        if self.is_voter and len(self.voters.keys) == 1:
            # No other voter has to be waited for: the next epoch is this node's.
            return self._prospective(now)
        if kept.leader_id == self.me.node_id:
            self._become(RaftState.RESIGNED)
            self._draw(now)
        else:
            self._follow_if_known(now)
        return []

    # -- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[RaftStep]:
        """What is due."""
        steps: list[RaftStep] = []
        if now >= self._timer:
            steps += self._expired(now)
        if self._progress is not None:
            if now >= self._quorum_deadline():
                return [*steps, *self.resign(now)]
            steps += self._begin_again(now)
        for node_id in [each for each, at in self._retries.items() if now >= at]:
            del self._retries[node_id]
            steps += self._send_to(node_id)
        return steps

    def _expired(self, now: float) -> list[RaftStep]:
        self._timer = math.inf
        match self.state:
            case RaftState.UNATTACHED | RaftState.FOLLOWER | RaftState.CANDIDATE:
                return self._prospective(now) if self._may_stand else []
            case RaftState.PROSPECTIVE:
                return self._step_back(now)
            case RaftState.RESIGNED if self.epoch < LAST_EPOCH:
                self._timer = now
                return self._enter(self.epoch + 1, now)
            case _:
                return []

    def _draw(self, now: float) -> None:
        self._timer = now + self.timing.election * self._random.uniform(1.0, 2.0)

    # -- states -------------------------------------------------------------------------------------------------------

    def _become(self, state: RaftState) -> None:
        self.state = state
        self._tally = Tally(())
        self._retries.clear()
        self._failures.clear()
        self._sent.clear()
        self._timer = math.inf
        if state is not RaftState.LEADER:
            self._progress = None

    def _persist(self) -> Persist:
        before, now = self._kept, Election(self.epoch, self.leader_id, self._voted)
        assert now.epoch >= before.epoch, "an epoch never goes back"
        is_same = now.epoch == before.epoch
        assert not is_same or before.voted is None or now.voted == before.voted or now.leader_id == self.me.node_id
        self._kept = now
        return Persist(now)

    def _unattached(self, now: float, remaining: float = math.inf) -> None:
        self._become(RaftState.UNATTACHED)
        if remaining < math.inf:
            self._timer = max(now, remaining)
        else:
            self._draw(now)

    def _enter(self, epoch: int, now: float) -> list[RaftStep]:
        """Believe a larger epoch, of which no leader is known."""
        assert epoch > self.epoch
        steps = self._end_lead()
        remaining = math.inf if self.state is RaftState.FOLLOWER else self._timer
        self._log.enter(epoch, NO_LEADER)
        self._voted = None
        self._unattached(now, remaining)
        return [*steps, self._persist()]

    def _end_lead(self) -> list[RaftStep]:
        return [StopLeading(self.epoch)] if self.state is RaftState.LEADER else []

    def _follow(self, now: float) -> None:
        self._become(RaftState.FOLLOWER)
        self._has_fetched = False
        self._timer = now + self.timing.fetch

    def _prospective(self, now: float) -> list[RaftStep]:
        self._become(RaftState.PROSPECTIVE)
        self._draw(now)
        return self._stand(now)

    def _step_back(self, now: float) -> list[RaftStep]:
        """A majority would not vote for this node: back to the leader that it knows, or wait for one."""
        if self.leader_id != NO_LEADER:
            self._follow(now)
        else:
            self._unattached(now)
        return []

    def _stand(self, now: float) -> list[RaftStep]:
        self._tally = Tally(tuple(self.voters.keys))
        self._tally.take(self.me.node_id, is_granted=True)
        if self._tally.is_won:
            return self._won(now)
        steps: list[RaftStep] = []
        for node_id in self._others():
            steps += self._send_to(node_id)
        return steps

    def _others(self) -> list[int]:
        return [node_id for node_id, key in self.voters.keys.items() if not key.matches(self.me)]

    def _won(self, now: float) -> list[RaftStep]:
        if not self._may_stand or self.epoch == LAST_EPOCH:
            return self._step_back(now)  # The voters are others by now, or no epoch is left.
        if self.state is RaftState.PROSPECTIVE:
            self._log.enter(self.epoch + 1, NO_LEADER)
            self._voted = self.me
            self._become(RaftState.CANDIDATE)
            self._draw(now)
            return [self._persist(), *self._stand(now)]
        granting = tuple(sorted(self._tally.granted))
        self._log.enter(self.epoch, self.me.node_id)
        self._become(RaftState.LEADER)
        self._begun_at.clear()
        self._progress = LeaderProgress(self.me, self._log.end_offset, self._log.high_watermark, now)
        self._voted = None
        return [self._persist(), Lead(self.epoch, granting)]

    def resign(self, now: float) -> list[RaftStep]:
        """Lead no more, of one's own accord: the voters hear who should stand, the best first."""
        if self._progress is None:
            return []
        self._preferred = self._progress.by_progress(self.voters)
        steps: list[RaftStep] = self._end_lead()
        self._become(RaftState.RESIGNED)
        self._draw(now)
        for node_id in self._others():
            steps += self._send_to(node_id)
        return steps

    # -- requests that this node sends --------------------------------------------------------------------------------

    def _send_to(self, node_id: int) -> list[RaftStep]:
        """What is to be asked of a voter in this state, if it is not known yet."""
        key = self.voters.keys.get(node_id)
        if key is None:
            return []
        if self.state in (RaftState.PROSPECTIVE, RaftState.CANDIDATE):
            if node_id in self._tally.granted | self._tally.refused:
                return []
            is_pre_vote = self.state is RaftState.PROSPECTIVE
            request: Request = Vote(key, self.epoch, self.me, self._log.last_epoch, self._log.end_offset, is_pre_vote)
        elif self.state is RaftState.LEADER:
            request = BeginEpoch(key, self.epoch, self.me)
        elif self.state is RaftState.RESIGNED:
            request = EndEpoch(key, self.epoch, self.me.node_id, self._preferred)
        else:
            return []
        self._sent[node_id] = request
        return [Send(request)]

    def failed(self, request: Request, now: float) -> list[RaftStep]:
        """A request got no answer: it is sent again after a pause, if it still stands."""
        node_id = request.to.node_id
        if self._sent.get(node_id) is request:
            del self._sent[node_id]
            self._retries[node_id] = now + self.timing.retries.backoff(self._failures[node_id])
            self._failures[node_id] += 1
        return []

    def answered(self, request: Request, answer: Answer, now: float) -> list[RaftStep]:
        """An answer has come.  It counts only for the request that stands."""
        self._failures.pop(request.to.node_id, None)
        stands = self._sent.pop(request.to.node_id, None) if self._sent.get(request.to.node_id) is request else None
        if answer.epoch > self.epoch:
            return self._take_epoch(answer.epoch, answer.leader_id, now)
        if answer.epoch == self.epoch and answer.leader_id not in (NO_LEADER, self.me.node_id):
            steps = self._take_leader(answer.leader_id, now)
            if steps or self.state is RaftState.FOLLOWER:
                return steps
        if stands is None or not isinstance(answer, VoteAnswer) or not isinstance(request, Vote):
            return []
        if self.state not in (RaftState.PROSPECTIVE, RaftState.CANDIDATE):
            return []
        self._tally.take(request.to.node_id, answer.is_granted and not answer.error)
        if self._tally.is_won:
            return self._won(now)
        if self._tally.is_lost and self.state is RaftState.PROSPECTIVE:
            return self._step_back(now)
        return []  # A candidate that has lost waits for the rest of its election timer.

    # -- requests of others -------------------------------------------------------------------------------------------

    def asked(self, request: Request, now: float) -> tuple[Answer, list[RaftStep]]:
        """The answer to another voter, which leaves once the steps are done."""
        if isinstance(request, Vote):
            return self._voted_on(request, now)
        return self._epoch_told(request, now)

    def _voted_on(self, vote: Vote, now: float) -> tuple[VoteAnswer, list[RaftStep]]:
        if vote.is_bad:
            return self._vote_answer(ErrorCode.INVALID_REQUEST), []
        if vote.epoch < self.epoch:
            return self._vote_answer(ErrorCode.FENCED_LEADER_EPOCH), []
        steps = self._enter(vote.epoch, now) if vote.epoch > self.epoch else []
        if not vote.to.matches(self.me):
            return self._vote_answer(ErrorCode.INVALID_VOTER_KEY), steps
        granted = self._would_grant(vote)
        if granted and not vote.is_pre_vote:
            self._voted = self._voted or vote.candidate
            if self.state is RaftState.PROSPECTIVE:
                self._unattached(now, self._timer)
            steps.append(self._persist())
        return self._vote_answer(0, is_granted=granted), steps

    def _vote_answer(self, error: int, *, is_granted: bool = False) -> VoteAnswer:
        return VoteAnswer(int(error), self.epoch, self.leader_id, is_granted)

    def _would_grant(self, vote: Vote) -> bool:
        is_new = (vote.last_epoch, vote.end_offset) >= (self._log.last_epoch, self._log.end_offset)
        match self.state:
            case RaftState.LEADER:
                return False
            case RaftState.FOLLOWER:
                return vote.is_pre_vote and not self._has_fetched and is_new
            case RaftState.CANDIDATE | RaftState.RESIGNED:
                return vote.is_pre_vote and is_new
        if vote.is_pre_vote:
            return is_new
        has_no_leader = self.leader_id == NO_LEADER
        return is_new and has_no_leader and (self._voted is None or self._voted.matches(vote.candidate))

    def _epoch_told(self, request: BeginEpoch | EndEpoch, now: float) -> tuple[EpochAnswer, list[RaftStep]]:
        leader_id = request.leader.node_id if isinstance(request, BeginEpoch) else request.leader_id
        if request.epoch < self.epoch:
            return self._epoch_answer(ErrorCode.FENCED_LEADER_EPOCH), []
        if request.is_bad:
            return self._epoch_answer(ErrorCode.INVALID_REQUEST), []
        if request.epoch > self.epoch:
            steps = self._take_epoch(request.epoch, leader_id, now)
        else:
            steps = self._take_leader(leader_id, now)
        if not request.to.matches(self.me):
            return self._epoch_answer(ErrorCode.INVALID_VOTER_KEY), steps
        if isinstance(request, EndEpoch) and self.state is RaftState.FOLLOWER and self.leader_id == leader_id:
            self._timer = now + self._wait_after(request.preferred)
        return self._epoch_answer(0), steps

    def _wait_after(self, preferred: Sequence[ReplicaKey]) -> float:
        """How long after its leader's resignation a follower stands: the best at once, those without a place last."""
        most = self.timing.most_backoff
        for place, key in enumerate(preferred):
            if key.matches(self.me):
                if place == 0:
                    return 0.0
                return most * min(1.0, 0.5 ** (len(preferred) - place))
        return most

    def _epoch_answer(self, error: int) -> EpochAnswer:
        return EpochAnswer(int(error), self.epoch, self.leader_id)

    # -- leaders of others --------------------------------------------------------------------------------------------

    def _take_epoch(self, epoch: int, leader_id: int, now: float) -> list[RaftStep]:
        """Believe a larger epoch, with its leader where that is known."""
        steps = self._end_lead()
        if leader_id == NO_LEADER:
            return self._enter(epoch, now)
        if leader_id == self.me.node_id:
            # It has led an epoch that its files do not know: they are of before.  It gives no second vote there.
            steps = self._enter(epoch, now)[:-1]
            self._voted = self.me
            return [*steps, self._persist()]
        self._log.enter(epoch, leader_id)
        self._voted = None
        self._follow_if_known(now)
        return [*steps, self._persist()]

    def _take_leader(self, leader_id: int, now: float) -> list[RaftStep]:
        """The leader of this epoch, if none is known here."""
        if self.leader_id != NO_LEADER or leader_id in (NO_LEADER, self.me.node_id):
            return []
        self._log.enter(self.epoch, leader_id)
        self._follow_if_known(now)
        return [self._persist()]

    def _follow_if_known(self, now: float) -> None:
        """Follow the leader of this epoch, if there is one; one whose address is not known cannot be asked."""
        if self._log.leader is None:
            self._unattached(now)
        else:
            self._follow(now)

    def voters_changed(self, voters: Voters, now: float, *, is_leaving: bool = False) -> list[RaftStep]:
        """The log has another VotersRecord, committed or not, or has lost its last one.  `is_leaving`: it removes this
        replica, and is not known to be committed."""
        if self._progress is not None:
            # A voter that is new has just been heard as an observer, and has acknowledged nothing as a voter.
            for node_id, key in voters.keys.items():
                if self.voters.keys.get(node_id) != key:
                    self._progress.begin(voters, key, now)
        self.voters, self._is_leaving = voters, is_leaving
        if self._timer == math.inf and self.state is RaftState.UNATTACHED and self._may_stand:
            self._draw(now)
        return self._moved(self._progress is not None and self._progress.recompute(voters))

    def followed(self, found: Sequence[FollowerStep], now: float, *, is_served: bool = True) -> list[RaftStep]:
        """What the answer of a leader came to (`Quorum.answered`), in the same turn; the caller carries its steps out,
        behind those of this.  `is_served`: the answer was a good one, so that the leader is alive."""
        elected = next((each for each in found if isinstance(each, Elected)), None)
        if elected is not None:
            assert self.state is not RaftState.LEADER, "a leader asks no other"
            if self.epoch != self._kept.epoch:
                # In an epoch that it has led itself, as others say, it gives no second vote.
                self._voted = self.me if elected.leader_id == self.me.node_id else None
            self._follow_if_known(now)
            return [self._persist()]
        if is_served and self.state is RaftState.FOLLOWER:
            self._has_fetched = True
            self._timer = now + self.timing.fetch
        return []

    # -- leading ------------------------------------------------------------------------------------------------------

    def appended(self, start_offset: int, end_offset: int) -> None:
        """This leader has appended a batch of its epoch from `start_offset` on."""
        assert self.state is RaftState.LEADER, "only a leader appends"
        assert start_offset == self._log.end_offset, "a batch follows the log's end"
        self._log.appended(self.epoch, start_offset, end_offset)

    def synced(self, end_offset: int) -> list[RaftStep]:
        """This leader's log is on disk up to here: only now it counts itself."""
        assert end_offset <= self._log.end_offset
        if self._progress is None:
            return []
        return self._moved(self._progress.synced(self.voters, end_offset))

    def _moved(self, has_moved: bool) -> list[RaftStep]:
        if not has_moved or self._progress is None:
            return []
        reached = self._progress.high_watermark
        assert self._log.high_watermark < reached <= self._log.end_offset
        self._log.high_watermark = reached
        return [Committed(reached)]

    def fetched(self, key: ReplicaKey, place: LogPlace, now: float) -> tuple[Fetched, list[RaftStep]]:
        """A replica asks for records from its place on."""
        if min(place.end_offset, place.last_epoch) < 0 or place.last_epoch > place.epoch:
            return Fetched(int(ErrorCode.INVALID_REQUEST)), []
        if place.epoch < self.epoch:
            return Fetched(int(ErrorCode.FENCED_LEADER_EPOCH)), []
        if place.epoch > self.epoch:
            return Fetched(int(ErrorCode.UNKNOWN_LEADER_EPOCH)), []
        if self._progress is None:
            return Fetched(int(ErrorCode.NOT_LEADER_OR_FOLLOWER)), []
        begin, snapshot = self._begins()
        if place.end_offset < begin or (snapshot is not None and place.last_epoch < snapshot.epoch):
            self._progress.heard(self.voters, key, now)
            return Fetched(needs_snapshot=True), []
        end = self._log.end_of_epoch(place.last_epoch)
        if end.epoch != place.last_epoch or place.end_offset > end.offset:
            return Fetched(diverging=end), []
        steps = self._moved(self._progress.fetched(self.voters, key, place.end_offset, now))
        return Fetched(high_watermark=self._progress.answered_high_watermark), steps

    def heard(self, key: ReplicaKey, now: float) -> None:
        """A replica is there, if only to fetch a snapshot; this node leads."""
        if self._progress is not None:
            self._progress.heard(self.voters, key, now)

    def _quorum_deadline(self) -> float:
        assert self._progress is not None
        since = self._progress.quorum_since(self.voters)
        return since + CHECK_QUORUM_FETCHES * self.timing.fetch

    def _begin_times(self) -> list[float]:
        """When each voter is to hear of this leader, unless it fetches."""
        assert self._progress is not None
        times = []
        for node_id in self._others():
            heard = self._progress.last_heard(node_id)
            last = max(self._begun_at.get(node_id, -math.inf), -math.inf if heard is None else heard)
            times.append(last + self.timing.fetch / 2)
        return times

    def _begin_again(self, now: float) -> list[RaftStep]:
        steps: list[RaftStep] = []
        for node_id, at in zip(self._others(), self._begin_times(), strict=True):
            if now >= at:
                self._begun_at[node_id] = now
                if node_id not in self._retries:
                    steps += self._send_to(node_id)
        return steps
