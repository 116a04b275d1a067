"""CRC-32C against published values, another implementation and its own portable form.

Also of `kbroker._fast.base.build_facts`.
"""

from __future__ import annotations

import crc32c as other
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.base.crc32c import crc32c, crc32c_portable

# RFC 3720, B.4, and the check value of the CRC catalogue.
PUBLISHED = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_published_values(data: bytes, expected: int) -> None:
    """Every batch would be refused, or a damaged one taken, if the polynomial were another."""
    assert crc32c(data) == expected
    assert crc32c_portable(data) == expected


@pytest.mark.parametrize("size", [*range(70), 255, 767, 768, 769, 6143, 6144, 6145, 16384, 300_001])
def test_every_block_size(size: int) -> None:
    """Batches of certain sizes alone would fail where blocks of the fast path meet."""
    data = bytes((index * 7 + index // 251) & 0xFF for index in range(size))
    assert crc32c(data) == other.crc32c(data) == crc32c_portable(data)
    assert crc32c(memoryview(data)[3:]) == other.crc32c(data[3:])


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_in_pieces(data: bytes, cut: int) -> None:
    """A checksum taken in pieces, as recovery does, would differ from that of the whole."""
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)
    assert crc32c_portable(data[cut:], crc32c_portable(data[:cut])) == crc32c(data)
