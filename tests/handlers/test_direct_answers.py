"""Requests answered from their bytes: each answer is what the decoder, the log and the encoder would have given."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.base.helper_pool import HelperPool
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.net.pending import Pending
from kbroker._fast.net.route import NO_RESPONSE
from kbroker.clock import SystemClock
from kbroker.errors import ErrorCode
from kbroker.handlers.records.fetch import FAST_FETCH as FETCH
from kbroker.handlers.records.fetch import FetchableTopicResponse, FetchResponse
from kbroker.handlers.records.fetch_partition import PartitionData
from kbroker.handlers.records.produce import FAST_PRODUCE as PRODUCE
from kbroker.handlers.records.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kbroker.metadata.topic_names import INTERNAL_TOPICS
from kbroker.records.compression import Codec
from kbroker.replication.partition import Partition
from kbroker.storage.log.log_values import FetchIsolation
from tests.extensions.direct_requests import answer_together, ask
from tests.handlers.both_ways import (
    FETCH_VERSIONS,
    ID,
    NAME,
    PRODUCE_VERSIONS,
    FetchRequest,
    ProduceRequest,
    Side,
    encoded,
    fetch,
)
from tests.handlers.fetch_reference import reference_fetch
from tests.handlers.frames import plain
from tests.storage.batches import batch, read_all
from tests.storage.failing_writes import failing_writes

LEADER_EPOCH = 0
FIRST_WITH_IDS = 13


@pytest.fixture(name="side")
def _side(tmp_path: Path) -> Iterator[Side]:
    side = Side(tmp_path)
    yield side
    side.log.close(clean=False)


def produce(version: int, records: bytes | None, **values: Any) -> bytearray:
    topic = ProduceRequest.TopicProduceData(
        name=NAME,
        topic_id=ID,
        partition_data=[ProduceRequest.PartitionProduceData(index=3, records=records)],
    )
    return encoded(ProduceRequest(**{"acks": 1, "timeout_ms": 9, "topic_data": [topic], **values}), version)


def produced(version: int, first: int, start: int = 0, name: str = NAME) -> Any:
    row = PartitionProduceResponse(index=3, base_offset=first, log_start_offset=start)
    response = ProduceResponse(responses=[TopicProduceResponse(name=name, topic_id=ID, partition_responses=[row])])
    return ProduceResponse.program(version).encode_response(response, 77, version >= 9)


def fetched(version: int, region: FileRegion | bytes, end: int, committed: bool = False) -> Any:
    row = PartitionData(
        partition_index=3,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=[] if committed else None,
        records=region,
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic=NAME, topic_id=ID, partitions=[row])])
    return FetchResponse.program(version).encode_response(response, 77, version >= 12)


def decoded(version: int, frame: Any) -> Any:
    """The struct of a fetch's answer."""
    data = plain(frame)[8 + (version >= 12) :]
    return FetchResponse.program(version).decode(data, 0, len(data))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_is_stored_and_answered_as_the_encoder_does(side: Side, version: int, acks: int) -> None:
    """A producer would misread its answer, or its records would not be in the log."""
    records = bytes(batch([b"x", b"y"]))
    for first in (2, 4):
        frame = ask(PRODUCE, side.services, version, 77, produce(version, records, acks=acks))
        assert frame == produced(version, first)
    assert side.log.log_end_offset == side.log.high_watermark == 6
    stored = Path(side.log.local.segments.active.path).read_bytes()
    assert stored.count(records[16:]) == 2


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("committed", [False, True])
def test_a_fetch_is_answered_as_the_encoder_does(side: Side, version: int, committed: bool) -> None:
    """A consumer would misread its answer."""
    frame = ask(FETCH, side.services, version, 77, fetch(version, 1, isolation_level=int(committed), rack_id="r1"))
    assert frame is not None
    found = side.log.read(
        1, 1 << 20, FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK, True
    )
    assert plain(frame) == plain(fetched(version, found.records, 2, committed))
    assert b"second" in plain(frame) and b"first" not in plain(frame)


