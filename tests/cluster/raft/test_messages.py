"""Votes and epochs on the wire, against what Kafka's voters have sent each other, and what they keep on disk.

Of `kbroker.cluster.raft.messages`, `kbroker.cluster.raft.voter_set` and `kbroker.cluster.kraft.quorum_state`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cluster.kraft.batches import ControlRecord, checked_batch, control_batch, records_of
from kbroker.cluster.kraft.quorum_state import QuorumState, decode_quorum_state, encode_quorum_state
from kbroker.cluster.kraft.snapshots import snapshot_batches
from kbroker.cluster.raft.election import BeginEpoch, EndEpoch, EpochAnswer, ReplicaKey, Vote, VoteAnswer
from kbroker.cluster.raft.messages import (
    MalformedRequestError,
    answer_of,
    refused,
    request_for,
    request_of,
    response_of,
)
from kbroker.cluster.raft.voter_set import Voter, VoterHistory, VoterSet
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import Endpoint
from kbroker.protocol.frames import decode_request_header
from kbroker.records.control import ControlType
from kbroker.schemas import request_message, response_message, wire
from kbroker.types import uuid_from_text

VECTORS = Path(__file__).parent / "vectors"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
KEYS = {each: ReplicaKey(each) for each in (3001, 3002, 3003)}
STATES = {path.name: path.read_bytes() for path in VECTORS.glob("quorum-state-*.json")}


def frame(name: str, what: str) -> bytes:
    """One that was captured, without its length."""
    (path,) = VECTORS.glob(f"{name}-*.{what}.hex")
    lines = path.read_text(encoding="utf-8").splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def decoded(name: str) -> tuple[Any, Any, int]:
    """A captured request and its answer, with the version."""
    data = frame(name, "request")
    header = decode_request_header(data)
    request = request_message(header.api_key).program(header.api_version).decode(data, header.size)
    answer = response_message(header.api_key).program(header.api_version).decode(frame(name, "answer"), 5)
    return request, answer, header.api_version


def body(message: Any, version: int) -> bytes:
    """The message without its header."""
    return bytes(message.program(version).encode(message))


def directory(text: str) -> bytes:
    return uuid_from_text(text)


ASKED = {
    "101": Vote(
        ReplicaKey(3002, directory("0dHR0dHR0dHR0dHR0dELug")),
        0,
        ReplicaKey(3003, directory("0dHR0dHR0dHR0dHR0dELuw")),
        0,
        0,
        is_pre_vote=True,
    ),
    "110": Vote(ReplicaKey(3001), 4, ReplicaKey(3002, directory("6FQ-VUqfHqr5Anuu1-KeYQ")), 0, 0, is_pre_vote=False),
    "112": BeginEpoch(ReplicaKey(3002, directory("0dHR0dHR0dHR0dHR0dELug")), 1, ReplicaKey(3003)),
}


@pytest.mark.parametrize("name", [str(each) for each in (*range(101, 108), 110, 111, 112, 113, 114, 115, 116)])
def test_requests_are_kafkas(name: str) -> None:
    """What a voter of Kafka asks means what it means there, and is asked in the same bytes."""
    request, answer, version = decoded(name)
    asked = request_of(request, CLUSTER, KEYS[3001])
    if name in ASKED:
        assert asked == ASKED[name]
    sender = {Vote: "candidate", BeginEpoch: "leader"}.get(type(asked))
    me = getattr(asked, sender) if sender else ReplicaKey(3003)
    listens = {each.name: Endpoint(each.host, each.port) for each in getattr(request, "leader_endpoints", ())}
    if getattr(request, "voter_id", 0) >= 0:
        assert body(request_for(asked, version, CLUSTER, me, listens), version) == body(request, version)
    taken = answer_of(answer)
    nodes = {each.node_id: Endpoint(each.host, each.port) for each in answer.node_endpoints or ()}
    assert body(response_of(request, taken, nodes), version) == body(answer, version)


def test_answers_say_what_kafkas_say() -> None:
    """Epoch, leader and vote of an answer decide who leads."""
    assert answer_of(decoded("101")[1]) == VoteAnswer(0, 0, -1, is_granted=True)
    assert answer_of(decoded("105")[1]) == VoteAnswer(ErrorCode.FENCED_LEADER_EPOCH, 1, -1, is_granted=False)
    assert answer_of(decoded("112")[1]) == EpochAnswer(0, 1, 3003)


@pytest.mark.parametrize(("name", "code"), [("108", 104), ("109", 42)])
def test_requests_of_others_are_refused_as_a_whole(name: str, code: int) -> None:
    """A voter of another cluster, or one that asks about another topic, would take part in this quorum."""
    request, answer, version = decoded(name)
    with pytest.raises(MalformedRequestError) as raised:
        request_of(request, CLUSTER, KEYS[3001])
    assert raised.value.code == code
    assert body(refused(request, raised.value.code), version) == body(answer, version)
    with pytest.raises(MalformedRequestError):
        answer_of(answer)


def test_successors_are_the_preferred_ones_in_order() -> None:
    """The wrong follower would stand first behind a resignation."""
    asked = request_of(decoded("116")[0], CLUSTER, KEYS[3001])
    assert isinstance(asked, EndEpoch)
    assert [each.node_id for each in asked.preferred] == [3001, 3002]
    old = request_for(asked, 0, CLUSTER, KEYS[3003], {})
    assert isinstance(old, wire.EndQuorumEpochRequest)
    assert old.topics[0].partitions[0].preferred_successors == [3001, 3002]
    assert [each.node_id for each in request_of(old, CLUSTER, KEYS[3001]).preferred] == [3001, 3002]  # type: ignore[union-attr]


# What is kept


@pytest.mark.parametrize("name", sorted(STATES))
def test_quorum_state_is_kafkas(name: str) -> None:
    """A vote that Kafka has written counts here, and the other way round."""
    state = decode_quorum_state(STATES[name])
    voters = (3001, 3002, 3003) if "-v0-" in name else None
    assert encode_quorum_state(state, voters) == STATES[name]


states = st.builds(
    QuorumState,
    st.integers(0, 1 << 30),
    st.integers(-1, 1 << 30),
    st.integers(-1, 1 << 30),
    st.binary(min_size=16, max_size=16),
)


@given(states)
def test_what_is_kept_comes_back(state: QuorumState) -> None:
    """A vote that was given would be forgotten."""
    assert decode_quorum_state(encode_quorum_state(state)) == state
    assert decode_quorum_state(encode_quorum_state(state, (1, 2)))[:3] == state[:3]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"data_version":2,"leaderEpoch":1,"leaderId":1}',
        '{"data_version":1,"leaderEpoch":-1,"leaderId":1}',
        '{"data_version":1,"leaderEpoch":1,"leaderId":1,"votedId":"x"}',
        '{"data_version":1,"leaderEpoch":1,"leaderId":1,"votedId":1,"votedDirectoryId":7}',
        '{"data_version":1,"leaderEpoch":1,"leaderId":1,"votedId":1,"votedDirectoryId":"short"}',
    ],
)
def test_a_damaged_state_is_none(text: str) -> None:
    """A voter would vote twice."""
    with pytest.raises(ValueError):
        decode_quorum_state(text.encode())


# Voters by the log


def test_the_first_checkpoint_is_kafkas() -> None:
    """A quorum that Kafka has formatted would begin without voters."""
    data = (VECTORS / "dynamic-0-0.checkpoint").read_bytes()
    batches = snapshot_batches(data, "the checkpoint")
    history = VoterHistory(VoterSet())
    history.begin(batches)
    assert history.kraft_version == 1
    assert sorted(history.last.by_id) == [3001, 3002, 3003]
    assert history.last.endpoints("CONTROLLER")[3001].host == "127.0.0.1"
    assert not history.is_of_log and history.last.has_directories
    control = [record.value for _, record in records_of(batches[0], "it") if isinstance(record, ControlRecord)]
    (record,) = (each for each in control if isinstance(each, wire.VotersRecord))
    assert body(history.last.record(), 0) == body(record, 0)


def voters_batch(offset: int, voters: VoterSet) -> Any:
    return checked_batch(control_batch([(ControlType.KRAFT_VOTERS, voters.record())], offset, 1, 0), "made")


def test_a_truncation_takes_voters_back() -> None:
    """A voter that was never added would count for the majority."""
    one = VoterSet({1: Voter(ReplicaKey(1, b"1" * 16), {"C": Endpoint("a", 1)})})
    two = one.put(Voter(ReplicaKey(2, b"2" * 16), {"C": Endpoint("b", 2)}))
    history = VoterHistory(VoterSet.static({9: Endpoint("c", 9)}, "C"))
    assert list(history.last.by_id) == [9] and history.last_offset == -1
    assert history.take(voters_batch(5, one)) and history.take(voters_batch(7, two))
    assert history.last == two and history.before_last == one and history.last_offset == 7
    assert not history.truncate(8)
    assert history.truncate(7) and history.last == one and history.last_offset == 5
    assert history.truncate(0) and list(history.last.by_id) == [9]
    assert two.without(1).by_id.keys() == {2}
    assert VoterSet.of(two.record()) == two
