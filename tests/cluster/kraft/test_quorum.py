"""What an observer makes of the answers that real controllers have given, and of each that they may give."""

from __future__ import annotations

import random

import pytest

from kbroker.cluster.kraft.batches import records_of
from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.quorum_requests import fetch_request, snapshot_request
from kbroker.cluster.kraft.quorum_steps import (
    Append,
    Ask,
    Committed,
    Elected,
    EpochStart,
    Fatal,
    Fetch,
    FetchSnapshot,
    Identity,
    KeptLog,
    LogPlace,
    SnapshotId,
    SnapshotPiece,
    Trouble,
    Truncate,
    Wait,
)
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import Endpoint
from kbroker.protocol.frames import decode_request_header, decode_response
from kbroker.schemas import request_message, wire
from kbroker.types import uuid_from_text
from tests.cluster.kraft.controllers import config_record, data_batch
from tests.cluster.kraft.vectors import vector

IDENTITY = Identity(9, "MkU3OEVBNTcwNTJENDM2Qg", bytes(range(16)))
A, B, C = (Endpoint("127.0.0.1", port) for port in (37021, 37022, 37023))


def quorum_at(end: int = 0, epochs: tuple[EpochStart, ...] = (), **kept: object) -> Quorum:
    return Quorum(IDENTITY, KeptLog(end, epochs, **kept), [A, B, C], {}, random.Random(1))  # type: ignore[arg-type]


def asked(quorum: Quorum, now: float = 0.0) -> Ask:
    ask = quorum.next(now)
    assert not isinstance(ask, Wait)
    return ask


def answer_of(name: str) -> wire.FetchResponse:
    _, answer = decode_response(wire.FetchResponse, 18, vector(name))
    assert isinstance(answer, wire.FetchResponse)
    return answer


def answer(
    code: int = 0,
    records: bytes = b"",
    high_watermark: int = -1,
    leader: tuple[int, int] = (-1, -1),
    diverging: tuple[int, int] = (-1, -1),
    snapshot: tuple[int, int] = (-1, -1),
    at: Endpoint | None = None,
) -> wire.FetchResponse:
    made = wire.FetchResponse
    row = made.PartitionData(partition_index=0, error_code=code, high_watermark=high_watermark, records=records)
    row.current_leader = made.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    row.diverging_epoch = made.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    row.snapshot_id = made.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1])
    whole = made(responses=[made.FetchableTopicResponse(partitions=[row])])
    if at is not None:
        whole.node_endpoints = [made.NodeEndpoint(node_id=leader[0], host=at.host, port=at.port)]
    return whole


def led(end: int = 0, epochs: tuple[EpochStart, ...] = (), epoch: int = 5, **kept: object) -> Quorum:
    """An observer that knows the leader 3001 at A."""
    quorum = quorum_at(end, epochs, epoch=epoch - 1, **kept)
    ask = asked(quorum)
    code = ErrorCode.FENCED_LEADER_EPOCH
    assert quorum.answered(ask, answer(code, leader=(3001, epoch), at=A), 0.0) == [Elected(epoch, 3001)]
    return quorum


def batch(base: int, epoch: int) -> bytes:
    return data_batch(base, epoch, [config_record(base)]).data


def test_the_requests_are_those_of_real_brokers() -> None:
    """Controllers would refuse them, or answer late."""
    for name, known in (("01", LogPlace(0, 0, 0, -1)), ("02", LogPlace(1, 0, 0, -1)), ("03", None)):
        frame = vector(f"{name}-Fetch-18-observer-*.request")
        header = decode_request_header(frame)
        seen = request_message(1).program(18).decode(frame, header.size)
        row = seen.topics[0].partitions[0]
        place = known or LogPlace(
            row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch, row.high_watermark
        )
        identity = Identity(seen.replica_state.replica_id, seen.cluster_id, row.replica_directory_id)
        made = fetch_request(identity, place, 1 << 20, 18)
        assert bytes(made.program(18).encode(made)) == frame[header.size :]
    frame = vector("10-FetchSnapshot")
    header = decode_request_header(frame)
    seen = request_message(59).program(1).decode(frame, header.size)
    row = seen.topics[0].partitions[0]
    identity = Identity(seen.replica_id, seen.cluster_id, row.replica_directory_id)
    snapshot = SnapshotId(row.snapshot_id.end_offset, row.snapshot_id.epoch)
    made = snapshot_request(identity, row.current_leader_epoch, snapshot, row.position, seen.max_bytes, 1)
    assert bytes(made.program(1).encode(made)) == frame[header.size :]