def test_a_name_of_any_length_and_alphabet_comes_back(tmp_path: Path) -> None:
    """Topics whose names take two bytes for their length, or more for a letter, could not be written to."""
    for number, name in enumerate(["t", "x" * 127, "y" * 249, "größe"]):
        side = Side(tmp_path / str(number), name)
        for version in (7, 9):
            topic = ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[ProduceRequest.PartitionProduceData(index=3, records=bytes(batch()))],
            )
            request = encoded(ProduceRequest(acks=1, topic_data=[topic]), version)
            first = side.log.log_end_offset
            assert ask(PRODUCE, side.services, version, 77, request) == produced(version, first, name=name)
        side.log.close(clean=False)


def test_a_waiting_consumer_is_woken(side: Side) -> None:
    """A consumer would wait to the end of its time beside records that it asked for."""
    ask(PRODUCE, side.services, 9, 1, produce(9, bytes(batch())))
    assert side.woken == []
    side.has_a_consumer_wait()
    ask(PRODUCE, side.services, 9, 1, produce(9, bytes(batch())))
    assert side.woken == [side.partition]


def test_requests_that_came_together_are_answered_each_for_itself(side: Side) -> None:
    """Producers would get each other's offsets, or one client's bad request would fail those of others."""
    records = bytes(batch([b"x", b"y"]))
    asked = [
        (version, number, produce(version, records, acks=acks))
        for number, (version, acks) in enumerate([(7, 1), (9, -1), (2, 1), (13, 1), (9, 2), (11, -1)])
    ]
    asked[3:3] = [(9, 33, produce(9, records[:-1]))]
    frames = answer_together(PRODUCE, side.services, asked)
    expected = [(7, 0, 2), (9, 1, 4), None, None, (13, 3, 6), None, (11, 5, 8)]
    for frame, row in zip(frames, expected, strict=True):
        assert (frame is None) == (row is None)
        if row is not None:
            version, correlation_id, first = row
            plain_frame = bytearray(produced(version, first))
            plain_frame[4:8] = correlation_id.to_bytes(4, "big")
            assert frame == bytes(plain_frame)
    assert side.log.log_end_offset == side.log.high_watermark == 10
    stored = Path(side.log.local.segments.active.path).read_bytes()
    assert stored.count(records[16:]) == 4


def crowded(folder: Path, names: str) -> tuple[dict[str, Side], Any]:
    """Partitions of several topics, and what a handler is given to reach all of them."""
    sides = {name: Side(folder / name, name) for name in names}
    services = sides[names[0]].services
    for side in sides.values():
        services.replica_manager.topics.update(side.services.replica_manager.topics)
    return sides, services


def to(name: str, records: bytes) -> bytearray:
    row = ProduceRequest.PartitionProduceData(index=3, records=records)
    return encoded(
        ProduceRequest(acks=1, topic_data=[ProduceRequest.TopicProduceData(name=name, partition_data=[row])]), 9
    )


def test_requests_that_came_together_for_several_partitions(tmp_path: Path) -> None:
    """Records would end in another partition than the one they were sent to."""
    sides, services = crowded(tmp_path, "ab")
    sides["b"].has_a_consumer_wait()
    names = ["a", "b", "b", "a", "none", "b"]
    asked = [(9, 77, to(name, bytes(batch([b"%d" % at])))) for at, name in enumerate(names)]
    frames = answer_together(PRODUCE, services, asked)
    firsts = [2, 2, 3, 3, None, 4]
    for name, frame, first in zip(names, frames, firsts, strict=True):
        assert frame == (None if first is None else produced(9, first, name=name))
    assert sides["b"].woken == [sides["b"].partition]
    for each, values in zip(sides.values(), [[b"0", b"3"], [b"1", b"2", b"5"]], strict=True):
        assert [value for _, value in read_all(each.log)][2:] == values
        each.log.close(clean=False)


