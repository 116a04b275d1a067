"""Zigzag varints against the slow reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.base.varint import encode_varint, read_varint, read_varlong, varint_size
from tests.records import reference

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_round_trip_of_64_bits(value: int) -> None:
    """Timestamps of records would change between writer and reader."""
    data = encode_varint(value)
    assert data == reference.encode_varint(value)
    assert len(data) == varint_size(value)
    assert read_varlong(b"\xff\xff" + data + b"\x00", 2) == (value, 2 + len(data))


@given(INT32)
def test_round_trip_of_32_bits(value: int) -> None:
    """Lengths of keys and values would change between writer and reader."""
    data = encode_varint(value)
    assert read_varint(data) == (value, len(data))


@given(st.binary(max_size=12))
def test_any_bytes_read_like_the_reference(data: bytes) -> None:
    """Hostile varints would be read as another number than the one that was judged."""
    for read, bits in ((read_varint, 32), (read_varlong, 64)):
        try:
            expected = reference.decode_varint(data, 0, bits)
        except reference.MalformedError:
            with pytest.raises(ValueError, match="varint"):
                read(data)
        else:
            assert read(data) == expected


@pytest.mark.parametrize("pos", [-1, 4])
def test_position_outside(pos: int) -> None:
    """A wrong position would read foreign memory."""
    with pytest.raises(ValueError, match="outside"):
        read_varint(b"abc", pos)
