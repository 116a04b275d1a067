"""Fetches answered from their bytes, one after the other through a log: where each begins, and what it holds."""

from __future__ import annotations

import bisect
import itertools
import random
from pathlib import Path

import pytest

from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.handlers.fast_reads import FastReader
from tests.storage.batches import append, batch, environment, headers, open_log


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
