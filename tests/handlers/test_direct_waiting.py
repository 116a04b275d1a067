"""Fetches that wait without being decoded: each gets the answer that the handler would have given, at the same step."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.net.pending import Pending
from kbroker.clock import SystemClock
from kbroker.handlers.records.fetch import FAST_FETCH, handle_fetch
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.partition import Partition
from tests.extensions.direct_requests import ask
from tests.handlers.both_ways import FETCH_VERSIONS, ID, NAME, FetchRequest, Side, fetch
from tests.handlers.fetch_reference import reference_fetch
from tests.handlers.frames import plain
from tests.handlers.partitions import led
from tests.handlers.served_fetch import LONG_MS, Context, serve
from tests.storage.batches import append, batch

WIDE = 1 << 20


class Readers(Side):
    """A partition and those who read it, `direct` or by the handler."""

    def __init__(self, folder: Path, direct: bool) -> None:
        super().__init__(folder)
        self.direct = direct
        self.loop = asyncio.new_event_loop()
        self.manager = self.services.replica_manager
        self.manager.purgatory = self.partition.purgatory = FetchPurgatory(self.loop)
        self.services.clock = SystemClock()
        self.asked: list[Context] = []
        self.waited_directly = 0

    def ask(self, version: int, behind: int, **wanted: Any) -> Context:
        """Fetch from `behind` the log's end on."""
        ctx = Context(self.services, version, handle_fetch if self.direct else reference_fetch)
        self.asked.append(ctx)
        served = serve(ctx, fetch(version, self.log.log_end_offset + behind, **wanted), self.direct)
        self.waited_directly += served and ctx.open
        return ctx

    def append(self) -> None:
        append(self.log, batch([b"x" * 10]))
        self.mark()

    def mark(self) -> None:
        self.manager.purgatory.mark(self.partition)

    def look(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

    def drop(self) -> None:
        self.manager.topics.clear()
        self.manager.names.clear()
        self.manager.purgatory.expire_partition(self.partition)

    def change_leader(self) -> None:
        self.partition.leader_epoch += 1
        self.mark()

    def leave(self) -> None:
        """The client that came last goes."""
        for ctx in self.asked[-1:]:
            ctx.leave()

    def end_time(self) -> None:
        self.manager.purgatory.expire_all()

    def transaction(self) -> None:
        self.log.producer_state.first_unstable_offset = self.log.log_end_offset
        self.mark()

    def no_transaction(self) -> None:
        self.log.producer_state.first_unstable_offset = None
        self.mark()

    def told(self) -> list[list[bytes]]:
        """Of each request its answers."""
        return [[plain(answer) for answer in ctx.answers] for ctx in self.asked]

    def close(self) -> None:
        self.manager.purgatory.expire_all()
        self.loop.close()
        self.log.close(clean=False)


@pytest.fixture(name="readers")
def _readers(tmp_path: Path) -> Iterator[Readers]:
    readers = Readers(tmp_path, direct=True)
    yield readers
    readers.close()


@pytest.mark.parametrize("committed", [0, 1])
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_consumer_at_the_end_gets_what_comes(readers: Readers, tmp_path: Path, version: int, committed: int) -> None:
    """Consumers that have read all would hear nothing of new records, or read nonsense."""
    other = Readers(tmp_path / "other", direct=False)
    for side in (readers, other):
        side.ask(version, 0, max_wait_ms=LONG_MS, isolation_level=committed)
        assert len(side.manager.purgatory) == 1
        side.append()
        assert side.told() == [[]]
        side.look()
        assert len(side.manager.purgatory) == 0 and not side.partition.waiting
    assert readers.waited_directly == 1
    assert readers.told() == other.told() != [[]]
    other.close()


WANTED = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([-1, 0, LONG_MS, LONG_MS]),
        "min_bytes": st.sampled_from([-1, 0, 1, 1, 200, WIDE, WIDE << 4]),
        "max_bytes": st.sampled_from([-1, 0, 100, WIDE, WIDE << 4]),
        "isolation_level": st.sampled_from([0, 1]),
        "partition_max_bytes": st.sampled_from([-1, 0, 100, WIDE]),
        "current_leader_epoch": st.sampled_from([-1, -1, 0, 1]),
    }
)
FETCHES = st.tuples(st.just("ask"), st.sampled_from(FETCH_VERSIONS), st.sampled_from([-1, 0, 0, 0, 1]), WANTED)
EVENTS = st.sampled_from(
    ["append", "append", "look", "look", "leave", "end_time", "change_leader", "drop", "transaction", "no_transaction"]
).map(lambda name: (name,))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.one_of(FETCHES, EVENTS), min_size=2, max_size=14))
def test_both_ways_answer_the_same_at_the_same_step(steps: list[tuple[Any, ...]]) -> None:
    """Who waits in one way would miss records, an error or the end of his time that others hear of."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Readers(Path(folder) / str(direct), direct) for direct in (False, True)]
        for kind, *values in steps:
            for side in sides:
                if kind == "ask":
                    version, behind, wanted = values
                    side.ask(version, behind, **wanted)
                else:
                    getattr(side, kind)()
            assert sides[0].told() == sides[1].told()
            assert len(sides[0].manager.purgatory) == len(sides[1].manager.purgatory)
        for side in sides:
            side.close()
        assert sides[0].told() == sides[1].told()


def test_a_wait_that_the_handler_takes_over_ends_at_its_time(readers: Readers) -> None:
    """A consumer would wait for twice its time, or be told at once that there is nothing, again and again."""
    partition, manager = readers.partition, readers.manager
    manager.topics[NAME] = {3: partition} | {
        index: Partition(NAME, index, ID, readers.log, 1, led(), manager.purgatory) for index in range(4, 304)
    }
    rows = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=readers.log.log_end_offset, partition_max_bytes=WIDE)
        for index in manager.topics[NAME]
    ]
    topics = [FetchRequest.FetchTopic(topic=NAME, partitions=rows)]
    asked = FetchRequest(max_bytes=WIDE, max_wait_ms=LONG_MS, min_bytes=1, topics=topics)
    ctx = Context(readers.services, 12)
    assert serve(ctx, bytearray(FetchRequest.program(12).encode(asked)), True) and ctx.open
    decode, taken = ctx.decode, []

    def decode_and_see(data: bytes) -> Any:
        taken.append(decode(data))
        return taken[-1]

    ctx.decode = decode_and_see  # type: ignore[method-assign]
    manager.topics[NAME] = {3: partition}  # the others go, which is more than is told of within the fast path
    readers.mark()
    readers.look()
    assert len(taken) == 1 and LONG_MS - 60_000 < taken[0].max_wait_ms <= LONG_MS
    assert len(manager.purgatory) == 1 and not ctx.answers
    readers.append()
    readers.look()
    assert len(ctx.answers) == 1 and len(manager.purgatory) == 0


@pytest.mark.parametrize("direct", [True, False])
def test_a_fault_at_one_fetch_that_waits_is_told_and_spares_the_others(tmp_path: Path, direct: bool) -> None:
    """A consumer would hang for good on a connection that nobody closes, and those behind it until their time is up."""
    readers = Readers(tmp_path, direct)
    broken = Context(SimpleNamespace(**vars(readers.services)), 12)
    sound = Context(readers.services, 12)
    for ctx in (broken, sound):
        data = fetch(12, readers.log.log_end_offset, max_wait_ms=LONG_MS)
        if direct:
            ctx.take(ask(FAST_FETCH, ctx.services, 12, 77, data))
        else:
            ctx.handle(ctx.decode(bytes(data)))
    topics = readers.manager.topics
    broken.services.replica_manager = SimpleNamespace(names=None, topics=None)
    readers.append()
    readers.look()
    assert b"Error" in broken.answers[0] and len(sound.answers) == 1
    assert len(readers.manager.purgatory) == 0 and topics[NAME][3].waiting == {}
    readers.close()


def test_nobody_waits_for_a_client_that_left(readers: Readers) -> None:
    """Consumers that come and go on a quiet topic would fill the broker's memory."""
    readers.ask(12, 0, max_wait_ms=LONG_MS)
    assert readers.waited_directly == 1 and len(readers.manager.purgatory) == 1
    readers.leave()
    assert len(readers.manager.purgatory) == 0 and not readers.partition.waiting
    readers.append()
    readers.look()
    assert readers.told() == [[]]


