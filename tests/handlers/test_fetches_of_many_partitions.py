"""Fetches that leave out what has nothing to tell: nobody hears less, more or at another step than if all were read."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.log.index import TAIL_ENTRIES
from kbroker.handlers.records.fetch import FAST_FETCH
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.extensions.direct_requests import ask
from tests.handlers.both_ways import ID, NAME, FetchRequest, encoded
from tests.handlers.frames import plain
from tests.handlers.many_consumers import (
    ALL,
    DECODED,
    DIRECT,
    PARTITIONS,
    REFERENCE,
    TOPICS,
    VERSIONS,
    WAITS,
    WIDE,
    Consumers,
)
from tests.handlers.served_fetch import LONG_MS, Context
from tests.storage.batches import append, batch, environment, open_log

INDEXES = st.integers(0, PARTITIONS - 1)
ROWS = st.dictionaries(INDEXES, st.sampled_from([0, 0, 0, 0, 0, -1, 1]), max_size=PARTITIONS)
BEHIND = st.dictionaries(INDEXES, st.sampled_from([-1, -1, 0]), min_size=2, max_size=PARTITIONS)
VALUES = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([0, LONG_MS, LONG_MS]),
        "min_bytes": st.sampled_from([0, 1, 1, 200]),
        "isolation_level": st.sampled_from([0, 1]),
        "max_bytes": st.sampled_from([WIDE, WIDE, WIDE, 100, 0, -1]),
        "limit": st.sampled_from([WIDE, WIDE, WIDE, 100, 0]),
        "leader_epoch": st.sampled_from([-1, -1, 0, 1]),
    }
)
EVENTS = st.sampled_from(["append", "append", "trim", "change_leader", "transaction", "drop"])
FETCHES = [
    st.tuples(st.just("go_on"), st.tuples(ROWS, st.lists(INDEXES, max_size=1)), VALUES),
    st.tuples(st.just("go_on"), st.tuples(st.just({}), st.just([])), VALUES),
    st.tuples(st.just("go_on"), st.tuples(st.just({}), st.just([])), st.just({"max_wait_ms": LONG_MS, "min_bytes": 1})),
    st.tuples(st.just("once"), st.tuples(st.sampled_from(VERSIONS), ROWS), VALUES),
    st.tuples(st.just("once"), st.tuples(st.sampled_from(VERSIONS), BEHIND), VALUES),
]
STEPS = st.one_of(
    *FETCHES,
    st.tuples(EVENTS, st.tuples(INDEXES), st.just({})),
    st.tuples(EVENTS, st.tuples(INDEXES), st.just({})),
    st.tuples(st.sampled_from(["look", "look", "look", "end_time", "rename"]), st.just(()), st.just({})),
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    version=st.sampled_from(VERSIONS), epoch=st.sampled_from([-1, 0]), steps=st.lists(STEPS, min_size=2, max_size=16)
)
def test_what_is_left_out_changes_no_answer(
    version: int, epoch: int, steps: list[tuple[str, tuple[Any, ...], dict[str, Any]]]
) -> None:
    """A consumer would not hear of records, of an error or of a new log start; or wait where it used to be told."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Consumers(Path(folder) / way, way) for way in (REFERENCE, DECODED, DIRECT)]
        begin = ("open", (version, ALL), {"max_wait_ms": 0, "leader_epoch": epoch})
        for kind, values, more in [begin, *steps]:
            for side in sides:
                getattr(side, kind)(*values, **more)
            assert sides[0].told() == sides[1].told() == sides[2].told(), kind
            assert len({len(side.manager.purgatory) for side in sides}) == 1, kind
        for side in sides:
            side.close()
        assert sides[0].told() == sides[1].told() == sides[2].told()


@pytest.mark.parametrize("version", range(4, 19))
def test_all_partitions_are_answered_without_being_decoded(tmp_path: Path, version: int) -> None:
    """Each record would cost a consumer of a thousand partitions, and all beside it, milliseconds."""
    sides = [Consumers(tmp_path / way, way) for way in (REFERENCE, DIRECT)]
    for side in sides:
        side.once(version, {0: -1, 1: 0, 2: -1}, max_wait_ms=LONG_MS, min_bytes=1)
        side.once(version, {0: 0, 1: 0, 2: 0}, max_wait_ms=LONG_MS, min_bytes=1)
        side.append(2)
        side.look()
        side.once(version, {2: 0, 0: 0}, max_wait_ms=LONG_MS, min_bytes=1)
        side.end_time()
        assert [len(answers) for answers in side.told()] == [1, 1, 1]
    assert sides[1].served_directly == 3
    assert sides[0].told() == sides[1].told()
    for side in sides:
        side.close()


