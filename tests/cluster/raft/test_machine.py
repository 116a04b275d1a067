"""The voters' machine: histories under faults, mutations that they find, and Kafka's rules one by one.

Of `kbroker.cluster.raft.machine`, `kbroker.cluster.raft.election` and `kbroker.cluster.raft.leader`; the interfaces in
`kbroker.cluster.raft.leader_log` and `kbroker.cluster.raft.service` are what stands on it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.quorum_steps import NO_LEADER, Committed, EpochStart, Identity, KeptLog, LogPlace
from kbroker.cluster.raft.election import (
    LAST_EPOCH,
    BeginEpoch,
    Election,
    EndEpoch,
    EpochAnswer,
    RaftState,
    RaftTiming,
    ReplicaKey,
    Tally,
    Vote,
    VoteAnswer,
    Voters,
)
from kbroker.cluster.raft.leader import LeaderProgress
from kbroker.cluster.raft.machine import Lead, Persist, RaftMachine, Send, StopLeading
from kbroker.error_codes import ErrorCode
from tests.cluster.kraft.controllers import endpoint_of
from tests.cluster.raft.histories import play

HISTORIES = int(os.environ.get("TEST_RAFT_HISTORIES", "40"))
US, OTHER, THIRD = (ReplicaKey(each, bytes([each]) * 16) for each in (1, 2, 3))
TIMING = RaftTiming()
NONE = Election()


@pytest.mark.parametrize("count", range(1, 6))
def test_voters_agree_under_faults(count: int) -> None:
    """A committed record would change, an epoch have two leaders, or a majority that hears each other none."""
    for seed in range(HISTORIES // 5):
        try:
            play(seed, count)
        except AssertionError as error:
            raise AssertionError(f"seed {seed} of {count} voters: {error}") from error


def _votes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: RaftMachine, vote: Vote, found: Callable[..., bool] = RaftMachine._would_grant) -> bool:
        self._voted = None
        return found(self, vote)

    monkeypatch.setattr(RaftMachine, "_would_grant", forgetful)
    monkeypatch.setattr(
        RaftMachine, "_persist", lambda self: Persist(Election(self.epoch, self.leader_id, self._voted))
    )


def _votes_for_older_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(self: RaftMachine, vote: Vote, found: Callable[..., bool] = RaftMachine._would_grant) -> bool:
        return found(self, vote._replace(last_epoch=1 << 30, end_offset=1 << 30))

    monkeypatch.setattr(RaftMachine, "_would_grant", generous)


def _goes_on_as_leader_behind_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    start = RaftMachine.start

    def resumed(self: RaftMachine, now: float) -> list[Any]:
        if self._kept.leader_id == self.me.node_id and self._kept.epoch == self.epoch:
            self._become(RaftState.LEADER)
            return [Lead(self.epoch, ())]
        return start(self, now)

    monkeypatch.setattr(RaftMachine, "start", resumed)


def _less_than_a_majority_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Voters, "majority", property(lambda self: max(1, len(self.keys) // 2)))


def _sees_no_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quorum, "end_of_epoch", lambda self, epoch: EpochStart(epoch, self.end_offset))


MUTATIONS = [
    _votes_twice,
    _votes_for_older_logs,
    _goes_on_as_leader_behind_a_restart,
    _less_than_a_majority_commits,
    _sees_no_divergence,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda each: each.__name__.strip("_"))
def test_histories_find_each_fault_that_is_put_in(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would pass a machine that loses what it has promised."""
    mutate(monkeypatch)
    found = 0
    for seed in range(40):
        try:
            play(seed, 2 + seed % 4)
        except (AssertionError, RecursionError, KeyError):
            found += 1
            break
    assert found


# Kafka's rules


def test_half_of_the_voters_elect_no_leader() -> None:
    """Both halves of a cut network would have one."""
    tally = Tally((1, 2, 3, 4))
    for node_id in (1, 2, 2, 7):
        tally.take(node_id, is_granted=True)
    assert not tally.is_won and not tally.is_lost
    tally.take(3, is_granted=False)
    tally.take(3, is_granted=True)
    assert not tally.is_won and not tally.is_lost
    tally.take(4, is_granted=False)
    assert tally.is_lost


