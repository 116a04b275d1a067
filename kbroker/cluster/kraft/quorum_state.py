"""`quorum-state`: the epoch of the controllers' quorum and its leader as last heard, as Kafka keeps it (version 1).

    {"leaderId":3001,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

An observer does not vote.  Version 0, of clusters with fixed voters, has more fields, which Kafka does not need any
more; both have the leader's.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from kbroker.cluster.kraft.quorum_steps import NO_LEADER
from kbroker.types import ZERO_UUID, uuid_to_text

QUORUM_STATE = "quorum-state"


class QuorumState(NamedTuple):
    """The epoch, and the id of its leader; -1 where there is none."""

    epoch: int = 0
    leader_id: int = NO_LEADER


def encode_quorum_state(state: QuorumState) -> bytes:
    """The file's content."""
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": -1,
        "votedDirectoryId": uuid_to_text(ZERO_UUID),
        "data_version": 1,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """From the file's content, version 0 or 1.  ValueError."""
    fields = json.loads(data)
    if not isinstance(fields, dict) or fields.get("data_version") not in (0, 1):
        raise ValueError("it is not the quorum-state of version 0 or 1")
    epoch, leader_id = fields.get("leaderEpoch"), fields.get("leaderId", NO_LEADER)
    if type(epoch) is not int or type(leader_id) is not int or epoch < 0:
        raise ValueError("it has no epoch and no leader")
    return QuorumState(epoch, max(leader_id, NO_LEADER))