def test_a_first_contact_with_a_real_controller() -> None:
    """A broker would never come to know its cluster."""
    quorum = quorum_at()
    ask = asked(quorum)
    assert isinstance(ask, Fetch) and ask.place == LogPlace(0, 0, 0, -1)
    assert quorum.answered(ask, answer_of("01-Fetch-18-observer-first.answer"), 0.0) == [Elected(1, 3001)]
    ask = asked(quorum)
    assert ask == Fetch(Endpoint("127.0.0.1", 37021), LogPlace(1, 0, 0, -1))
    append, committed = quorum.answered(ask, answer_of("02-Fetch-18-observer-from-0.answer"), 0.0)
    assert isinstance(append, Append) and committed == Committed(21)
    assert (quorum.end_offset, quorum.high_watermark, quorum.last_epoch) == (21, 21, 1)
    names = [getattr(record, "name", "") for each in append.batches for _, record in records_of(each, "test")]
    assert names.count("FeatureLevelRecord") == 6 and "RegisterControllerRecord" in names
    assert asked(quorum) == Fetch(A, LogPlace(1, 21, 1, 21))


def test_uncommitted_records_and_a_high_watermark_alone() -> None:
    """Records that an election takes away would have been applied."""
    quorum = led(10, (EpochStart(1, 0),))
    ask = asked(quorum)
    steps = quorum.answered(ask, answer(records=batch(10, 5) + batch(11, 5), high_watermark=10, leader=(3001, 5)), 0.0)
    assert [type(each) for each in steps] == [Append, Committed] and quorum.high_watermark == 10
    steps = quorum.answered(asked(quorum), answer(high_watermark=11, leader=(3001, 5)), 0.0)
    assert steps == [Committed(11)]
    assert quorum.answered(asked(quorum), answer(high_watermark=99, leader=(3001, 5)), 0.0) == [Committed(12)]
    assert quorum.answered(asked(quorum), answer(high_watermark=3, leader=(3001, 5)), 0.0) == []
    assert quorum.high_watermark == 12, "the high watermark went back"


@pytest.mark.parametrize(
    ("told", "end"),
    [((2, 6), 6), ((2, 99), 8), ((3, 7), 7), ((1, 30), 4), ((4, 9), 9), ((4, 99), None)],
)
def test_a_log_that_differs_is_cut(told: tuple[int, int], end: int | None) -> None:
    """The broker would keep records that no other has."""
    epochs = (EpochStart(1, 0), EpochStart(2, 4), EpochStart(4, 8))
    quorum = led(12, epochs)
    steps = quorum.answered(asked(quorum), answer(diverging=told, leader=(3001, 5)), 0.0)
    if end is None:
        assert [type(each) for each in steps] == [Trouble], "the leader names this log's own end"
        return
    assert steps == [Truncate(end)]
    assert quorum.end_offset == end
    assert quorum.last_epoch == max(each.epoch for each in epochs if each.offset < end)


def test_what_is_committed_is_never_cut() -> None:
    """Half of what was acted upon would be gone, and the epochs counted since be wrong."""
    quorum = led(12, (EpochStart(1, 0), EpochStart(2, 4)))
    quorum.answered(asked(quorum), answer(high_watermark=9, leader=(3001, 5)), 0.0)
    assert quorum.answered(asked(quorum), answer(diverging=(2, 9), leader=(3001, 5)), 0.0) == [Truncate(9)]
    assert quorum.high_watermark == 9, "the -1 of a diverging answer was taken"
    (step,) = quorum.answered(asked(quorum), answer(diverging=(2, 8), leader=(3001, 5)), 0.0)
    assert isinstance(step, Fatal) and "lost metadata" in step.text


