"""Fetches answered from their bytes, one after the other through a log: where each begins, and what it holds."""

from __future__ import annotations

import bisect
import itertools
import random
from pathlib import Path

import pytest

from kbroker.handlers.fetch import ORDINARY as FETCH
from kbroker.storage.log.log_values import FetchIsolation
from tests.handlers.test_direct_answers import Side, fetch, fetched, plain
from tests.storage.batches import append, batch, headers


@pytest.mark.parametrize("limit", [1, 300, 20_000, 45_000, 200_000])
def test_a_reader_from_front_to_back_gets_all_that_the_log_has(tmp_path: Path, limit: int) -> None:
    """A consumer would miss records, get some twice, or get the bytes of a file that lie beside them."""
    side = Side(tmp_path)
    rng = random.Random(limit)
    for _ in range(150):
        append(
            side.log, batch([rng.randbytes(rng.choice([1, 50, 400, 9_000, 30_000])) for _ in range(rng.randint(1, 3))])
        )
    content = Path(side.log.local.segments.active.path).read_bytes()
    batches = headers(content)
    starts = list(itertools.accumulate((info.size_in_bytes for info in batches), initial=0))
    at, kinds, handled = 0, set(), 0
    while at < len(batches):
        offset = batches[at].base_offset
        frame = FETCH.ask(side.services, 12, 77, fetch(12, offset, partition_max_bytes=limit))
        end = min(max(starts[at] + limit, starts[at + 1]), len(content))
        if frame is None:
            handled += 1
            side.log.read(offset, limit, FetchIsolation.HIGH_WATERMARK, True)
        else:
            kinds.add(type(frame))
            assert plain(frame) == fetched(12, content[starts[at] : end], side.log.log_end_offset)
        at = bisect.bisect_right(starts, end) - 1
    assert handled <= 2 or limit > 49_152, (
        "only where an answer is sent without being looked at it is not known what follows"
    )
    assert kinds == ({list} if limit == 1 else {bytes, list})
    side.log.close(clean=False)