def any_batch(rng: random.Random) -> bytes:
    """Good ones of all plain kinds, idempotent ones that follow or do not, and broken ones."""
    data = batch(
        [rng.randbytes(rng.choice((10, 900, 20_000)))] * rng.randint(1, 3),
        compression=rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD)),
        **rng.choice(({}, {}, {"producer_id": rng.randint(1, 4), "epoch": 0, "sequence": rng.choice((0, 1, 2))})),
    )
    if rng.random() < 0.15:
        data[-1 - rng.randrange(len(data) - 21)] ^= 1 << rng.randrange(8)
    return bytes(data)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_requests_shared_with_threads_leave_what_they_leave_one_by_one(tmp_path: Path, threads: int) -> None:
    """Under load records would be stored twice, at each other's offsets, or damaged."""
    rng = random.Random(threads)
    names = "abcdefgh"
    helper_pool = HelperPool(threads)
    together, services = crowded(tmp_path / "together", names)
    alone, services_alone = crowded(tmp_path / "alone", names)
    deadline = time.monotonic() + 60
    rounds = 0
    while rounds < 40 or (threads and not helper_pool.helped_count):
        assert time.monotonic() < deadline
        rounds += 1
        asked = [(rng.choice(names), any_batch(rng)) for _ in range(rng.randint(1, 32))]
        frames = answer_together(PRODUCE, services, [(9, 77, to(name, data)) for name, data in asked], helper_pool)
        # A batch that had to wait for another one of the turn is asked for by itself behind it.
        order = [at for at, frame in enumerate(frames) if frame is not None]
        order += [at for at, frame in enumerate(frames) if frame is None]
        for at in order:
            name, data = asked[at]
            frame = ask(PRODUCE, services, 9, 77, to(name, data)) if frames[at] is None else frames[at]
            assert frame == ask(PRODUCE, services_alone, 9, 77, to(name, data))
    for name in names:
        logs = [sides[name].log for sides in (together, alone)]
        for log in logs:
            log.close(clean=True)
        files = [Path(log.local.segments.active.path) for log in logs]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].with_suffix(".index").read_bytes() == files[1].with_suffix(".index").read_bytes()
    helper_pool.close()


@pytest.mark.parametrize("failure", ["closed", "full"])
def test_a_write_that_fails_fails_its_partition_alone(tmp_path: Path, failure: str) -> None:
    """A full disk under one partition would damage others, or producers would be told that records are stored."""
    names = "abcd"
    helper_pool = HelperPool(1)
    sides, services = crowded(tmp_path, names)
    value = b"x" * 40_000
    with failing_writes(sides["c"].log.local.segments.active, failure):
        asked = [to(name, bytes(batch([value]))) for name in names]
        frames = answer_together(PRODUCE, services, [(9, 77, data) for data in asked], helper_pool)
    assert frames == [None if name == "c" else produced(9, 2, name=name) for name in names]
    # The handler takes over with the batch as its producer sent it.
    assert asked[2] == to("c", bytes(batch([value])))
    assert [each.log.log_end_offset for each in sides.values()] == [3, 3, 2, 3]
    assert ask(PRODUCE, services, 9, 77, to("d", bytes(batch()))) == produced(9, 3, name="d")
    for each in sides.values():
        each.log.close(clean=False)
    helper_pool.close()


def test_what_was_written_and_not_counted_in_is_cut(tmp_path: Path) -> None:
    """A broker stopped in the middle of a turn would have records after its restart that nobody acknowledged."""
    sides, services = crowded(tmp_path, "ab")
    sides["a"].has_a_consumer_wait()

    def stopped(_: Partition) -> None:
        raise KeyboardInterrupt

    sides["a"].partition.purgatory = SimpleNamespace(mark=stopped)  # type: ignore[assignment]
    asked = {name: to(name, bytes(batch([b"x" * 9_000]))) for name in "ab"}
    segment = sides["b"].log.local.segments.active
    with pytest.raises(KeyboardInterrupt):
        answer_together(PRODUCE, services, [(9, 77, data) for data in asked.values()])
    assert [each.log.log_end_offset for each in sides.values()] == [3, 2]
    assert Path(segment.path).stat().st_size == segment.size
    assert asked["b"] == to("b", bytes(batch([b"x" * 9_000])))
    for each in sides.values():
        each.log.close(clean=False)


def test_a_request_that_cannot_even_be_placed_fails_alone(tmp_path: Path) -> None:
    """Every client of the turn would lose its connection."""
    sides, services = crowded(tmp_path, "ab")
    services.replica_manager.topics["broken"] = []
    frames = answer_together(PRODUCE, services, [(9, 77, to(name, bytes(batch()))) for name in ("a", "broken", "b")])
    assert [frames[0], frames[2]] == [produced(9, 2, name="a"), produced(9, 2, name="b")]
    assert type(frames[1]) is TypeError
    for each in sides.values():
        each.log.close(clean=False)


