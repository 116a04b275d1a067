"""How the client of other brokers cuts what it receives into frames.  Also of `kbroker.cluster.client_tcp`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cluster.client_tcp import BUFFER_BYTES, MOST_SPARE_BYTES, _FrameProtocol

LARGE = 3 * BUFFER_BYTES


class Receiving:
    """A connection whose frames are kept, as what is made of them, or as they are."""

    def __init__(self, *, keeps_views: bool = False) -> None:
        self.frames: list[Any] = []
        self._keeps_views = keeps_views
        self.protocol = _FrameProtocol(self._received, lambda _error: None, 1 << 30)

    def _received(self, frame: Any) -> None:
        self.frames.append(frame if self._keeps_views else bytes(frame))

    def receive(self, data: bytes, most: int = 1 << 20) -> None:
        at = 0
        while at < len(data):
            room = self.protocol.get_buffer(-1)
            count = min(len(room), len(data) - at, most)
            room[:count] = data[at : at + count]
            at += count
            self.protocol.buffer_updated(count)

    @property
    def room(self) -> bytearray:
        return self.protocol._room


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def body(size: int, number: int) -> bytes:
    return bytes([number % 251]) * size


@given(
    st.lists(st.sampled_from([4, 5, 300, BUFFER_BYTES - 4, BUFFER_BYTES, LARGE, 5 * LARGE]), max_size=8),
    st.integers(1, 2 * BUFFER_BYTES),
    st.booleans(),
)
def test_frames_come_as_they_were_sent_however_they_are_split(sizes: list[int], most: int, keeps_views: bool) -> None:
    """A replica would take bytes of another answer for its leader's records."""
    receiving = Receiving(keeps_views=keeps_views)
    bodies = [body(size, number) for number, size in enumerate(sizes)]
    receiving.receive(framed(*bodies), max(most, 100))
    assert [bytes(each) for each in receiving.frames] == bodies


def test_a_large_frame_gets_the_memory_of_the_last_one_only_where_nothing_of_that_is_in_use() -> None:
    """Each fetch of a follower would fill new memory with zeros; or records be overwritten before they are appended."""
    receiving = Receiving(keeps_views=True)
    receiving.receive(framed(body(LARGE, 1)))
    room = receiving.room
    part = receiving.frames.pop()[10:20]
    receiving.receive(framed(body(LARGE, 2)))
    assert receiving.room is not room
    assert bytes(part) == body(10, 1)
    room = receiving.room
    receiving.frames.clear()
    receiving.receive(framed(body(LARGE - 100, 3)))
    assert receiving.room is room
    assert bytes(receiving.frames.pop()) == body(LARGE - 100, 3)


def test_memory_of_large_frames_goes_where_the_connection_has_no_use_for_it() -> None:
    """An idle broker would keep megabytes for each of its leaders."""
    receiving = Receiving()
    receiving.receive(framed(body(LARGE, 1)))
    assert len(receiving.room) >= LARGE
    receiving.receive(framed(body(20, 2)))
    assert not receiving.room
    receiving.receive(framed(body(MOST_SPARE_BYTES + 1, 3)))
    assert not receiving.room
    assert receiving.frames[-1] == body(MOST_SPARE_BYTES + 1, 3)
