"""Round trips, corruption and limits of the codec, over every message in every version.

Also of `kbroker._fast.wire.decoder`, `kbroker._fast.wire.encoder`, `kbroker._fast.wire.structs`.
"""

from __future__ import annotations

import array
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.wire.codec import DecodeError, EncodeError, Program, Struct
from kbroker.schemas import message
from tests.protocol.generate import any_struct
from tests.protocol.names import all_versions
from tests.protocol.reference import MalformedError, Reference, as_dict
from tests.protocol.vector_files import RELEASES, load

thorough = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def encodable(program: Program, struct: Struct) -> bytes | None:
    """None for the few messages whose own defaults the version cannot carry."""
    try:
        return program.encode(struct)
    except EncodeError:
        return None


@thorough
@given(any_struct())
def test_what_is_encoded_comes_back(drawn: tuple[Any, int, Any]) -> None:
    """A value would change between the broker and its clients or its own records."""
    message_class, version, struct = drawn
    program = message_class.program(version)
    encoded = encodable(program, struct)
    if encoded is not None:
        decoded, position = program.decode_from(bytearray(encoded) + b"rest")
        assert decoded == struct
        assert position == len(encoded)


@thorough
@given(any_struct())
def test_codec_agrees_with_the_reference(drawn: tuple[Any, int, Any]) -> None:
    """The codec and the format's description would read one message differently."""
    message_class, version, struct = drawn
    encoded = encodable(message_class.program(version), struct)
    if encoded is not None:
        reference = Reference(message_class.schema, version, encoded)
        assert reference.message() == as_dict(struct)
        assert reference.rest == b""


def test_every_version_carries_its_defaults() -> None:
    """A version whose program does not compile or run would fail at its first request."""
    for message_class, version in all_versions():
        program = message_class.program(version)
        assert program.decode(program.encode(message_class())) == message_class(), (message_class, version)


def agree(message_class: Any, version: int, payload: bytes) -> None:
    """Codec and reference both refuse the bytes, or read the same from them."""
    try:
        expected = Reference(message_class.schema, version, payload).message()
    except MalformedError:
        with pytest.raises(DecodeError):
            message_class.program(version).decode(payload)
        return
    found = as_dict(message_class.program(version).decode(payload))
    assert repr(found) == repr(expected), (message_class, version, payload.hex())


@pytest.mark.parametrize("release", RELEASES)
def test_flipped_bytes_never_do_more_than_fail(release: str) -> None:
    """A damaged or hostile request would crash the broker or be read past its end."""
    rng = random.Random(7)
    for message_class, version, encoded, _ in load(release):
        if len(encoded) > 0:
            for _ in range(4):
                damaged = bytearray(encoded)
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                agree(message_class, version, bytes(damaged))


def test_every_cut_of_a_request_is_refused() -> None:
    """A cut request would be taken for a whole one."""
    produce = message("ProduceRequest")
    topic = produce.TopicProduceData(
        name="t", partition_data=[produce.PartitionProduceData(index=1, records=b"records")]
    )
    for version in range(3, 13):
        program = produce.program(version)
        encoded = program.encode(produce(transactional_id="x", topic_data=[topic, topic]))
        for size in range(len(encoded)):
            with pytest.raises(DecodeError):
                program.decode(encoded[:size])
            with pytest.raises(DecodeError):
                program.decode(encoded, 0, size)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(all_versions())), st.binary(max_size=64))
def test_random_bytes_never_do_more_than_fail(pair: tuple[Any, int], payload: bytes) -> None:
    """Garbage on the port would crash the broker."""
    agree(*pair, payload)


def decode_fails(name: str, version: int, payload: bytes, *words: str) -> None:
    with pytest.raises(DecodeError) as failure:
        message(name).program(version).decode(payload)
    for word in words:
        assert word in str(failure.value)


def test_counts_are_checked_before_anything_is_allocated() -> None:
    """Six bytes could make the broker allocate gigabytes."""
    decode_fails("MetadataRequest", 1, b"\x7f\xff\xff\xff", "topics", "2147483647 items", "0 bytes")
    decode_fails("MetadataRequest", 9, b"\xff\xff\xff\xff\x07", "topics", "items")
    decode_fails("MetadataRequest", 1, b"\x00\x00\x00\x02\x00\x00", "topics", "2 items")
    decode_fails("SaslAuthenticateRequest", 0, b"\x7f\xff\xff\xff", "auth_bytes", "2147483647 bytes")