def test_a_fault_at_one_partition_is_not_that_of_others_in_the_same_turn(tmp_path: Path) -> None:
    """Clients whose records are in the log would lose their connections, and send them again."""
    sides, services = crowded(tmp_path, "ab")
    sides["b"].partition.purgatory = SimpleNamespace(mark=[].remove)  # type: ignore[assignment]
    sides["b"].has_a_consumer_wait()
    frames = answer_together(PRODUCE, services, [(9, 77, to(name, bytes(batch()))) for name in ("b", "a", "b", "a")])
    assert [frames[1], frames[3]] == [produced(9, 2, name="a"), produced(9, 3, name="a")]
    assert [type(frames[0]), type(frames[2])] == [ValueError, ValueError]
    for each in sides.values():
        each.log.close(clean=False)


def not_plain() -> list[tuple[str, Any, int, bytearray]]:
    good = bytes(batch())
    broken = bytearray(good)
    broken[-1] ^= 1
    transactional = bytes(batch(producer_id=4, epoch=0, sequence=0, transactional=True))
    return [
        ("an old version", PRODUCE, 2, produce(2, good)),
        ("a codec that its version lacks", PRODUCE, 6, produce(6, bytes(batch(compression=Codec.ZSTD)))),
        ("acks that are none", PRODUCE, 9, produce(9, good, acks=2)),
        ("a transaction's id that is no ASCII", PRODUCE, 9, produce(9, good, transactional_id="größe")),
        ("a transaction's batch without its id", PRODUCE, 9, produce(9, transactional)),
        ("a transaction that begins", PRODUCE, 9, produce(9, transactional, transactional_id="t")),
        ("no records", PRODUCE, 9, produce(9, None)),
        ("an empty batch", PRODUCE, 9, produce(9, b"")),
        ("a wrong checksum", PRODUCE, 9, produce(9, bytes(broken))),
        ("two batches", PRODUCE, 9, produce(9, good + good)),
        ("no topic", PRODUCE, 9, produce(9, good, topic_data=[])),
        ("bytes behind", PRODUCE, 9, produce(9, good) + b"\0"),
        ("a tagged field", PRODUCE, 9, produce(9, good)[:-1] + b"\x01\x05\x00"),
        ("a session", FETCH, 11, fetch(11, 0, session_epoch=0)),
        ("another session", FETCH, 11, fetch(11, 0, session_id=4, session_epoch=4)),
        ("another broker", FETCH, 11, fetch(11, 0, replica_id=2)),
        ("an isolation level that is none", FETCH, 11, fetch(11, 0, isolation_level=2)),
        ("no topic", FETCH, 11, fetch(11, 0, topics=[])),
        ("bytes behind", FETCH, 11, fetch(11, 0) + b"\0"),
        ("a replica's state", FETCH, 15, fetch(15, 0, replica_state=FetchRequest.ReplicaState(replica_id=5))),
        ("a rack that is no ASCII", FETCH, 11, fetch(11, 0, rack_id="größe")),
        ("a very long rack", FETCH, 12, fetch(12, 0, rack_id="r" * 250)),
        ("a cluster", FETCH, 12, fetch(12, 0, cluster_id="c")),
    ]


@pytest.mark.parametrize(
    "direct, version, request_bytes",
    [row[1:] for row in not_plain()],
    ids=[row[0] for row in not_plain()],
)
def test_anything_else_is_left_to_the_handler(side: Side, direct: Any, version: int, request_bytes: bytearray) -> None:
    """What has to be refused, or done in another way, would be answered as if all were well."""
    before = bytes(request_bytes)
    assert ask(direct, side.services, version, 77, request_bytes) is None
    assert bytes(request_bytes) == before
    assert side.log.log_end_offset == 2


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_left_to_the_handler(tmp_path: Path, topic: str) -> None:
    """Anybody could write into the offsets of consumer groups."""
    side = Side(tmp_path, topic)
    row = ProduceRequest.PartitionProduceData(index=3, records=bytes(batch()))
    asked = ProduceRequest(acks=1, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[row])])
    assert ask(PRODUCE, side.services, 9, 77, encoded(asked, 9)) is None
    side.log.close(clean=False)


