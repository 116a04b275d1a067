"""Messages in pieces: decoding, encoding and freeing that stop behind any item give what they give in one go.

Also of `kbroker._fast.wire.decoding`.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.wire.codec import DecodeError, EncodeError, Program, Struct
from kbroker._fast.wire.disposal import Disposal
from kbroker._fast.wire.encoding import Encoding
from kbroker.schemas import message, wire
from tests.protocol.generate import any_struct
from tests.protocol.reference import as_dict
from tests.protocol.vector_files import RELEASES, load

thorough = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PARTITIONS = 5_000


def decoded(program: Program, payload: bytes, sizes: random.Random) -> Struct:
    decoding = program.decoding(bytearray(payload))
    while not decoding.run(sizes.randrange(4)):
        pass
    struct: Struct = decoding.take()
    return struct


def encoded(program: Program, struct: Struct, sizes: random.Random) -> bytes:
    found = program.begin_response(struct, 7, True, sizes.randrange(4))
    if isinstance(found, Encoding):
        while not found.run(sizes.randrange(4)):
            pass
        found = found.take()
    return b"".join(bytes(part) for part in found) if isinstance(found, list) else found  # type: ignore[arg-type]


@thorough
@given(any_struct(), st.integers(0, 1000))
def test_pieces_give_what_one_go_gives(drawn: tuple[Any, int, Any], seed: int) -> None:
    """A large request would be served as another one than was sent."""
    message_class, version, struct = drawn
    program, sizes = message_class.program(version), random.Random(seed)
    try:
        payload = program.encode(struct)
    except EncodeError:
        return
    assert decoded(program, payload, sizes) == struct
    assert encoded(program, struct, sizes) == program.encode_response(struct, 7, True)


@st.composite
def configs(draw: st.DrawFn) -> list[Any]:
    """A list of the settings of an answer to DescribeConfigs, with lists within."""
    response = wire.DescribeConfigsResponse
    synonyms = [response.DescribeConfigsSynonym(name="s" * 70, value=draw(st.text(max_size=90)), source=1)]
    return [
        response.DescribeConfigsResourceResult(
            name=draw(st.text(max_size=60)), value="v", synonyms=draw(st.sampled_from([synonyms, [], synonyms * 2]))
        )
        for _ in range(draw(st.integers(0, 4)))
    ]


def apart_from(configs: list[Any]) -> list[Any]:
    """The same with lists of their own."""
    return [type(each)(name=each.name, value=each.value, synonyms=list(each.synonyms)) for each in configs]


@thorough
@given(st.lists(configs(), min_size=1, max_size=6), st.data(), st.integers(0, 1000), st.integers(1, 4))
def test_the_same_list_again_gives_the_same_bytes_again(
    lists: list[list[Any]], data: st.DataObject, seed: int, version: int
) -> None:
    """A topic would be shown another topic's settings, or half of its own."""
    program, sizes = wire.DescribeConfigsResponse.program(version), random.Random(seed)
    chosen = data.draw(st.lists(st.sampled_from(lists), max_size=12))

    def answer(each: Callable[[list[Any]], list[Any]]) -> Any:
        made = wire.DescribeConfigsResponse.DescribeConfigsResult
        return wire.DescribeConfigsResponse(results=[made(configs=each(some)) for some in chosen])

    apart = program.encode_response(answer(apart_from), 7, True)
    assert program.encode_response(answer(lambda some: some), 7, True) == apart
    assert encoded(program, answer(lambda some: some), sizes) == apart


@pytest.mark.parametrize("release", RELEASES)
def test_kafkas_messages_pass_in_pieces(release: str) -> None:
    """A message that Kafka sends would come out otherwise in pieces."""
    sizes = random.Random(11)
    for message_class, version, payload, _ in load(release):
        program = message_class.program(version)
        struct = decoded(program, payload, sizes)
        assert struct == program.decode(payload)
        assert encoded(program, struct, sizes) == program.encode_response(struct, 7, True)