def test_what_replicas_are_told_is_committed_in_this_epoch() -> None:
    """A Kafka voter ends when an answer has a high watermark below its own."""
    made = LeaderProgress(US, 90, 90, 0.0)
    voters = Voters({each.node_id: each for each in (US, OTHER, THIRD)})
    assert made.answered_high_watermark == -1
    assert not made.synced(voters, 91)
    assert made.fetched(voters, OTHER, 91, 0.0)
    assert made.answered_high_watermark == 91


def test_a_replica_counts_as_the_voter_that_it_is_known_as() -> None:
    """An empty disk would acknowledge what the lost one had, and a voter vote twice for one without a directory."""
    assert Voters({2: OTHER}).has(OTHER) and not Voters({2: OTHER}).has(ReplicaKey(2))
    assert Voters({2: ReplicaKey(2)}).has(OTHER)
    made = machine()
    assert made.asked(vote(1), 0.0)[0] == VoteAnswer(0, 1, NO_LEADER, True)
    assert made.asked(vote(1, candidate=ReplicaKey(2)), 0.0)[0] == VoteAnswer(0, 1, NO_LEADER, False)
    static = Voters({1: ReplicaKey(1), 2: ReplicaKey(2), 3: ReplicaKey(3)})
    progress = LeaderProgress(US, 0, 0, 0.0)
    progress.synced(static, 9)
    assert progress.fetched(static, OTHER, 9, 0.0)
    assert not progress.fetched(static, ReplicaKey(2, b"new" + bytes(13)), 0, 0.0)
    progress.synced(static, 20)
    assert not progress.recompute(static) and progress.high_watermark == 9


def test_a_resignation_is_said_until_it_is_heard() -> None:
    """The voters would wait for their fetch timers."""
    made, now = leading()
    request = next(each.request for each in made.resign(now) if isinstance(each, Send))
    made.failed(request, now)
    (again,) = made.tick(now + TIMING.retry)
    assert isinstance(again, Send) and isinstance(again.request, EndEpoch) and again.request.to == request.to


def test_a_voter_that_does_not_answer_is_asked_less_and_less() -> None:
    """A leader whose second voter is switched off would knock at its door fifty times a second for ever."""
    made, now = leading()
    request = next(each.request for each in made.tick(now) if isinstance(each, Send))
    waits = []
    for _ in range(7):
        made.failed(request, now)
        at = min(made._retries.values())
        waits.append(round(at - now, 9))
        now = at
        (request,) = (
            each.request for each in made.tick(now) if isinstance(each, Send) and each.request.to == request.to
        )
    assert waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    made.answered(request, EpochAnswer(0, made.epoch, US.node_id), now)
    again = next(each.request for each in made.tick(now + TIMING.fetch / 2) if isinstance(each, Send))
    made.failed(again, now + TIMING.fetch / 2)
    assert min(made._retries.values()) == now + TIMING.fetch / 2 + TIMING.retry


def quorum_of(kept: KeptLog) -> Quorum:
    voters = {each.node_id: endpoint_of(each.node_id) for each in (US, OTHER, THIRD)}
    return Quorum(Identity(US.node_id, "c", US.directory_id), kept, [], voters, random.Random(1))


def machine(election: Election = NONE, voters: tuple[ReplicaKey, ...] = (US, OTHER, THIRD), **log: Any) -> RaftMachine:
    """Started at 0."""
    kept = KeptLog(epoch=election.epoch, leader_id=election.leader_id, **log)
    made = RaftMachine(
        US, quorum_of(kept), Voters({each.node_id: each for each in voters}), election, TIMING, random.Random(2)
    )
    made.start(0.0)
    return made


