"""States of a voter, what it keeps of its votes, and the requests and answers of elections (KIP-595, KIP-996).

                 timer               majority of pre-votes        majority of votes
    UNATTACHED ─────────▶ PROSPECTIVE ────────────────▶ CANDIDATE ──────────────▶ LEADER ── resigns ─▶ RESIGNED
        ▲                  │ lost, or timer:             │ timer: PROSPECTIVE      │                    │ timer:
        └──────────────────┴─ a larger epoch ────────────┴─────────────────────────┴────────────────────┘ epoch + 1
    FOLLOWER ── fetch timer ─▶ PROSPECTIVE          any ── the leader of an epoch ≥ its own ─▶ FOLLOWER

A larger epoch makes any of them UNATTACHED in it.  A node that was the leader when it stopped begins as RESIGNED in
that epoch: records that it had appended and not synced may be gone, so it neither votes nor appends in it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.kraft.quorum_steps import NO_LEADER
from kbroker.protocol.schema import INT32_MAX
from kbroker.types import ZERO_UUID

LAST_EPOCH = INT32_MAX
"""The largest that a request can name.  No node makes another believe in it: none could follow."""


class RaftState(Enum):
    """See the module."""

    UNATTACHED = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    FOLLOWER = auto()
    LEADER = auto()
    RESIGNED = auto()


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node with the directory that its log lies in.  Zeros: not known."""

    node_id: int
    directory_id: bytes = ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """Whether `other` is this replica, as far as it is known here.

        A voter of a static quorum has no directory, and any of its node's is it.  A replica that does not say which
        directory it has is no voter that has one.
        """
        return self.node_id == other.node_id and self.directory_id in (ZERO_UUID, other.directory_id)


class Election(NamedTuple):
    """What has to be durable before an answer or a request that follows from it leaves.

    `voted`: to whom this voter gave its vote in the epoch; None: it has given none yet, or it follows a leader that
    others elected.  A new epoch drops the vote, a change of state within one keeps it.
    """

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


class Voters(NamedTuple):
    """Those of the last VotersRecord of the log, committed or not; the static ones where there is none."""

    keys: Mapping[int, ReplicaKey]

    def has(self, key: ReplicaKey) -> bool:
        """Whether a replica votes: another directory of a voter's node does not."""
        known = self.keys.get(key.node_id)
        return known is not None and known.matches(key)

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.keys) // 2 + 1


# Requests of one voter to another.  `to` is whom the sender takes for the receiver.


class Vote(NamedTuple):
    """Asks for a vote, or whether there would be one (`is_pre_vote`).  `last_epoch`, `end_offset`: of the log."""

    to: ReplicaKey
    epoch: int
    candidate: ReplicaKey
    last_epoch: int
    end_offset: int
    is_pre_vote: bool

    @property
    def is_bad(self) -> bool:
        """Whether no voter asks so."""
        is_ahead = self.last_epoch > self.epoch or (self.last_epoch == self.epoch and not self.is_pre_vote)
        least = min(self.epoch, self.last_epoch, self.end_offset, self.candidate.node_id)
        return is_ahead or least < 0 or self.epoch >= LAST_EPOCH


class VoteAnswer(NamedTuple):
    """`error`: Kafka's code of the partition; epoch and leader are those of the one who answers."""

    error: int
    epoch: int
    leader_id: int
    is_granted: bool


class BeginEpoch(NamedTuple):
    """A leader says that it leads."""

    to: ReplicaKey
    epoch: int
    leader: ReplicaKey

    @property
    def is_bad(self) -> bool:
        """Whether no voter says so."""
        return self.leader.node_id < 0 or self.epoch >= LAST_EPOCH


class EndEpoch(NamedTuple):
    """A leader has resigned; those that should stand for election, the best first."""

    to: ReplicaKey
    epoch: int
    leader_id: int
    preferred: tuple[ReplicaKey, ...]

    @property
    def is_bad(self) -> bool:
        """Whether no voter says so."""
        return self.leader_id < 0 or self.epoch >= LAST_EPOCH


class EpochAnswer(NamedTuple):
    """The answer to BeginEpoch and EndEpoch."""

    error: int
    epoch: int
    leader_id: int


Request = Vote | BeginEpoch | EndEpoch
Answer = VoteAnswer | EpochAnswer


@dataclass(slots=True)
class Tally:
    """The votes of one election, by the voters at its beginning.  The asker's own is among `granted`."""

    voters: Collection[int]
    granted: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def take(self, node_id: int, is_granted: bool) -> None:
        """Count an answer; a voter counts once."""
        if node_id in self.voters and node_id not in self.granted | self.refused:
            (self.granted if is_granted else self.refused).add(node_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority has granted."""
        return len(self.granted) > len(self.voters) // 2

    @property
    def is_lost(self) -> bool:
        """Whether no majority can grant any more."""
        return len(self.voters) - len(self.refused) <= len(self.voters) // 2


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """In seconds, Kafka's defaults: controller.quorum.election.timeout.ms, …fetch.timeout.ms, …election.backoff.max.ms,
    and the first pause after a request that got no answer."""

    election: float = 1.0
    fetch: float = 2.0
    most_backoff: float = 1.0
    retry: float = 0.02

    @property
    def retries(self) -> ExponentialBackoff:
        """Pauses before a voter that does not answer is asked again: it is heard within half an election timeout."""
        return ExponentialBackoff(self.retry, max(self.retry, self.election / 2))