def test_a_segment_that_cannot_be_opened_is_told_of(side: Side) -> None:
    """The consumer would lose its connection instead of hearing of the disk, and so would who watches the disk."""
    segment = side.log.local.segments.active
    segment.release()
    os.rename(segment.path, f"{segment.path}.gone")
    row = decoded(11, ask(FETCH, side.services, 11, 77, fetch(11, 1))).responses[0].partitions[0]
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    os.rename(f"{segment.path}.gone", segment.path)
    row = decoded(11, ask(FETCH, side.services, 11, 77, fetch(11, 1))).responses[0].partitions[0]
    assert row.error_code == 0 and b"second" in bytes(row.records)


def test_too_few_in_sync_replicas_are_left_to_the_handler(side: Side) -> None:
    """acks=all would be answered without the replicas that it is meant for."""
    side.partition.replicas, side.partition.min_in_sync, side.partition.commits_alone = (1, 2), 2, False
    assert ask(PRODUCE, side.services, 9, 77, produce(9, bytes(batch()), acks=-1)) is None
    assert ask(PRODUCE, side.services, 9, 77, produce(9, bytes(batch()), acks=1)) == produced(9, 2)


def test_the_system_clock_judges_timestamps_as_another_clock_does(side: Side) -> None:
    """Records from the far future would be taken, and hold retention up, where the broker runs on the system's time."""
    side.services.clock = SystemClock()
    future = bytes(batch(timestamp=(1 << 42)))
    assert ask(PRODUCE, side.services, 9, 77, produce(9, future)) is None
    assert ask(PRODUCE, side.services, 9, 77, produce(9, bytes(batch()))) == produced(9, 2)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[int, bool, bytearray]:
    """A request with a few bytes changed, lost or added."""
    is_produce = draw(st.booleans())
    version = draw(st.sampled_from(PRODUCE_VERSIONS if is_produce else FETCH_VERSIONS))
    if is_produce:
        data = produce(version, bytes(batch([b"x" * draw(st.integers(0, 40))])), acks=draw(st.sampled_from([1, -1])))
    else:
        data = fetch(version, draw(st.integers(0, 1)), min_bytes=draw(st.integers(0, 2)))
    head = len(data) if not is_produce else min(len(data), 60)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, head - 1))
        kind = draw(st.sampled_from(["set", "bit", "cut", "add"]))
        if kind == "set" and at < len(data):
            data[at] = draw(st.sampled_from([0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF]))
        elif kind == "bit" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 4))]
        else:
            data[at:at] = bytes(draw(st.lists(st.integers(0, 255), min_size=1, max_size=3)))
    return version, is_produce, data


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests=st.lists(damaged(), min_size=1, max_size=8))
def test_damaged_requests_are_answered_as_the_decoder_reads_them(requests: list[tuple[int, bool, bytearray]]) -> None:
    """A length that lies would have foreign bytes stored or sent, or end the broker."""
    with tempfile.TemporaryDirectory() as folder:
        side = Side(Path(folder))
        for version, is_produce, data in requests:
            end = side.log.log_end_offset
            struct, direct = (ProduceRequest, PRODUCE) if is_produce else (FetchRequest, FETCH)
            try:
                asked = struct.program(version).decode(memoryview(bytes(data)), 0, len(data))
            except ValueError:
                asked = None
            frame = ask(direct, side.services, version, 77, data)
            if frame is None:
                assert side.log.log_end_offset == end
                continue
            assert asked is not None, "the decoder refuses what was answered"
            if isinstance(frame, Pending):
                assert not is_produce
                continue
            if is_produce:
                (topic,) = asked.topic_data
                assert (bytes(topic.topic_id) == ID) if version >= FIRST_WITH_IDS else (topic.name == NAME)
                (row,) = topic.partition_data
                assert (row.index, asked.acks in (0, 1, -1)) == (3, True)
                assert frame == (produced(version, end) if asked.acks else NO_RESPONSE)
                stored = Path(side.log.local.segments.active.path).read_bytes()
                assert stored.endswith(bytes(row.records)[16:])
                continue
            assert (asked.session_id, asked.session_epoch) == (0, -1)
            ctx: Any = SimpleNamespace(gate=None, services=side.services, api_version=version)
            asked.max_wait_ms = 0
            expected = FetchResponse.program(version).encode_response(reference_fetch(ctx, asked), 77, version >= 12)
            assert plain(frame) == plain(expected)
        side.log.close(clean=False)