def leading() -> tuple[RaftMachine, float]:
    """The leader of epoch 1 whose LeaderChange is at 0."""
    made = machine()
    now = made.deadline()
    sent = [each.request for each in made.tick(now) if isinstance(each, Send)]
    for _ in range(2):
        request = sent[0]
        steps = made.answered(request, VoteAnswer(0, made.epoch, NO_LEADER, True), now)
        sent = [each.request for each in steps if isinstance(each, Send)]
    assert made.state is RaftState.LEADER
    made.appended(0, 1)
    return made, now


def vote(epoch: int, *, candidate: ReplicaKey = OTHER, last: int = 0, end: int = 0, pre: bool = False) -> Vote:
    return Vote(US, epoch, candidate, last, end, pre)


def test_a_quorum_of_one_leads_without_waiting() -> None:
    """A single node would have to wait for an election that nobody else takes part in, also behind a restart."""
    for kept in (Election(), Election(4, US.node_id), Election(4, NO_LEADER, US)):
        made = RaftMachine(
            US,
            quorum_of(KeptLog(epoch=kept.epoch, leader_id=kept.leader_id)),
            Voters({1: US}),
            kept,
            TIMING,
            random.Random(1),
        )
        steps = made.start(0.0)
        assert [type(each) for each in steps] == [Persist, Persist, Lead]
        assert made.state is RaftState.LEADER and made.epoch == kept.epoch + 1
        made.appended(0, 1)
        assert made.synced(1) == [Committed(1)]
        assert made.deadline() == float("inf") or made.tick(1e9) == []


def test_votes_are_given_as_kafka_gives_them() -> None:
    """A mixed quorum would have no leader, or two."""
    made = machine(end_offset=10, epochs=[EpochStart(2, 0)], election=Election(2, NO_LEADER))
    answers = [
        (vote(1), ErrorCode.FENCED_LEADER_EPOCH, False),
        (vote(3, last=3), ErrorCode.INVALID_REQUEST, False),
        (vote(2, last=2, end=10, pre=True), 0, True),
        (vote(2, last=2, end=9, pre=True), 0, False),
        (vote(3, last=2, end=9), 0, False),
        (vote(3, last=2, end=10), 0, True),
        (vote(3, last=2, end=10), 0, True),
        (vote(3, last=2, end=10, candidate=THIRD), 0, False),
        (vote(3, last=2, end=10, candidate=THIRD, pre=True), 0, True),
        (vote(5, last=2, end=10)._replace(to=OTHER), ErrorCode.INVALID_VOTER_KEY, False),
    ]
    for asked, error, is_granted in answers:
        answer, _ = made.asked(asked, 0.0)
        assert isinstance(answer, VoteAnswer)
        assert (answer.error, answer.is_granted) == (error, is_granted), asked
    assert made.epoch == 5, "an epoch is believed before the voter's key is looked at"


def test_a_follower_that_has_fetched_keeps_to_its_leader() -> None:
    """A node that was cut off would depose a leader that all others hear."""
    made = machine(election=Election(1, OTHER.node_id))
    assert made.state is RaftState.FOLLOWER
    assert made.asked(vote(1, candidate=THIRD, pre=True), 0.0)[0] == VoteAnswer(0, 1, OTHER.node_id, True)
    made.followed([], 0.1)
    assert made.asked(vote(1, candidate=THIRD, pre=True), 0.2)[0] == VoteAnswer(0, 1, OTHER.node_id, False)
    assert made.asked(vote(1, candidate=THIRD), 0.2)[0] == VoteAnswer(0, 1, OTHER.node_id, False)


def test_a_vote_is_durable_before_its_answer() -> None:
    """Behind a power cut the same voter would vote for another one."""
    made = machine()
    answer, steps = made.asked(vote(1), 0.0)
    assert isinstance(answer, VoteAnswer) and answer.is_granted
    assert steps[-1] == Persist(Election(1, NO_LEADER, OTHER))
    again = machine(election=Election(1, NO_LEADER, OTHER))
    assert again.asked(vote(1, candidate=THIRD), 0.0)[0] == VoteAnswer(0, 1, NO_LEADER, False)
    assert again.asked(vote(1, candidate=OTHER), 0.0)[0] == VoteAnswer(0, 1, NO_LEADER, True)