@pytest.mark.parametrize("release", RELEASES)
def test_damage_is_refused_in_pieces_with_the_same_words(release: str) -> None:
    """A hostile request that is decoded in pieces would crash the broker, or be blamed on another field."""
    sizes = random.Random(5)
    for message_class, version, payload, _ in load(release):
        program = message_class.program(version)
        damaged = bytearray(payload)
        for _ in range(3):
            if damaged:
                damaged[sizes.randrange(len(damaged))] = sizes.randrange(256)
        cut = bytes(damaged[: sizes.randrange(len(damaged) + 1)])
        for each in (bytes(damaged), cut):
            try:
                whole = program.decode(each)
            except DecodeError as error:
                with pytest.raises(DecodeError) as caught:
                    decoded(program, each, sizes)
                assert str(caught.value) == str(error)
            else:
                assert repr(as_dict(decoded(program, each, sizes))) == repr(as_dict(whole))


def wide_answer() -> Any:
    response = message("MetadataResponse")
    partition = response.MetadataResponsePartition
    topic = response.MetadataResponseTopic(
        name="wide", partitions=[partition(partition_index=index, replica_nodes=[1]) for index in range(PARTITIONS)]
    )
    return response(topics=[topic])


def pieces(work: Any, items: int) -> int:
    count = 1
    while not work.run(items):
        count += 1
    return count


def test_a_piece_holds_no_more_than_it_may() -> None:
    """One piece would hold the loop as long as the whole message does."""
    program = message("MetadataResponse").program(1)
    answer = wide_answer()
    encoding = program.begin_response(answer, 7, False, 100)
    assert isinstance(encoding, Encoding)
    # An item and the one replica in each of its two lists.
    assert pieces(encoding, 100) >= 2 * PARTITIONS // 102
    payload = program.encode(answer)
    assert pieces(program.decoding(payload), 100) >= 2 * PARTITIONS // 102
    # Long strings count by their bytes.
    request = message("MetadataRequest")
    names = request(topics=[request.MetadataRequestTopic(name="x" * 25_600) for _ in range(50)])
    assert pieces(request.program(1).decoding(request.program(1).encode(names)), 100) >= 50


def test_large_bytes_are_not_copied() -> None:
    """Metadata of a member of 90 MB would be copied in one go, and be in memory twice."""
    request = message("JoinGroupRequest")
    program = request.program(3)
    joins = request(protocols=[request.JoinGroupRequestProtocol(name="range", metadata=bytes(2 << 20))])
    source = bytearray(program.encode(joins))
    decoding = program.decoding(source)
    while not decoding.run(1):
        pass
    metadata = decoding.take().protocols[0].metadata
    assert type(metadata) is memoryview
    assert metadata.obj is source


def test_freeing_takes_no_more_than_it_may() -> None:
    """The answer to a large request would hold the loop once more when it is freed."""
    answer = wide_answer()
    shared = answer.topics[0].partitions[7]
    before = sys.getrefcount(shared)
    roots = [answer]
    del answer
    disposal = Disposal(roots)
    assert pieces(disposal, 100) == PARTITIONS // 100 + 1
    assert sys.getrefcount(shared) == before - 1
    assert shared.replica_nodes == [1]


def test_freeing_spares_what_others_hold() -> None:
    """An answer made of structs that are kept for the next one would be taken apart."""
    answer = wide_answer()
    kept = answer.topics[0]
    roots = [answer]
    del answer
    assert pieces(Disposal(roots), 100) == 1
    assert len(kept.partitions) == PARTITIONS


def test_work_that_is_given_up_half_way_leaks_nothing() -> None:
    """A client that leaves in the middle would cost memory for good."""
    program = message("MetadataResponse").program(1)
    payload = program.encode(wide_answer())
    source = bytearray(payload)

    def begun() -> None:
        decoding = program.decoding(source)
        assert not decoding.run(100)
        encoding = program.begin_response(wide_answer(), 7, False, 100)
        assert isinstance(encoding, Encoding)
        assert not encoding.run(100)

    def grown() -> int:
        """Blocks of memory that the process holds more after twenty of them."""
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(20):
            begun()
        gc.collect()
        return sys.getallocatedblocks() - before

    begun()
    # What is lost is lost each time; what else the process does meanwhile, a thread of a test before, is not.
    assert any(grown() < 1_000 for _ in range(10))
    source.append(0)  # nobody holds it any more