def test_a_message_of_too_many_items_is_refused() -> None:
    """A request of small structs could take fifty times its size in memory and stall everyone else."""
    topics = 2**20 + 1
    payload = topics.to_bytes(4, "big") + b"\x00\x00" * topics
    decode_fails("MetadataRequest", 1, payload, "topics", "1048576 items")
    create = message("CreateTopicsRequest")
    topic = create.CreatableTopic(name="t", configs=[create.CreatableTopicConfig(name="", value="")] * 600_000)
    decode_fails("CreateTopicsRequest", 4, create.program(4).encode(create(topics=[topic, topic])), "topics[1].configs")


def test_required_nulls_are_refused_and_any_negative_length_is_null() -> None:
    """A null would pass for an empty list; a client that writes -2 for null would be served by Kafka alone."""
    decode_fails("MetadataRequest", 0, b"\xff\xff\xff\xff", "topics", "null")
    decode_fails("MetadataRequest", 0, b"\xff\xff\xff\xfe", "topics", "null")
    decode_fails("ListGroupsRequest", 4, b"\xff\xff\xff\xff\x0f\x00", "states_filter", "null")
    for size in (b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"):
        assert message("MetadataRequest").program(1).decode(size).topics is None
    assert message("MetadataRequest").program(9).decode(b"\xff\xff\xff\xff\x0f\0\0\0\0").topics is None
    decode_fails("ListGroupsRequest", 4, b"\x00\x00", "states_filter", "null")


def test_overlong_varints_and_bad_text_are_refused() -> None:
    """A length of more than 32 bits would wrap, and broken text would reach the logs and topic names."""
    decode_fails("MetadataRequest", 9, b"\xff\xff\xff\xff\x10", "topics", "varint")
    decode_fails("MetadataRequest", 9, b"\x80\x80\x80\x80\x80\x00", "varint")
    decode_fails("MetadataRequest", 0, b"\x00\x00\x00\x01\x00\x02\xc3\x28", "topics[0].name", "UTF-8")
    huge = bytes((0x81, 0x80, 0x02)) + b"a" * 0x8000
    decode_fails("MetadataRequest", 9, b"\x02" + huge + bytes(3), "topics[0].name", "32768")


def test_tagged_fields_are_bounded_and_unknown_ones_passed_over() -> None:
    """A newer client's request would be refused, or a lying tag would reach into the next field."""
    program = message("ApiVersionsRequest").program(3)
    known = program.decode(b"\x02a\x02b\x02" + b"\x05\x01x" + b"\xc8\x01\x00")
    assert (known.client_software_name, known.client_software_version) == ("a", "b")
    decode_fails("ApiVersionsRequest", 3, b"\x02a\x02b\x01\x05\x09x", "tagged field 5")
    # Tag 0 of a Fetch request is the cluster id: its content is one byte longer than the text within.
    fetch = message("FetchRequest").program(12)
    plain = fetch.encode(message("FetchRequest")(cluster_id="x"))
    damaged = plain.replace(b"\x01\x00\x02\x02x", b"\x01\x00\x03\x02xx")
    assert damaged != plain
    decode_fails("FetchRequest", 12, damaged, "cluster_id", "left over")


def test_nullable_structs_are_read_and_written() -> None:
    """A consumer's heartbeat without assignment would look like one with an empty assignment."""
    heartbeat = message("ConsumerGroupHeartbeatResponse")
    program = heartbeat.program(0)
    assert program.decode(program.encode(heartbeat())).assignment is None
    full = heartbeat(assignment=heartbeat.Assignment(topic_partitions=[]))
    assert program.decode(program.encode(full)) == full


def test_a_nullable_struct_in_a_tagged_field_is_marked_as_kafka_does() -> None:
    """Kafka would take each member of a consumer group for one that speaks the classic protocol, or fail to read it."""
    value = message("ConsumerGroupMemberMetadataValue")
    program = value.program(0)
    # Of Apache Kafka 4.3.1: tag 0, one byte, no struct.
    kafka = b"\x00\x00\x06probe\x0b/127.0.0.1\x02\x03t1\x01\x00\x00\xea`\x00\x01\x00\x01\x00"
    read = program.decode(kafka)
    assert (read.client_id, read.classic_member_metadata) == ("probe", None)
    assert program.encode(read) == kafka
    classic = value.ClassicMemberMetadata(session_timeout_ms=7, supported_protocols=[])
    read.classic_member_metadata = classic
    assert program.encode(read).endswith(b"\x01\x00\x07\x01\x00\x00\x00\x07\x01\x00")
    assert program.decode(program.encode(read)).classic_member_metadata == classic


def test_records_share_the_receive_buffer() -> None:
    """Every produced byte would be copied once more."""
    produce = message("ProduceRequest")
    topic = produce.TopicProduceData(name="t", partition_data=[produce.PartitionProduceData(records=b"abc")])
    buffer = bytearray(produce.program(9).encode(produce(topic_data=[topic])))
    records = produce.program(9).decode(buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and bytes(records) == b"abc" and not records.readonly
    records[0] = ord("z")
    assert b"zbc" in bytes(buffer)
    for source in (memoryview(bytes(buffer)), array.array("B", bytes(buffer)), memoryview(buffer).cast("b")):
        decoded = produce.program(9).decode(source)
        assert decoded.topic_data[0].partition_data[0].records == b"zbc"
        assert decoded.topic_data[0].partition_data[0].records.format == "B"


def test_positions_outside_the_buffer_are_refused() -> None:
    """A wrong position would read memory that is not the buffer's."""
    program = message("HeartbeatRequest").program(0)
    for position, end in ((-1, None), (0, 9), (5, 4), (9, None)):
        with pytest.raises(ValueError, match="outside"):
            program.decode(b"12345678", position, end)


def encode_fails(struct: Any, version: int, *words: str) -> None:
    with pytest.raises(EncodeError) as failure:
        type(struct).program(version).encode(struct)
    for word in words:
        assert word in str(failure.value)


def test_what_a_version_cannot_carry_is_refused() -> None:
    """A value would be dropped in silence, or a wrong one sent."""
    produce = message("ProduceResponse")
    partition = produce.PartitionProduceResponse
    for bad in (2**31, "1", None, 1.5):
        topic = produce.TopicProduceResponse(name="t", partition_responses=[partition(), partition(index=bad)])
        encode_fails(produce(responses=[topic]), 9, "responses[0].partition_responses[1].index")
    encode_fails(message("FindCoordinatorRequest")(key_type=1), 0, "key_type", "default")
    encode_fails(message("MetadataRequest")(topics=None), 0, "topics", "null")
    encode_fails(message("MetadataRequest")(topics={}), 0, "topics", "list")
    encode_fails(message("HeartbeatRequest")(group_id="\ud800"), 0, "group_id", "UTF-8")
    encode_fails(message("HeartbeatRequest")(group_id="x" * 0x8000), 4, "group_id", "32768")
    encode_fails(message("SaslAuthenticateRequest")(auth_bytes="text"), 0, "auth_bytes", "bytes")
    encode_fails(message("DescribeTopicPartitionsRequest")(topics=[produce()]), 0, "topics[0]", "ProduceResponse")


def test_ignorable_fields_are_dropped_where_the_version_lacks_them() -> None:
    """A handler would have to know which fields each version has."""
    response = message("HeartbeatResponse")(throttle_time_ms=5, error_code=1)
    assert type(response).program(0).encode(response) == b"\x00\x01"


def test_a_file_region_splits_the_frame() -> None:
    """A fetch answer would carry a length that does not match its bytes, and every later answer be garbage."""
    fetch = message("FetchResponse")
    regions = [FileRegion(3, 10, 300), FileRegion(4, 0, 5)]
    for version in (4, 11, 12, 18):
        flexible = version >= 12

        def frame(records: list[Any], version: int = version, flexible: bool = flexible) -> Any:
            partitions = [fetch.PartitionData(partition_index=i, records=part) for i, part in enumerate(records)]
            answer = fetch(responses=[fetch.FetchableTopicResponse(topic="t", partitions=partitions)])
            return fetch.program(version).encode_response(answer, 77, flexible)

        parts = frame([regions[0], b"between", regions[1], None])
        assert [part for part in parts if isinstance(part, FileRegion)] == regions
        contents = {regions[0]: b"r" * 300, regions[1]: b"s" * 5}
        joined = b"".join(contents[part] if isinstance(part, FileRegion) else part for part in parts)
        assert joined == frame([b"r" * 300, b"between", b"s" * 5, None])
        assert int.from_bytes(joined[:4], "big") == len(joined) - 4
        assert isinstance(frame([FileRegion(3, 0, 0)]), bytes)


def test_a_file_region_fits_nowhere_else() -> None:
    """A request or a stored record would lose the bytes of the region."""
    produce = message("ProduceRequest")
    topic = produce.TopicProduceData(
        name="t", partition_data=[produce.PartitionProduceData(records=FileRegion(1, 0, 4))]
    )
    encode_fails(produce(topic_data=[topic]), 9, "records", "region")
    with pytest.raises(ValueError, match="file region"):
        FileRegion(-1, 0, 0)
