"""Fetches that leave out what has nothing to tell: nobody hears less, more or at another step than if all were read."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest import MonkeyPatch

from kbroker._fast.fetch_target import FetchTarget, worth_reading
from kbroker.clock import SystemClock
from kbroker.handlers import fetch as fetch_module
from kbroker.handlers.fetch import FetchResponse
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.partition import Partition
from kbroker.storage.filesystem import SYSTEM_FILES
from tests.handlers.test_direct_answers import ID, NAME, FetchRequest, encoded, plain
from tests.handlers.test_direct_waiting import LONG_MS, Context, Manager
from tests.storage.batches import append, batch, environment, open_log

PARTITIONS = 3
VERSIONS = [7, 11, 12, 13, 18]
WIDE = 1 << 20


def all_of_them(targets: Any, *_: Any) -> tuple[list[FetchTarget], list[Any]]:
    return list(targets), []


class Consumers:
    """A topic and its consumers.  `way`: what stands for `worth_reading`."""

    def __init__(self, folder: Path, way: Any = worth_reading) -> None:
        self.way = way
        image: Any = SimpleNamespace(leader_epoch=0, isr=(1,), replicas=(1,))
        env = environment(SYSTEM_FILES)
        self.partitions = [
            Partition(NAME, index, ID, open_log(folder / str(index), env=env), 1, image) for index in range(PARTITIONS)
        ]
        self.loop = asyncio.new_event_loop()
        self.manager = Manager(self.partitions[0], self.loop)
        self.manager.topics[NAME] = {partition.index: partition for partition in self.partitions}
        self.services = SimpleNamespace(
            replica_manager=self.manager,
            fetch_sessions=FetchSessionCache(8, seed=1),
            clock=SystemClock(),
            fetch_max_bytes=WIDE,
        )
        self.asked: list[Context] = []
        self.version = 12
        self.session_id = self.session_epoch = 0
        for partition in self.partitions:
            append(partition.log, batch([b"first"]))

    def open(self, version: int, rows: Mapping[int, int], **values: Any) -> None:
        """Fetch these partitions from so far behind their ends on, and begin a session."""
        self.version = version
        self._fetch(version, rows, session_epoch=0, **values)
        frame = plain(self.asked[-1].answers[0])[8 + (version >= 12) :]
        self.session_id = FetchResponse.program(version).decode(frame, 0, len(frame)).session_id
        self.session_epoch = 1

    def go_on(self, rows: Mapping[int, int], forgotten: list[int], **values: Any) -> None:
        gone = [FetchRequest.ForgottenTopic(topic=NAME, topic_id=ID, partitions=forgotten)] if forgotten else []
        self._fetch(
            self.version,
            rows,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            forgotten_topics_data=gone,
            **values,
        )
        self.session_epoch += 1

    def once(self, version: int, rows: Mapping[int, int], **values: Any) -> None:
        """Fetch without a session."""
        self._fetch(version, rows, **values)

    def _fetch(self, version: int, rows: Mapping[int, int], leader_epoch: int = -1, **values: Any) -> None:
        found = [
            FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=self.partitions[index].log.log_end_offset + behind,
                partition_max_bytes=WIDE,
                current_leader_epoch=leader_epoch,
            )
            for index, behind in rows.items()
        ]
        topics = [FetchRequest.FetchTopic(topic=NAME, topic_id=ID, partitions=found)] if found else []
        ctx = Context(self.services, version)
        self.asked.append(ctx)
        data = encoded(FetchRequest(**{"max_bytes": WIDE, "topics": topics, **values}), version)
        ctx.handle(ctx.decode(bytes(data)))

    def append(self, index: int) -> None:
        append(self.partitions[index].log, batch([b"x" * 10]))
        self._mark(index)

    def trim(self, index: int) -> None:
        log = self.partitions[index].log
        log.maybe_increment_log_start_offset(log.high_watermark)

    def change_leader(self, index: int) -> None:
        self.partitions[index].leader_epoch += 1
        self._mark(index)

    def transaction(self, index: int) -> None:
        state = self.partitions[index].log.producer_state
        state.first_unstable_offset = None if state.first_unstable_offset is not None else 1
        self._mark(index)

    def drop(self, index: int) -> None:
        self.manager.topics[NAME].pop(index, None)
        self.manager.purgatory.expire_partition(self.partitions[index])

    def rename(self) -> None:
        self.manager.names.clear()

    def _mark(self, index: int) -> None:
        self.manager.purgatory.mark(self.partitions[index])

    def look(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

    def end_time(self) -> None:
        self.manager.purgatory.expire_all()

    def told(self) -> list[list[bytes]]:
        return [[plain(answer) for answer in ctx.answers] for ctx in self.asked]

    def close(self) -> None:
        self.end_time()
        self.loop.close()
        for partition in self.partitions:
            partition.log.close(clean=False)


INDEXES = st.integers(0, PARTITIONS - 1)
ROWS = st.dictionaries(INDEXES, st.sampled_from([0, 0, 0, 0, 0, -1, 1]), max_size=PARTITIONS)
VALUES = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([0, LONG_MS, LONG_MS]),
        "min_bytes": st.sampled_from([0, 1, 1, 200]),
        "isolation_level": st.sampled_from([0, 1]),
    }
)
EVENTS = st.sampled_from(["append", "append", "trim", "change_leader", "transaction", "drop"])
FETCHES = [
    st.tuples(st.just("go_on"), st.tuples(ROWS, st.lists(INDEXES, max_size=1)), VALUES),
    st.tuples(st.just("go_on"), st.tuples(st.just({}), st.just([])), VALUES),
    st.tuples(st.just("go_on"), st.tuples(st.just({}), st.just([])), st.just({"max_wait_ms": LONG_MS, "min_bytes": 1})),
    st.tuples(st.just("once"), st.tuples(st.sampled_from(VERSIONS), ROWS), VALUES),
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
    with tempfile.TemporaryDirectory() as folder, MonkeyPatch.context() as patch:
        sides = [Consumers(Path(folder) / name, way) for name, way in (("a", all_of_them), ("b", worth_reading))]
        begin = ("open", (version, dict.fromkeys(range(PARTITIONS), 0)), {"max_wait_ms": 0, "leader_epoch": epoch})
        for kind, values, more in [begin, *steps]:
            for side in sides:
                patch.setattr(fetch_module, "worth_reading", side.way)
                getattr(side, kind)(*values, **more)
            assert sides[0].told() == sides[1].told(), kind
            assert len(sides[0].manager.purgatory) == len(sides[1].manager.purgatory), kind
        for side in sides:
            patch.setattr(fetch_module, "worth_reading", side.way)
            side.close()
        assert sides[0].told() == sides[1].told()


def test_a_session_of_many_partitions_reads_the_one_that_has_something(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """One consumer of a thousand partitions would hold the broker up for four milliseconds with each record."""
    consumers = Consumers(tmp_path)
    read: list[int] = []
    monkeypatch.setattr(
        fetch_module.FetchRead,
        "_read_partition",
        lambda self, target, left, first, really=fetch_module.FetchRead._read_partition: (
            read.append(target.index) or really(self, target, left, first)
        ),
    )
    consumers.open(13, {0: 0, 1: 0, 2: 0})
    assert read == [0, 1, 2]
    consumers.go_on({}, [], max_wait_ms=LONG_MS, min_bytes=1)
    assert read == [0, 1, 2] and len(consumers.manager.purgatory) == 1
    consumers.append(1)
    consumers.look()
    assert read == [0, 1, 2, 1] and len(consumers.asked[-1].answers) == 1
    consumers.close()