@pytest.mark.parametrize("version", range(7, 19))
def test_a_session_goes_on_without_being_decoded(tmp_path: Path, version: int) -> None:
    """Java's consumers would pay for structs with each record that they wait for."""
    sides = [Consumers(tmp_path / way, way) for way in (REFERENCE, DIRECT)]
    for side in sides:
        side.open(version, ALL)
        for index in (2, 1):
            side.go_on({3 - index: 0}, [], max_wait_ms=LONG_MS, min_bytes=1)
            side.append(index)
            side.look()
        side.go_on(dict.fromkeys(range(PARTITIONS), -1), [], max_wait_ms=LONG_MS, min_bytes=1)
        side.go_on(ALL, [], max_wait_ms=LONG_MS, min_bytes=1)
        side.end_time()
        assert [len(answers) for answers in side.told()] == [1, 1, 1, 1, 1]
    assert sides[1].served_directly == 4
    assert sides[0].told() == sides[1].told()
    for side in sides:
        side.close()


@pytest.mark.parametrize(
    "served_directly, steps",
    [
        (1, [("go_on", ({}, []), {"max_wait_ms": 0})]),
        (1, [("go_on", ({0: 0}, []), {**WAITS, "leader_epoch": 1})]),
        (0, [("go_on", ({0: 0}, [1]), WAITS), ("append", (1,), {}), ("look", (), {})]),
        (
            1,
            [
                ("go_on", ({0: -1, 1: 0}, []), {**WAITS, "min_bytes": 200}),
                *[("append", (0,), {})] * 3,
                ("look", (), {}),
            ],
        ),
        (1, [("go_on", ({0: -1, 3: -1, 1: 0}, []), {**WAITS, "max_bytes": 80})]),
        (2, [("go_on", ({0: -1, 2: -1, 1: -1}, []), {**WAITS, "max_bytes": 80}), ("go_on", ({}, []), WAITS)]),
        (1, [("trim", (2,), {}), ("go_on", ({}, []), {"max_wait_ms": 0})]),
        (2, [("go_on", ({}, []), WAITS), ("trim", (2,), {}), ("end_time", (), {}), ("go_on", ({}, []), WAITS)]),
        (1, [("go_on", ({}, []), WAITS), ("transaction", (0,), {}), ("append", (0,), {}), ("look", (), {})]),
        (1, [("go_on", ({}, []), WAITS), ("drop", (0,), {}), ("look", (), {})]),
    ],
    ids=[
        "no time",
        "another leader",
        "a partition forgotten",
        "too little in one",
        "room for one",
        "room for one, then the next",
        "a log start",
        "a log start while it waits",
        "a transaction while it waits",
        "a partition that goes",
    ],
)
@pytest.mark.parametrize("version", [11, 12, 13])
def test_a_session_hears_the_same_without_being_decoded(
    tmp_path: Path, version: int, served_directly: int, steps: list[tuple[str, tuple[Any, ...], dict[str, Any]]]
) -> None:
    """A consumer would miss records or an error, or be told of what it knows."""
    sides = [Consumers(tmp_path / way, way) for way in (REFERENCE, DIRECT)]
    for side in sides:
        side.open(version, ALL)
        for kind, values, more in steps:
            getattr(side, kind)(*values, **more)
    assert sides[0].told() == sides[1].told()
    assert len(sides[0].manager.purgatory) == len(sides[1].manager.purgatory)
    assert sides[1].served_directly == served_directly
    for side in sides:
        side.close()
    assert sides[0].told() == sides[1].told()


