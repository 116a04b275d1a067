"""Fetches answered from their bytes, one after the other through a log: where each begins, and what it holds."""

from __future__ import annotations

import bisect
import itertools
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.requests.targets_read import TargetsRead
from kbroker.errors import ErrorCode
from kbroker.handlers.records.fetch import FetchResponse
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.handlers.fast_reads import NAME, FastReader
from tests.handlers.frames import plain
from tests.storage.batches import append, batch, environment, headers, open_log

FOLLOWER = 2


@pytest.mark.parametrize("limit", [1, 300, 20_000, 45_000, 200_000])
def test_a_reader_from_front_to_back_gets_all_that_the_log_has(tmp_path: Path, limit: int) -> None:
    """A consumer would miss records, get some twice, or get the bytes of a file that lie beside them."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    reader = FastReader(log)
    rng = random.Random(limit)
    for _ in range(150):
        append(log, batch([rng.randbytes(rng.choice([1, 50, 400, 9_000, 30_000])) for _ in range(rng.randint(1, 3))]))
    content = Path(log.local.segments.active.path).read_bytes()
    batches = headers(content)
    starts = list(itertools.accumulate((info.size_in_bytes for info in batches), initial=0))
    at = 0
    while at < len(batches):
        end = min(max(starts[at] + limit, starts[at + 1]), len(content))
        found = reader.read(batches[at].base_offset, limit)
        assert found is None or bytes(found.records) == content[starts[at] : end]
        at = bisect.bisect_right(starts, end) - 1
    # Only where an answer is sent without being looked at it is not known what follows.
    assert reader.alone <= 2 or limit > 49_152
    assert reader.kinds == {bytes, list}
    log.close(clean=False)


def test_a_partition_that_a_client_may_not_read_is_refused_alone(tmp_path: Path) -> None:
    """A client would read what it may not, or lose the partitions that it may."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    append(log, batch([b"first"]))
    append(log, batch([b"second"]))
    reader = FastReader(log)
    reader.services.replica_manager.purgatory = None
    targets = [FetchTarget("events", bytes(16), index, 0, 1 << 20, -1, -1) for index in (3, 4)]
    targets[1].refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    read = TargetsRead(reader.direct.rules, reader.services, 11, 77, -1, False, 1000, 1, 1 << 20, targets, None, False)
    read.begin()
    assert read.look(2) and read.is_enough(False)
    frame = plain(read.write(3))[8:]
    rows = FetchResponse.program(11).decode(frame, 0, len(frame)).responses[0].partitions
    assert [(row.partition_index, row.error_code, row.high_watermark) for row in rows] == [(3, 0, 2), (4, 29, -1)]
    assert b"second" in bytes(rows[0].records) and not bytes(rows[1].records)
    log.close(clean=False)


def test_a_follower_is_sent_one_range_of_a_file_for_each_partition(tmp_path: Path) -> None:
    """A leader would copy what its followers read, or make a system call for each batch of it."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    for _ in range(10):
        append(log, batch([b"v" * 20_000]))
    reader = FastReader(log)
    partition = reader.services.replica_manager.topics[NAME][3]
    partition.replicas = (1, FOLLOWER)
    partition.purgatory = SimpleNamespace(soon=lambda call: None, mark=lambda partition: None)
    reader.services.replica_manager.sent_to_follower = lambda *sent: None
    target = FetchTarget(NAME, bytes(16), 3, 2, 1 << 20, -1, -1, 0)
    read = TargetsRead(
        reader.direct.rules, reader.services, 11, 77, FOLLOWER, False, 1000, 1, 1 << 20, [target], None, False
    )
    read.begin()
    assert read.look(1) and read.is_enough(False)
    frame = read.write(2)
    assert isinstance(frame, list)
    assert [part.size for part in frame if isinstance(part, FileRegion)] == [log.size_bytes * 8 // 10]
    assert partition.followers[FOLLOWER].log_end_offset == 2
    log.close(clean=False)
