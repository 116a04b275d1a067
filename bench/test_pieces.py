"""What large requests cost in pieces, and small ones for the chance to be large: `pytest bench/test_pieces.py`."""

from __future__ import annotations

from typing import Any

from kbroker._fast.base.slices import Slices
from kbroker._fast.wire.disposal import Disposal
from kbroker._fast.wire.encoding import Encoding
from kbroker.network.pieces import PIECE_ITEMS
from kbroker.schemas import message

TOPICS = 20_000


def _request() -> bytes:
    request = message("MetadataRequest")
    topics = [request.MetadataRequestTopic(name=f"topic-{number:06d}") for number in range(TOPICS)]
    return bytes(request.program(8).encode(request(topics=topics)))


def _answer() -> Any:
    response = message("MetadataResponse")
    return response(topics=[response.MetadataResponseTopic(name=f"topic-{number:06d}") for number in range(TOPICS)])


def test_decode_one_piece(benchmark: Any) -> None:
    """What the loop is held for by one piece of a large request."""
    program, payload = message("MetadataRequest").program(8), _request()

    def begun() -> tuple[tuple[Any, int], dict[str, Any]]:
        return (program.decoding(payload), PIECE_ITEMS), {}

    benchmark.pedantic(lambda decoding, items: decoding.run(items), setup=begun, rounds=50)


def test_encode_one_piece(benchmark: Any) -> None:
    program, answer = message("MetadataResponse").program(8), _answer()

    def begun() -> tuple[tuple[Any, int], dict[str, Any]]:
        encoding = program.begin_response(answer, 7, False, 1)
        assert isinstance(encoding, Encoding)
        return (encoding, PIECE_ITEMS), {}

    benchmark.pedantic(lambda encoding, items: encoding.run(items), setup=begun, rounds=50)


def test_free_one_piece(benchmark: Any) -> None:
    def begun() -> tuple[tuple[Any, int], dict[str, Any]]:
        return (Disposal([_answer()]), PIECE_ITEMS), {}

    benchmark.pedantic(lambda disposal, items: disposal.run(items), setup=begun, rounds=20)


def test_await_pace(benchmark: Any) -> None:
    """A thousand steps within a slice: what each item of a small request pays."""
    slices = Slices(None, 3_600_000_000)

    async def steps() -> None:
        pace = slices.pace()
        for _ in range(1_000):
            await pace

    def run() -> None:
        try:
            steps().send(None)
        except StopIteration:
            return

    benchmark(run)