def test_a_fetch_that_the_handler_serves_has_not_moved_its_session(tmp_path: Path) -> None:
    """A session would be a step ahead of its client, and end: all partitions would be asked for anew, each time."""
    consumers = Consumers(tmp_path, DIRECT)
    consumers.open(12, ALL)
    (session,) = consumers.services.fetch_sessions
    before = [
        (target.fetch_offset, target.max_bytes, target.answered_high_watermark) for target in session.targets.values()
    ]
    rows = [FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=7) for index in (1, 3)]
    topics = [FetchRequest.FetchTopic(topic=TOPICS[1][0], partitions=rows)]
    asked = FetchRequest(
        session_id=consumers.session_id,
        session_epoch=1,
        max_bytes=WIDE,
        topics=topics,
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic=NAME, partitions=[0])],
    )
    assert ask(FAST_FETCH, consumers.services, 12, 77, encoded(asked, 12)) is None
    assert session.epoch == 1 and before == [
        (target.fetch_offset, target.max_bytes, target.answered_high_watermark) for target in session.targets.values()
    ]
    consumers.close()


@pytest.mark.parametrize("opened, version, epoch", [(12, 12, 2), (12, 12, 0), (12, 12, -1), (12, 13, 1), (13, 12, 1)])
def test_a_session_out_of_step_is_left_to_the_handler(tmp_path: Path, opened: int, version: int, epoch: int) -> None:
    """A client whose fetch was lost, or sent twice, would be told of partitions as if it had heard all before."""
    consumers = Consumers(tmp_path, REFERENCE)
    consumers.open(opened, ALL)
    asked = FetchRequest(session_id=consumers.session_id, session_epoch=epoch, max_bytes=WIDE, max_wait_ms=LONG_MS)
    assert ask(FAST_FETCH, consumers.services, version, 77, encoded(asked, version)) is None
    consumers.close()


@pytest.mark.parametrize("in_session", [True, False])
@pytest.mark.parametrize("damaged", [True, False])
def test_a_batch_that_is_damaged_on_the_disk_is_told_of(tmp_path: Path, in_session: bool, damaged: bool) -> None:
    """A consumer would be sent bytes that are no records, and stop there for good."""
    sides = []
    for way in (REFERENCE, DIRECT):
        log = open_log(tmp_path / way / "0", env=environment(SYSTEM_FILES))
        before = TAIL_ENTRIES + 1  # so that no one knows of the first ones but the file
        for _ in range(before):
            append(log, batch([b"x" * 10]))
        second = log.local.segments.active.size // before
        log.close(clean=True)
        consumers = Consumers(tmp_path / way, way)
        sides.append(consumers)
        consumers.open(12, ALL)
        consumers.once(12, {0: -1 - before}, limit=1)  # where the second batch begins is known now
        if damaged:
            with Path(consumers.partitions[0].log.local.segments.active.path).open("r+b") as file:
                file.seek(second + 8)
                file.write(b"\xff")  # a negative length
        if in_session:
            consumers.go_on({0: -before}, [], **WAITS)
        else:
            consumers.once(12, {0: -before, 1: 0}, **WAITS)
        assert len(consumers.told()[-1]) == 1
        assert (b"x" * 10 in consumers.told()[-1][0]) == (not damaged)
    assert sides[0].told() == sides[1].told()
    for consumers in sides:
        consumers.close()


@pytest.mark.parametrize("rows", [-1, 5, 100_000, 0x7FFFFFFF])
def test_a_number_of_partitions_that_lies_moves_no_session(tmp_path: Path, rows: int) -> None:
    """One request would hold the broker up for minutes, and take its memory."""
    consumers = Consumers(tmp_path, REFERENCE)
    consumers.open(11, ALL)
    row = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=WIDE)
    topics = [FetchRequest.FetchTopic(topic=NAME, partitions=[row])]
    data = encoded(FetchRequest(session_id=consumers.session_id, session_epoch=1, max_bytes=WIDE, topics=topics), 11)
    at = data.index(NAME.encode()) + len(NAME)
    data[at : at + 4] = rows.to_bytes(4, "big", signed=True)
    data += bytes(100_000)  # as many, if they had a byte each
    tracemalloc.start()
    try:
        assert ask(FAST_FETCH, consumers.services, 11, 77, data) is None
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    (session,) = consumers.services.fetch_sessions
    assert session.epoch == 1
    consumers.close()


