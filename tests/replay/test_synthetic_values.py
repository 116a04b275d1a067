"""Values of a given size and compressibility, made without Spark."""

from __future__ import annotations

import gzip

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from kbroker.replay.synthetic_values import make_values  # noqa: E402

pytestmark = pytest.mark.spark

SIZES = st.lists(st.one_of(st.integers(0, 40), st.integers(500, 1100)), max_size=30)


def values(sizes: list[int], seeds: list[int], ratio: float) -> list[bytes]:
    made: list[bytes] = make_values(np.array(sizes, np.int64), np.array(seeds, np.uint64), ratio).to_pylist()
    return made


@settings(deadline=None)
@given(sizes=SIZES, ratio=st.floats(0, 1), data=st.data())
def test_sizes_are_exact_and_neighbours_change_nothing(sizes: list[int], ratio: float, data: st.DataObject) -> None:
    """A replay would send other bytes than the trace had, or other ones when it is partitioned in another way."""
    seeds = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(sizes), max_size=len(sizes)))
    together = values(sizes, seeds, ratio)
    assert [len(value) for value in together] == sizes
    assert [values([size], [seed], ratio)[0] for size, seed in zip(sizes, seeds, strict=True)] == together


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("size", [100, 1000, 50_000])
def test_compression_leaves_what_was_asked_for(size: int, ratio: float) -> None:
    """A replay would load broker and network with batches of another size than the recorded traffic."""
    count = 500_000 // size
    data = b"".join(values([size] * count, list(range(count)), ratio))
    assert len(zstandard.compress(data)) / len(data) == pytest.approx(ratio, abs=0.04)
    assert len(gzip.compress(data)) / len(data) == pytest.approx(ratio, abs=0.05)


def test_each_seed_has_its_own_value() -> None:
    """Records would compress against each other, and checksums could not tell them apart."""
    assert len(set(values([64] * 1000, list(range(1000)), 0.3))) == 1000