def test_no_step_back() -> None:
    """A controller that was away would have its old state taken for the newest."""
    quorum = led(10, (EpochStart(1, 0),))
    for old in (
        answer(records=batch(10, 4), high_watermark=11, leader=(3002, 4)),
        answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(3002, 4), at=B),
        answer(ErrorCode.FENCED_LEADER_EPOCH, leader=(3002, 3), at=B),
        answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(3002, 5), at=B),
        answer(ErrorCode.FENCED_LEADER_EPOCH, leader=(-1, 5)),
    ):
        ask = asked(quorum, 1000.0)
        steps = quorum.answered(ask, old, 0.0)
        assert not [each for each in steps if not isinstance(each, Trouble)]
        assert (quorum.epoch, quorum.leader_id, quorum.end_offset) == (5, 3001, 10)


def test_an_answer_to_an_older_question_is_not_applied() -> None:
    """Its records may be of a leader that was deposed."""
    quorum = led(10, (EpochStart(1, 0),))
    ask = asked(quorum)
    steps = quorum.answered(ask, answer(records=batch(10, 5), high_watermark=11, leader=(3002, 6), at=B), 0.0)
    assert steps == [Elected(6, 3002)] and quorum.end_offset == 10


def test_a_dead_leader_that_others_name_is_asked_ever_more_rarely() -> None:
    """For two seconds after a crash this broker would do nothing but connect."""
    quorum, now, asked_leader, count = led(), 0.0, 0, 0
    while now < 2.0:
        ask = quorum.next(now)
        if isinstance(ask, Wait):
            assert ask.until > now
            now = ask.until
            continue
        count += 1
        if ask.to == A:
            asked_leader += 1
            quorum.failed(ask, now)
        else:
            refused = answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(3001, 5), at=A)
            assert quorum.answered(ask, refused, now) == []
    assert 2 <= asked_leader <= 12 and 3 <= count <= 40
    steps = quorum.answered(asked(quorum, 99.0), answer(ErrorCode.FENCED_LEADER_EPOCH, leader=(3003, 6), at=C), now)
    assert steps == [Elected(6, 3003)]
    assert asked(quorum, now).to == C, "the new leader is not asked at once"


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_other_errors_lead_to_another_controller(code: ErrorCode) -> None:
    """One controller that is behind would keep the broker from the others."""
    quorum = quorum_at(epoch=7)
    first = asked(quorum)
    quorum.answered(first, answer(code, leader=(-1, 3)), 0.0)
    assert isinstance(quorum.next(0.0), Wait)
    assert asked(quorum, 1.0).to != first.to
    assert quorum.epoch == 7


def test_snapshots_come_in_pieces() -> None:
    """A broker that joins late would know half."""
    quorum = led()
    assert quorum.answered(asked(quorum), answer(snapshot=(100, 4), leader=(3001, 5)), 0.0) == []
    content, position = bytes(range(250)), 0
    while position < len(content):
        ask = asked(quorum)
        assert ask == FetchSnapshot(A, 5, SnapshotId(100, 4), position)
        data = content[position : position + 100]
        (piece,) = quorum.answered(ask, piece_of(data, position, len(content)), 0.0)
        position += len(data)
        assert piece == SnapshotPiece(SnapshotId(100, 4), position - len(data), data, position == len(content))
    quorum.snapshot_loaded(SnapshotId(100, 4))
    assert asked(quorum) == Fetch(A, LogPlace(5, 100, 4, 100))
    (step,) = quorum.answered(asked(quorum), answer(snapshot=(100, 4), leader=(3001, 5)), 0.0)
    assert isinstance(step, Trouble), "a snapshot of what this broker has was begun"


def piece_of(data: bytes, position: int, size: int, code: int = 0) -> wire.FetchSnapshotResponse:
    made = wire.FetchSnapshotResponse
    row = made.PartitionSnapshot(index=0, size=size, position=position, unaligned_records=data)
    return made(error_code=code, topics=[made.TopicSnapshot(name="__cluster_metadata", partitions=[row])])


@pytest.mark.parametrize(
    "bad",
    [piece_of(b"", 0, 250, -1), piece_of(b"", 0, 250), piece_of(b"x", 1, 250), piece_of(b"xx", 0, 1)],
)
def test_a_snapshot_that_cannot_be_had_is_begun_anew(bad: wire.FetchSnapshotResponse) -> None:
    """The broker would ask for it for ever, or put bytes at wrong places."""
    quorum = led()
    quorum.answered(asked(quorum), answer(snapshot=(100, 4), leader=(3001, 5)), 0.0)
    (step,) = quorum.answered(asked(quorum), bad, 0.0)
    assert isinstance(step, Trouble)
    assert isinstance(asked(quorum, 5.0), Fetch)