@pytest.mark.parametrize(
    "behind, wanted",
    [
        (0, {"max_wait_ms": 0}),
        (0, {"min_bytes": 0}),
        (1, {}),
        (-9, {}),
        (0, {"current_leader_epoch": 1}),
        (0, {"session_id": 4, "session_epoch": 4}),
        (0, {"isolation_level": 2}),
        (0, {"partition_max_bytes": -1}),
    ],
    ids=repr,
)
def test_what_has_to_be_answered_now_does_not_wait(readers: Readers, behind: int, wanted: dict[str, Any]) -> None:
    """A consumer with a wrong offset, an old view or no time would hang instead of hearing so."""
    data = fetch(11, readers.log.log_end_offset + behind, **{"max_wait_ms": LONG_MS, **wanted})
    ctx = Context(readers.services, 11)
    assert not isinstance(ask(FAST_FETCH, ctx.services, 11, 77, data), Pending)
    assert len(readers.manager.purgatory) == 0 and ctx.waiting is None


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    version=st.sampled_from(FETCH_VERSIONS),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2),
    cut=st.sampled_from([0, 0, 1, 2, 5]),
)
def test_damaged_requests_wait_only_as_the_decoder_reads_them(
    version: int, changes: list[tuple[int, int]], cut: int
) -> None:
    """A length that lies would have foreign bytes kept, or end the broker when the wait is over."""
    with tempfile.TemporaryDirectory() as folder:
        readers = Readers(Path(folder), direct=True)
        data = fetch(version, readers.log.log_end_offset, max_wait_ms=LONG_MS)
        for at, value in changes:
            data[at % len(data)] = value
        del data[len(data) - cut :]
        ctx = Context(readers.services, version)
        answer = ask(FAST_FETCH, ctx.services, version, 77, data)
        if isinstance(answer, Pending):
            answer.begin(ctx)
            asked = ctx.decode(bytes(data))
            (topic,) = asked.topics
            (row,) = topic.partitions
            assert (row.partition, row.fetch_offset, asked.max_wait_ms > 0) == (3, readers.log.log_end_offset, True)
            readers.end_time()
            assert len(ctx.answers) == 1
        readers.close()


@pytest.mark.parametrize("size", [0, 249, 250, 500, 5_000, 32_767])
@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_name_that_no_topic_can_have_is_answered(readers: Readers, version: int, size: int) -> None:
    """Bytes behind the answer's buffer would be overwritten, and the broker end."""
    rows = [FetchRequest.FetchPartition(partition=index, partition_max_bytes=WIDE) for index in range(3)]
    names = ["x" * size, "y" * max(0, size - 1)]
    asked = FetchRequest(
        max_bytes=WIDE, topics=[FetchRequest.FetchTopic(topic=name, partitions=rows) for name in names]
    )
    frames = []
    for direct, handler in [(False, reference_fetch), (False, handle_fetch), (True, handle_fetch)]:
        ctx = Context(readers.services, version, handler)
        serve(ctx, bytearray(FetchRequest.program(version).encode(asked)), direct)
        frames += [plain(answer) for answer in ctx.answers]
    assert len(frames) == 3 and frames[0] == frames[1] == frames[2]
    assert names[0].encode() in frames[0]
