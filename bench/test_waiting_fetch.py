"""A consumer at the end of a log: its fetch waits, a record comes, and the fetch is answered.

What both ways take of the loop's time, without the network: decoding the request, planning it, keeping it until its
time is up, looking at it again after the append, and the answer's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kbroker.clock import SystemClock
from kbroker.handlers.fetch import FetchResponse, handle_fetch
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.partition import Partition
from kbroker.schemas import message
from kbroker.storage.filesystem import SYSTEM_FILES
from kbroker.storage.unified_log import UnifiedLog
from tests.storage.batches import append, batch, environment, open_log

VERSION = 12
ROUNDS, TIMES = 100, 100
FetchRequest: Any = message("FetchRequest")


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Iterator[UnifiedLog]:
    opened = open_log(tmp_path / "log", env=environment(SYSTEM_FILES))
    append(opened, batch([b"x" * 100]))
    yield opened
    opened.close(clean=False)


def request_at(offset: int) -> bytes:
    row = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="topic", partitions=[row])
    asked = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic])
    return bytes(FetchRequest.program(VERSION).encode(asked))


@pytest.mark.benchmark(group="a fetch that waits, and is answered")
def test_wait_and_answer(benchmark: Any, log: UnifiedLog) -> None:
    image: Any = SimpleNamespace(leader_epoch=0, isr=(1,), replicas=(1,))
    partition = Partition("topic", 0, bytes(16), log, 1, image)
    end = log.log_end_offset
    append(log, batch([b"x" * 100]))
    loop = uvloop.new_event_loop()
    looks: list[Any] = []
    purgatory = FetchPurgatory(SimpleNamespace(call_soon=looks.append, call_later=loop.call_later))  # type: ignore[arg-type]
    services = SimpleNamespace(
        replica_manager=SimpleNamespace(partition=lambda name, index: partition, purgatory=purgatory),
        fetch_sessions=FetchSessionCache(0),
        clock=SystemClock(),
        fetch_max_bytes=50 << 20,
    )
    decode = FetchRequest.program(VERSION).decode
    encode = FetchResponse.program(VERSION).encode_response
    answers: list[Any] = []
    ctx: Any = SimpleNamespace(
        services=services,
        api_version=VERSION,
        open=True,
        abandoned=None,
        respond=lambda answer: answers.append(encode(answer, 1, True)),
    )
    frame = request_at(end)

    def run() -> None:
        log.high_watermark = log.local.log_end_offset = end
        assert handle_fetch(ctx, decode(frame, 0, len(frame))) is None
        log.high_watermark = log.local.log_end_offset = end + 1
        purgatory.mark(partition)
        looks.pop()()
        answers.pop()

    benchmark.pedantic(run, rounds=ROUNDS, iterations=TIMES)
    loop.close()
