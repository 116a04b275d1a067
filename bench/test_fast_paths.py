"""Appends and reads of the fast path beside the general ones, a fetch that waits, and what a start reads of each
partition."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import uvloop

from bench.test_codec import fetch_request, produce_request
from kbroker._fast.base.helper_pool import HelperPool
from kbroker._fast.files.directory import list_directory, read_small_file
from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.requests.fast_produce import FastProduce
from kbroker.clock import SystemClock
from kbroker.handlers.records.fetch import FAST_FETCH, handle_fetch
from kbroker.handlers.records.produce import ProduceResponse, handle_produce, versions
from kbroker.metadata.image import PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.partition import Partition
from kbroker.schemas import message
from kbroker.storage.files.filesystem import SYSTEM_FILES, DirectoryEntry
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from tests.extensions.append_groups import append_batch, append_together
from tests.extensions.direct_requests import answer_together, ask
from tests.storage.batches import START_MS, append, batch, environment, open_log
from tests.unbroken import UNBROKEN, finished

RECORDS = 150
ROUNDS, TIMES = 200, 50
ProduceRequest: Any = message("ProduceRequest")
FetchRequest: Any = message("FetchRequest")
BATCHES = 400


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Iterator[UnifiedLog]:
    opened = open_log(tmp_path / "log", env=environment(SYSTEM_FILES))
    for _ in range(BATCHES):
        append(opened, batch([b"x" * 100] * RECORDS))
    yield opened
    opened.close(clean=False)


@pytest.fixture(name="data")
def _data() -> bytearray:
    return batch([b"x" * 100])


@pytest.mark.benchmark(group="append: one record")
def test_append_fast(benchmark: Any, log: UnifiedLog, data: bytearray) -> None:
    start = bytes(data[:16])
    view = memoryview(data)

    def run() -> None:
        view[:16] = start
        if append_batch(log, view, 0, START_MS) < 0:
            append(log, data)  # the next blocks have to be reserved

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES)


@pytest.mark.benchmark(group="append: one record")
def test_append_general(benchmark: Any, log: UnifiedLog, data: bytearray) -> None:
    start = bytes(data[:16])
    view = memoryview(data)

    def run() -> None:
        view[:16] = start
        log.append_as_leader(view, 0)
        log.maybe_increment_high_watermark(log.log_end_offset)

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES)


@pytest.mark.parametrize("together", [True, False], ids=["one write", "ten writes"])
@pytest.mark.benchmark(group="append: ten batches of 150 records")
def test_append_ten_batches(benchmark: Any, log: UnifiedLog, together: bool) -> None:
    group = [batch([b"x" * 100] * RECORDS) for _ in range(10)]
    starts = [bytes(data[:16]) for data in group]
    views = [memoryview(data) for data in group]

    def run() -> None:
        for view, start in zip(views, starts, strict=True):
            view[:16] = start
        for pieces in [views] if together else [[view] for view in views]:
            for view, offset in zip(pieces, append_together(log, pieces, 0, START_MS), strict=True):
                if offset is None:  # the next blocks have to be reserved
                    log.append_as_leader(view, 0)

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES // 10)


@pytest.fixture(name="services")
def _services(log: UnifiedLog) -> Any:
    image = PartitionImage(0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    partition = Partition("topic", 0, bytes(16), log, 1, image, Mock())
    topics = {"topic": {0: partition}}
    find = {"partition": lambda name, index: topics[name][index], "replica": lambda name, index: topics[name][index]}
    manager = SimpleNamespace(topics=topics, names={}, selector=None, traffic=None, isr_changes=None, **find)

    def append_and_commit(at: Partition, view: Any, origin: Any, analyzed: Any, guard: Any = None) -> Any:
        result = at.log.append_as_leader(view, 0, analyzed=analyzed)
        at.appended()
        return result

    manager.append = append_and_commit
    return SimpleNamespace(replica_manager=manager, clock=SystemClock(), loop=None, slices=UNBROKEN)


@pytest.mark.benchmark(group="produce: one record")
def test_produce_direct(benchmark: Any, services: Any, log: UnifiedLog, data: bytearray) -> None:
    frame = bytearray(produce_request(9, 1, bytes(data)))
    start = bytes(frame)
    direct = FastProduce(frozenset(), SystemClock, versions(), handle_produce)

    def run() -> None:
        frame[:] = start
        if ask(direct, services, 9, 1, frame) is None:
            append(log, bytearray(data))

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES)


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.benchmark(group="produce: ten requests of 15 KB that came together, each for a log of its own")
def test_produce_together(benchmark: Any, services: Any, tmp_path: Path, threads: int) -> None:
    """With `threads`, a thread helps the loop where another processor has nothing to do."""
    names = [f"topic-{number}" for number in range(10)]
    image = PartitionImage(0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    logs = [open_log(tmp_path / name, env=environment(SYSTEM_FILES)) for name in names]
    for name, log in zip(names, logs, strict=True):
        append(log, batch())
        services.replica_manager.topics[name] = {0: Partition(name, 0, bytes(16), log, 1, image, Mock())}
    data = bytes(batch([b"x" * 100] * RECORDS))
    starts = [produce_request(9, 1, data, name) for name in names]
    frames = [bytearray(start) for start in starts]
    asked = [(9, 1, frame) for frame in frames]
    direct, helper_pool = FastProduce(frozenset(), SystemClock, versions(), handle_produce), HelperPool(threads)

    def run() -> None:
        for frame, start in zip(frames, starts, strict=True):
            frame[:] = start
        for number, answer in enumerate(answer_together(direct, services, asked, helper_pool)):
            if answer is None:  # the next blocks have to be reserved
                append(logs[number], bytearray(data))

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES // 10)
    helper_pool.close()
    for log in logs:
        log.close(clean=False)


@pytest.mark.parametrize("partitions", [1, 8, 64])
@pytest.mark.benchmark(group="produce: 64 batches of 15 KB, in requests of so many partitions")
def test_produce_of_partitions(benchmark: Any, services: Any, tmp_path: Path, partitions: int) -> None:
    """Requests of so many partitions each, as producers of many partitions send them."""
    image = PartitionImage(0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    logs = [open_log(tmp_path / str(number), env=environment(SYSTEM_FILES)) for number in range(64)]
    for log in logs:
        append(log, batch())
    services.replica_manager.topics["topic"] = {
        number: Partition("topic", number, bytes(16), log, 1, image, Mock()) for number, log in enumerate(logs)
    }
    records = bytes(batch([b"x" * 100] * RECORDS))
    rows = [ProduceRequest.PartitionProduceData(index=number, records=records) for number in range(64)]
    encode = ProduceRequest.program(9).encode
    starts = [
        encode(
            ProduceRequest(
                acks=1,
                topic_data=[ProduceRequest.TopicProduceData(name="topic", partition_data=rows[at : at + partitions])],
            )
        )
        for at in range(0, 64, partitions)
    ]
    frames = [bytearray(start) for start in starts]
    direct = FastProduce(frozenset(), SystemClock, versions(), handle_produce)

    def run() -> None:
        for frame, start in zip(frames, starts, strict=True):
            frame[:] = start
            if type(ask(direct, services, 9, 1, frame)) is not bytes:  # the next blocks have to be reserved
                for log in logs:
                    append(log, bytearray(records))

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES // 10)
    for log in logs:
        log.close(clean=False)


@pytest.mark.benchmark(group="produce: one record")
def test_produce_decoded(benchmark: Any, services: Any, log: UnifiedLog, data: bytearray) -> None:
    """Through structs and the general append: what a request that is not plain takes."""
    frame = bytearray(produce_request(9, 1, bytes(data)))
    start = bytes(frame)
    decode = ProduceRequest.program(9).decode
    encode = ProduceResponse.program(9).encode_response
    ctx: Any = SimpleNamespace(gate=None, services=services, api_version=9, client_id="c")

    def run() -> None:
        frame[:] = start
        encode(finished(handle_produce(ctx, decode(frame, 0, len(frame)))), 1, True)

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "decoded"])
@pytest.mark.benchmark(group="fetch: waits, and is answered")
def test_fetch_that_waits(benchmark: Any, services: Any, log: UnifiedLog, direct: bool) -> None:
    """A consumer at the end of a log: it is read, its time is kept, it is looked at after an append, and answered."""
    end = log.log_end_offset
    append(log, batch([b"x" * 100]))
    loop, looks, answers = uvloop.new_event_loop(), [], []
    only_timers: Any = SimpleNamespace(call_soon=looks.append, call_later=loop.call_later)
    manager = services.replica_manager
    partition, manager.purgatory = manager.partition("topic", 0), FetchPurgatory(only_timers)
    services.fetch_sessions, services.fetch_max_bytes = FetchSessionCache(0), 50 << 20
    decode = FetchRequest.program(12).decode
    ctx: Any = SimpleNamespace(gate=None, services=services, api_version=12, correlation_id=1, open=True, waiting=None)
    ctx.respond_frame = answers.append
    frame = bytearray(fetch_request(12, end))

    def run() -> None:
        log.high_watermark = log.local.log_end_offset = end
        if direct:
            ask(FAST_FETCH, services, 12, 1, frame).begin(ctx)
        else:
            handle_fetch(ctx, decode(frame, 0, len(frame))).begin(ctx)
        log.high_watermark = log.local.log_end_offset = end + 1
        manager.purgatory.mark(partition)
        looks.pop()()
        answers.pop()

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES)
    loop.close()


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "decoded"])
@pytest.mark.benchmark(group="fetch: 1,000 partitions by name, one of them with a record")
def test_fetch_of_many(benchmark: Any, services: Any, log: UnifiedLog, direct: bool) -> None:
    """`log` stands for each partition's; the consumer has read all but the last batch of the first."""
    image = PartitionImage(0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    partitions = {index: Partition("topic", index, bytes(16), log, 1, image, Mock()) for index in range(1000)}
    services.replica_manager.topics["topic"] = partitions
    services.fetch_sessions, services.fetch_max_bytes = FetchSessionCache(0), 50 << 20
    end = log.log_end_offset
    rows = [
        FetchRequest.FetchPartition(
            partition=index, fetch_offset=end if index else end - RECORDS, partition_max_bytes=1 << 20
        )
        for index in range(1000)
    ]
    asked = FetchRequest(max_bytes=50 << 20, topics=[FetchRequest.FetchTopic(topic="topic", partitions=rows)])
    frame = bytearray(FetchRequest.program(12).encode(asked))
    decode = FetchRequest.program(12).decode
    ctx: Any = SimpleNamespace(gate=None, services=services, api_version=12, correlation_id=1, open=True, waiting=None)

    def run() -> Any:
        if direct:
            return ask(FAST_FETCH, services, 12, 1, frame)
        return handle_fetch(ctx, decode(frame, 0, len(frame)))

    assert benchmark(run) is not None


@pytest.mark.parametrize("partitions", [1, 8, 64])
@pytest.mark.benchmark(group="fetch: 64 partitions of 15 KB each, in requests of so many")
def test_fetch_of_partitions(benchmark: Any, services: Any, log: UnifiedLog, partitions: int) -> None:
    """`log` stands for each partition's; the last batch of each is wanted."""
    image = PartitionImage(0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    services.replica_manager.topics["topic"] = {
        index: Partition("topic", index, bytes(16), log, 1, image, Mock()) for index in range(64)
    }
    services.fetch_max_bytes = 50 << 20
    rows = [
        FetchRequest.FetchPartition(
            partition=index, fetch_offset=log.log_end_offset - RECORDS, partition_max_bytes=1 << 20
        )
        for index in range(64)
    ]
    encode = FetchRequest.program(12).encode
    frames = [
        bytearray(
            encode(
                FetchRequest(
                    max_bytes=50 << 20,
                    topics=[FetchRequest.FetchTopic(topic="topic", partitions=rows[at : at + partitions])],
                )
            )
        )
        for at in range(0, 64, partitions)
    ]

    def run() -> None:
        for frame in frames:
            ask(FAST_FETCH, services, 12, 1, frame)

    benchmark(run)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "decoded"])
