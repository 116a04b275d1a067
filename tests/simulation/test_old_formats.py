"""What model clients of old versions write and read: the formats, and that the judge sees what is not in them."""

from __future__ import annotations

import struct

import pytest

from kbroker._fast.records.stored_header import read_stored_header
from kbroker.records.down_conversion import down_convert
from tests.simulation.old_formats import MalformedMessageError, compressed, decompressed, encode_messages, read_messages
from tests.simulation.records import MalformedBatchError, encode_batch, read_batches

VALUES = [b"a", b"b" * 300, b""]
CODECS = (0, 1, 2, 3)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_are_read_as_they_were_written(magic: int, codec: int) -> None:
    """The model would take its own faults for the broker's."""
    data = encode_messages(VALUES, 1000, magic=magic, codec=codec)
    assert [(offset, value) for offset, _, value in read_messages(data)] == list(enumerate(VALUES))
    batches = list(read_batches(data))
    assert [each.magic for each in batches] == [magic] * (1 if codec else 3)
    assert [value for each in batches for _, value in each.values] == VALUES


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_what_a_broker_converts_is_read(magic: int, codec: int) -> None:
    """Converted records could be misread, or the broken header of lz4 in magic 0 be taken for damage."""
    data = encode_batch(VALUES, 1000, codec=codec)
    converted, _ = down_convert(memoryview(data), read_stored_header(data, 0, check_crc=True), magic, 0)
    assert [value for each in read_batches(bytes(converted)) for _, value in each.values] == VALUES


def test_damage_is_seen() -> None:
    """Bytes of another message could be taken for the right ones."""
    data = bytearray(encode_messages([b"value"], 0, magic=1))
    data[-1] ^= 1
    with pytest.raises(MalformedMessageError):
        list(read_messages(bytes(data)))
    with pytest.raises(MalformedBatchError):
        list(read_batches(data))
    wrong = bytearray(encode_messages(VALUES, 0, magic=0, codec=1))
    struct.pack_into(">q", wrong, 0, 7)
    with pytest.raises(MalformedMessageError):
        list(read_messages(bytes(wrong)))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_every_codec_goes_both_ways(codec: int) -> None:
    """A batch in one of them would never be looked into."""
    data = b"".join(VALUES) * 1000
    assert decompressed(compressed(data, codec), codec) == data
