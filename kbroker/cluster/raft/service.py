"""What a node with the controller role answers other nodes and tools of the quorum, behind authentication and rights.

Each method takes a request of its API in any version that `SERVED` names, and gives its answer.  Handlers check the
rights (CLUSTER_ACTION; DESCRIBE for DescribeQuorum; ALTER for voters) before they call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kbroker.protocol.api import ApiKey

if TYPE_CHECKING:
    from kbroker.schemas import wire

SERVED: Final = {
    ApiKey.FETCH: (4, 18),
    ApiKey.VOTE: (0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0),
}
"""The first and the last version of each, as Kafka 4.3 has them."""


class RaftService(Protocol):
    """See the module."""

    @property
    def leader_id(self) -> int:
        """The node that leads, which has the active controller; -1: none is known."""

    async def vote(self, request: wire.VoteRequest, version: int) -> wire.VoteResponse:
        """A candidate asks for this node's vote."""

    async def begin_epoch(self, request: wire.BeginQuorumEpochRequest, version: int) -> wire.BeginQuorumEpochResponse:
        """A node says that it leads."""

    async def end_epoch(self, request: wire.EndQuorumEpochRequest, version: int) -> wire.EndQuorumEpochResponse:
        """A node says that it leads no more."""

    async def fetch(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        """A replica asks for records, and says which it has; waits up to its max_wait_ms."""

    async def fetch_snapshot(self, request: wire.FetchSnapshotRequest, version: int) -> wire.FetchSnapshotResponse:
        """A replica asks for bytes of a snapshot."""

    async def describe(self, request: wire.DescribeQuorumRequest, version: int) -> wire.DescribeQuorumResponse:
        """How far voters and observers are."""

    async def add_voter(self, request: wire.AddRaftVoterRequest, version: int) -> wire.AddRaftVoterResponse:
        """Make an observer a voter (KIP-853)."""

    async def remove_voter(self, request: wire.RemoveRaftVoterRequest, version: int) -> wire.RemoveRaftVoterResponse:
        """Make a voter an observer."""

    async def update_voter(self, request: wire.UpdateRaftVoterRequest, version: int) -> wire.UpdateRaftVoterResponse:
        """A voter says where it listens and which versions it knows."""