def test_a_partition_or_topic_named_twice_is_left_to_the_handler(tmp_path: Path) -> None:
    """A client would get an answer with rows that it cannot tell apart."""
    consumers = Consumers(tmp_path, REFERENCE)
    row = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=WIDE)
    other = FetchRequest.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=WIDE)
    for rows in ([[row, row]], [[row], [other]], [[row, other], [row]]):
        topics = [FetchRequest.FetchTopic(topic=NAME, topic_id=ID, partitions=each) for each in rows]
        data = encoded(FetchRequest(max_bytes=WIDE, max_wait_ms=LONG_MS, min_bytes=1, topics=topics), 12)
        assert ask(FAST_FETCH, consumers.services, 12, 77, data) is None
    consumers.close()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    version=st.sampled_from(range(4, 19)),
    changes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2),
    cut=st.sampled_from([0, 0, 1, 2, 5]),
    behind=st.sampled_from([0, -1]),
)
def test_damaged_requests_are_answered_only_as_the_decoder_reads_them(
    version: int, changes: list[tuple[int, int]], cut: int, behind: int
) -> None:
    """A length that lies would have foreign bytes kept or sent, or end the broker."""
    with tempfile.TemporaryDirectory() as folder:
        consumers = Consumers(Path(folder), DIRECT)
        rows = [
            FetchRequest.FetchPartition(partition=index, fetch_offset=1 + behind, partition_max_bytes=WIDE)
            for index in range(PARTITIONS)
        ]
        topics = [FetchRequest.FetchTopic(topic=NAME, topic_id=ID, partitions=rows)]
        data = encoded(FetchRequest(max_bytes=WIDE, max_wait_ms=LONG_MS, min_bytes=1, topics=topics), version)
        for at, value in changes:
            data[at % len(data)] = value
        del data[len(data) - cut :]
        asked, direct = Context(consumers.services, version), Context(consumers.services, version)
        answer = ask(FAST_FETCH, consumers.services, version, 77, data)
        if answer is not None:
            direct.take(answer)
            asked.handle(asked.decode(bytes(data)))
            consumers.end_time()
            assert [plain(answer) for answer in asked.answers] == [plain(answer) for answer in direct.answers]
        consumers.close()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    version=st.sampled_from(range(7, 19)),
    changes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2),
    cut=st.sampled_from([0, 0, 1, 2, 5]),
    behind=st.sampled_from([0, -1]),
)
def test_damaged_requests_move_a_session_only_as_the_decoder_reads_them(
    version: int, changes: list[tuple[int, int]], cut: int, behind: int
) -> None:
    """A length that lies would have a session ask for what nobody asked for, or end the broker."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Consumers(Path(folder) / way, way) for way in (REFERENCE, DIRECT)]
        for side in sides:
            side.open(version, ALL)
            rows = [FetchRequest.FetchPartition(partition=0, fetch_offset=1 + behind, partition_max_bytes=WIDE)]
            topics = [FetchRequest.FetchTopic(topic=NAME, topic_id=ID, partitions=rows)]
            asked = FetchRequest(
                session_id=side.session_id,
                session_epoch=1,
                max_bytes=WIDE,
                max_wait_ms=LONG_MS,
                min_bytes=1,
                topics=topics,
            )
            data = encoded(asked, version)
            for at, value in changes:
                data[at % len(data)] = value
            del data[len(data) - cut :]
            with contextlib.suppress(ValueError):
                side.send(version, data)
            side.append(2)
            side.look()
            side.end_time()
        assert sides[0].told() == sides[1].told()
        for side in sides:
            side.close()


def test_a_session_of_many_partitions_reads_the_one_that_has_something(tmp_path: Path) -> None:
    """One consumer of a thousand partitions would hold the broker up for four milliseconds with each record."""
    consumers = Consumers(tmp_path, DECODED)
    consumers.open(13, {0: 0, 1: 0, 2: 0})
    consumers.go_on({}, [], max_wait_ms=LONG_MS, min_bytes=1)
    assert len(consumers.manager.purgatory) == 1
    consumers.append(1)
    resting = [consumers.partitions[index].log.local for index in (0, 2)]
    environments = [local.environment for local in resting]
    for local in resting:
        local.environment = None  # type: ignore[assignment]  # whatever reads these fails
    consumers.look()
    for local, kept in zip(resting, environments, strict=True):
        local.environment = kept
    (answer,) = consumers.asked[-1].answers
    assert plain(answer).count(b"x" * 10) == 1
    consumers.close()