def test_another_cluster_ends_it() -> None:
    """Its metadata would be taken for this cluster's."""
    quorum = quorum_at()
    (step,) = quorum.answered(asked(quorum), wire.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), 0.0)
    assert isinstance(step, Fatal)


def test_the_epoch_is_never_below_that_of_the_log() -> None:
    """Controllers refuse a last epoch that is larger than the current one."""
    quorum = quorum_at(30, (EpochStart(8, 0),), epoch=3, leader_id=3001)
    ask = asked(quorum)
    assert isinstance(ask, Fetch)
    assert (ask.place.epoch, ask.place.last_epoch, quorum.leader) == (8, 8, None)


@pytest.mark.parametrize(
    "records",
    [
        batch(11, 5),
        batch(10, 6),
        batch(10, 0),
        batch(10, 5)[:-1],
        batch(10, 5)[:20],
        b"\0" * 80,
        batch(10, 5)[:16] + b"\1" + batch(10, 5)[17:],
    ],
)
def test_records_that_do_not_join_on_are_not_taken(records: bytes) -> None:
    """The log would have a hole."""
    quorum = led(10, (EpochStart(1, 0),))
    (step,) = quorum.answered(asked(quorum), answer(records=records, high_watermark=11, leader=(3001, 5)), 0.0)
    assert isinstance(step, Trouble)
    assert (quorum.end_offset, quorum.last_epoch, quorum.high_watermark) == (10, 1, -1)


def test_a_batch_that_is_cut_behind_whole_ones_is_left_for_the_next_answer() -> None:
    """Answers are cut at a number of bytes."""
    quorum = led(10, (EpochStart(1, 0),))
    steps = quorum.answered(asked(quorum), answer(records=batch(10, 5) + batch(11, 5)[:30], leader=(3001, 5)), 0.0)
    assert len(steps) == 1 and quorum.end_offset == 11


def test_real_answers_of_a_failover() -> None:
    """What real controllers say while they elect would be misread."""
    for name, seen in (("08", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("09", ErrorCode.FENCED_LEADER_EPOCH)):
        row = answer_of(f"{name}-Fetch").responses[0].partitions[0]
        assert row.error_code == seen
        quorum = quorum_at(epoch=max(row.current_leader.leader_epoch - 1, 0))
        steps = quorum.answered(asked(quorum), answer_of(f"{name}-Fetch"), 0.0)
        assert steps == [Elected(row.current_leader.leader_epoch, row.current_leader.leader_id)]
    row = answer_of("05-Fetch").responses[0].partitions[0]
    told = row.diverging_epoch
    quorum = led(
        told.end_offset + 6,
        (EpochStart(told.epoch, 0), EpochStart(told.epoch + 1, told.end_offset)),
        row.current_leader.leader_epoch,
    )
    assert quorum.answered(asked(quorum), answer_of("05-Fetch"), 0.0) == [Truncate(told.end_offset)]
    row = answer_of("04-Fetch").responses[0].partitions[0]
    quorum = led(epoch=row.current_leader.leader_epoch)
    assert quorum.answered(asked(quorum), answer_of("04-Fetch"), 0.0) == []
    ask = asked(quorum)
    assert isinstance(ask, FetchSnapshot) and ask.snapshot.end_offset == row.snapshot_id.end_offset


def test_topic_id() -> None:
    """Controllers would know no such topic."""
    made = fetch_request(IDENTITY, LogPlace(0, 0, 0, -1), 1, 18)
    assert made.topics[0].topic_id == uuid_from_text("A" * 21 + "Q")


def test_the_id_of_a_controller_ends_it() -> None:
    """A controller refuses to be followed by its own id, and the broker would ask for ever."""
    quorum = quorum_at()
    named = answer(ErrorCode.FENCED_LEADER_EPOCH, leader=(IDENTITY.node_id, 5), at=A)
    (step, *_) = quorum.answered(asked(quorum), named, 0.0)
    assert isinstance(step, Fatal) and "node.id 9 is that of a controller" in step.text
