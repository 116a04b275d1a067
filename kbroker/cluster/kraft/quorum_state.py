"""`quorum-state`: the quorum's epoch, its leader as last heard, and this node's vote, as Kafka keeps them.

    version 1  {"leaderId":3001,"leaderEpoch":7,"votedId":3001,"votedDirectoryId":"0dHR0dHR…","data_version":1}
    version 0  {"clusterId":"","leaderId":3001,"leaderEpoch":2,"votedId":3001,"appliedOffset":0,
                "currentVoters":[{"voterId":3001},…],"data_version":0}     while kraft.version is 0

Either is read.  An observer does not vote: `votedId` is -1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from kbroker.cluster.kraft.quorum_steps import NO_LEADER
from kbroker.types import ZERO_UUID, uuid_from_text, uuid_to_text

QUORUM_STATE = "quorum-state"
NO_VOTE = -1


class QuorumState(NamedTuple):
    """The epoch, and the id of its leader; -1 where there is none.  `voted_id`: to whom this node gave its vote."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted_id: int = NO_VOTE
    voted_directory: bytes = ZERO_UUID


def encode_quorum_state(state: QuorumState, voters: Iterable[int] | None = None) -> bytes:
    """The file's content, in version 1; in version 0 where `voters` are given, those of the settings."""
    fields: dict[str, object] = {"leaderId": state.leader_id, "leaderEpoch": state.epoch, "votedId": state.voted_id}
    if voters is None:
        fields |= {"votedDirectoryId": uuid_to_text(state.voted_directory), "data_version": 1}
    else:
        current = [{"voterId": each} for each in sorted(voters)]
        fields = {"clusterId": "", **fields, "appliedOffset": 0, "currentVoters": current, "data_version": 0}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """From the file's content, version 0 or 1.  ValueError."""
    fields = json.loads(data)
    if not isinstance(fields, dict) or fields.get("data_version") not in (0, 1):
        raise ValueError("it is not the quorum-state of version 0 or 1")
    epoch, leader_id = fields.get("leaderEpoch"), fields.get("leaderId")
    voted_id, directory = fields.get("votedId"), fields.get("votedDirectoryId")
    if type(epoch) is not int or type(leader_id) is not int or epoch < 0:
        raise ValueError("it has no epoch and no leader")
    has_directory = isinstance(directory, str) if fields["data_version"] else directory is None
    if type(voted_id) is not int or not has_directory:
        raise ValueError("its vote is none")
    voted_directory = ZERO_UUID if directory is None else uuid_from_text(directory)
    return QuorumState(epoch, max(leader_id, NO_LEADER), max(voted_id, NO_VOTE), voted_directory)