def test_a_leader_that_was_restarted_resigns_its_epoch() -> None:
    """Records that it had not synced would be written a second time, with other contents."""
    made = machine(election=Election(3, US.node_id))
    assert made.state is RaftState.RESIGNED
    assert made.asked(vote(3), 0.0)[0] == VoteAnswer(0, 3, US.node_id, False)
    assert made.fetched(OTHER, LogPlace(3, 0, 0, -1), 0.0)[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    made.tick(made.deadline())
    assert (made.state, made.epoch) == (RaftState.UNATTACHED, 4)


def test_a_leader_that_no_majority_hears_resigns() -> None:
    """Clients would wait at it for changes that are never committed."""
    made, now = leading()
    made.fetched(OTHER, LogPlace(1, 0, 0, -1), now + 1)
    made.tick(now + 3.9)
    assert made.state is RaftState.LEADER
    steps = made.tick(now + 1 + 3.0)
    assert StopLeading(1) in steps and made.state is RaftState.RESIGNED
    told = [each.request for each in steps if isinstance(each, Send)]
    assert [(each.to, each.preferred) for each in told if isinstance(each, EndEpoch)] == [
        (OTHER, (OTHER, THIRD)),
        (THIRD, (OTHER, THIRD)),
    ]


def test_the_high_watermark_needs_a_record_of_the_epoch_and_the_disk() -> None:
    """What a former leader wrote could be committed and taken back (the Raft paper's figure 8), or be lost with the
    power."""
    made, now = leading()
    place = LogPlace(1, 1, 1, -1)
    assert made.fetched(OTHER, LogPlace(1, 0, 0, -1), now)[1] == []
    assert made.fetched(OTHER, place, now)[1] == []
    assert made.synced(1) == [Committed(1)]
    made.appended(1, 5)
    assert made.synced(5) == [] and made.fetched(THIRD, place._replace(end_offset=5), now)[1] == [Committed(5)]
    assert made.fetched(ReplicaKey(2, b"x" * 16), place._replace(end_offset=5), now)[1] == [], "another directory"


def test_voters_hear_of_a_leader_until_they_fetch() -> None:
    """A voter that was away would wait for its fetch timer, and disturb the quorum."""
    made, now = leading()
    begun = [
        each.request.to for each in made.tick(now) if isinstance(each, Send) if isinstance(each.request, BeginEpoch)
    ]
    assert begun == [OTHER, THIRD]
    made.fetched(OTHER, LogPlace(1, 1, 1, -1), now + 0.9)
    begun = [each.request.to for each in made.tick(now + 1.0) if isinstance(each, Send)]
    assert begun == [THIRD]


@pytest.mark.parametrize(("place", "wait"), [(0, 0.0), (1, 0.25), (2, 0.5), (None, 1.0)])
def test_the_best_stands_at_once_when_a_leader_resigns(place: int | None, wait: float) -> None:
    """All would stand together and split the votes, or none for two seconds."""
    preferred = [ReplicaKey(7), ReplicaKey(8), ReplicaKey(9)]
    if place is not None:
        preferred[place] = US
    made = machine(election=Election(1, OTHER.node_id))
    answer, _ = made.asked(EndEpoch(US, 1, OTHER.node_id, tuple(preferred)), 5.0)
    assert answer == EpochAnswer(0, 1, OTHER.node_id)
    assert made.deadline() == 5.0 + wait


def test_a_node_that_is_named_leader_of_an_unknown_epoch_gives_no_vote_there() -> None:
    """A voter that was restored from a copy would vote twice in an epoch in which it had led."""
    made = machine()
    made.asked(BeginEpoch(US, 1, OTHER), 0.0)
    request = vote(1)
    steps = made.answered(request, VoteAnswer(0, 4, US.node_id, False), 0.1)
    assert steps[-1] == Persist(Election(4, NO_LEADER, US))
    assert made.asked(vote(4), 0.2)[0] == VoteAnswer(0, 4, NO_LEADER, False)


@pytest.mark.parametrize("epoch", [5, LAST_EPOCH])
def test_what_no_voter_says_changes_nothing(epoch: int) -> None:
    """A node would believe in a leader with an id that none has, or in an epoch after which there is none."""
    made = machine()
    asker = ReplicaKey(-1 if epoch == 5 else 2)
    before = made.epoch, made.leader_id, made.state
    asked: list[Any] = [
        vote(epoch, candidate=asker),
        vote(epoch, candidate=asker, pre=True),
        BeginEpoch(US, epoch, asker),
        EndEpoch(US, epoch, asker.node_id, ()),
    ]
    for each in asked:
        answer, steps = made.asked(each, 0.0)
        assert answer.error == ErrorCode.INVALID_REQUEST and not steps, each
    assert (made.epoch, made.leader_id, made.state) == before


def test_behind_the_last_epoch_no_leader_is_elected() -> None:
    """A node would ask for votes in an epoch that no request can name."""
    made = machine(Election(LAST_EPOCH, NO_LEADER), (US,))
    assert not made.tick(made.deadline())
    assert made.epoch == LAST_EPOCH and made.state is not RaftState.LEADER


def test_records_of_older_epochs_are_not_committed_by_count() -> None:
    """Another leader could still take them back, though a majority has them."""
    voters = Voters({each.node_id: each for each in (US, OTHER, THIRD)})
    progress = LeaderProgress(US, 7, 2, 0.0)
    assert not progress.synced(voters, 7) and not progress.fetched(voters, OTHER, 7, 0.0)
    assert progress.high_watermark == 2
    assert not progress.synced(voters, 8) and progress.fetched(voters, OTHER, 8, 0.0)
    assert progress.high_watermark == 8


def test_another_directory_of_a_voter_acknowledges_nothing() -> None:
    """What a node has in an empty directory that it fills anew would count beside what it had before."""
    voters = Voters({each.node_id: each for each in (US, OTHER, THIRD)})
    progress = LeaderProgress(US, 0, -1, 0.0)
    progress.synced(voters, 9)
    new = ReplicaKey(OTHER.node_id, bytes([9]) * 16)
    assert not progress.fetched(voters, new, 9, 0.0) and progress.high_watermark == -1
    assert progress.fetched(voters, OTHER, 8, 0.0) and progress.high_watermark == 8
    # The new directory votes in the place of the old one: what that had acknowledged counts no more.
    changed = Voters({**voters.keys, OTHER.node_id: new})
    progress.begin(changed, new, 1.0)
    progress.synced(changed, 12)
    assert progress.fetched(changed, THIRD, 7, 1.0) is False and progress.high_watermark == 8
    assert changed.majority == 2 and progress.by_progress(changed)[0] == THIRD


def test_what_is_of_an_older_epoch_is_fenced() -> None:
    """A leader that was deposed would be followed, or would give its records to those that have not heard."""
    made, now = leading()
    made.appended(1, 5)
    old = LogPlace(0, 0, 0, -1)
    assert made.fetched(OTHER, old, now)[0].error == ErrorCode.FENCED_LEADER_EPOCH
    answer, steps = made.asked(BeginEpoch(US, 0, OTHER), now)
    assert answer.error == ErrorCode.FENCED_LEADER_EPOCH and not steps
    assert made.state is RaftState.LEADER and made.leader_id == US.node_id


def test_an_epoch_is_durable_before_it_is_believed() -> None:
    """Behind a loss of power the voter would vote again in an epoch that it has answered in."""
    made = machine()
    answer, steps = made.asked(vote(7, last=1)._replace(to=OTHER), 0.0)
    assert answer.error == ErrorCode.INVALID_VOTER_KEY and answer.epoch == 7
    assert steps == [Persist(Election(7, NO_LEADER, None))]