@pytest.mark.parametrize("partitions", [1, 1000])
@pytest.mark.benchmark(group="fetch: of a session, one of its partitions with a batch")
def test_fetch_of_a_session(benchmark: Any, services: Any, log: UnifiedLog, partitions: int, direct: bool) -> None:
    """`log` stands for each partition's; the consumer reads the first from batch to batch, and has read the others."""
    image = PartitionImage(0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    services.replica_manager.topics["topic"] = {
        index: Partition("topic", index, bytes(16), log, 1, image, Mock()) for index in range(partitions)
    }
    sessions = services.fetch_sessions = FetchSessionCache(1)
    services.fetch_max_bytes = 50 << 20
    end = log.log_end_offset
    targets = [FetchTarget("topic", bytes(16), index, end, 1 << 20, -1, -1) for index in range(partitions)]
    session = sessions.plan(0, 0, targets, [], False, 0).session
    assert session is not None
    row = FetchRequest.FetchPartition(partition=0, fetch_offset=end - RECORDS, partition_max_bytes=1 << 20)
    asked = FetchRequest(
        max_bytes=50 << 20,
        session_id=session.session_id,
        session_epoch=1,
        topics=[FetchRequest.FetchTopic(topic="topic", partitions=[row])],
    )
    frame = bytearray(FetchRequest.program(12).encode(asked))
    decode = FetchRequest.program(12).decode
    ctx: Any = SimpleNamespace(gate=None, services=services, api_version=12, correlation_id=1, open=True, waiting=None)

    def run() -> Any:
        session.epoch = 1
        if direct:
            return ask(FAST_FETCH, services, 12, 1, frame)
        return handle_fetch(ctx, decode(frame, 0, len(frame)))

    assert benchmark(run) is not None


@pytest.mark.benchmark(group="read: on from batch to batch")
def test_read_direct(benchmark: Any, services: Any, log: UnifiedLog) -> None:
    """From the request's bytes to the answer's, the records of a batch among them."""
    services.fetch_max_bytes = 50 << 20
    row = FetchRequest.FetchPartition(partition_max_bytes=1)
    topics = [FetchRequest.FetchTopic(topic="topic", partitions=[row])]
    frames = []
    for row.fetch_offset in range(0, BATCHES * RECORDS, RECORDS):
        frames.append(bytearray(FetchRequest.program(12).encode(FetchRequest(max_bytes=50 << 20, topics=topics))))

    def run() -> None:
        for frame in frames:
            ask(FAST_FETCH, services, 12, 1, frame)

    benchmark(run)


@pytest.mark.benchmark(group="read: on from batch to batch")
def test_read_general(benchmark: Any, log: UnifiedLog) -> None:
    def run() -> None:
        for offset in range(0, BATCHES * RECORDS, RECORDS):
            log.read(offset, 1, FetchIsolation.HIGH_WATERMARK, True)

    benchmark(run)


@pytest.mark.benchmark(group="a partition's directory")
def test_list_directory(benchmark: Any, log: UnifiedLog) -> None:
    assert benchmark(list_directory, log.directory, DirectoryEntry)


@pytest.mark.benchmark(group="a partition's directory")
def test_list_directory_reference(benchmark: Any, log: UnifiedLog) -> None:
    def run() -> list[tuple[str, bool, int]]:
        with os.scandir(log.directory) as entries:
            return [(entry.name, entry.is_dir(), entry.stat().st_size) for entry in entries]

    assert benchmark(run)


@pytest.mark.benchmark(group="a small file")
def test_read_small_file(benchmark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 43)
    benchmark(read_small_file, str(tmp_path / "file"))


@pytest.mark.benchmark(group="a small file")
def test_read_small_file_reference(benchmark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 43)
    benchmark(SYSTEM_FILES.read_large_file, str(tmp_path / "file"))
