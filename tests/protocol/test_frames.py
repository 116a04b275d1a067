"""Whole frames and header versions."""

from __future__ import annotations

import pytest

from kbroker._fast.wire.codec import DecodeError
from kbroker.protocol.api import ApiKey, is_flexible, request_header_version, response_header_version
from kbroker.protocol.frames import decode_request_header, decode_response, encode_request, encode_request_parts
from kbroker.schemas import message, request_message, request_schema, response_message, response_schema


def test_every_api_has_a_request_and_an_answer_of_the_same_versions() -> None:
    """An API could be asked in a version that has no answer."""
    for key in ApiKey:
        asked, answered = request_schema(key), response_schema(key)
        assert (asked.api_key, asked.kind, answered.api_key, answered.kind) == (key, "request", key, "response")
        assert asked.versions == answered.versions
        for version in range(asked.min_version, asked.max_version + 1):
            assert asked.is_flexible(version) == answered.is_flexible(version) == is_flexible(key, version), asked.name


def test_header_versions_are_kafkas() -> None:
    """The body of every request would be read from the wrong byte."""
    assert [request_header_version(ApiKey.PRODUCE, version) for version in (0, 8, 9)] == [1, 1, 2]
    assert [response_header_version(ApiKey.PRODUCE, version) for version in (0, 8, 9)] == [0, 0, 1]
    assert [request_header_version(ApiKey.CONTROLLED_SHUTDOWN, version) for version in (0, 1, 3)] == [0, 1, 2]
    assert [request_header_version(ApiKey.API_VERSIONS, version) for version in (2, 3)] == [1, 2]
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in (2, 3)] == [0, 0]
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    for unknown in (-1, 93, 1000):
        with pytest.raises(KeyError):
            request_header_version(unknown, 0)


@pytest.mark.parametrize("client_id", [None, "", "cli€nt"])
def test_requests_come_back(client_id: str | None) -> None:
    """Our own tools and replication could not talk to any broker."""
    for key in ApiKey:
        request = request_message(key)
        for version in (request.min_version, request.max_version):
            payload = encode_request(key, version, 77, client_id, request())
            assert int.from_bytes(payload[:4], "big") == len(payload) - 4
            header = decode_request_header(payload[4:])
            assert header[:3] == (key, version, 77)
            has_client_id = request_header_version(key, version) > 0
            assert header.client_id == (client_id if has_client_id else None)
            assert request.program(version).decode(payload, 4 + header.size) == request()
            for size in range(header.size):
                with pytest.raises(DecodeError):
                    decode_request_header(payload[4 : 4 + size])


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_records_leave_as_they_are_in_parts_of_the_same_frame(version: int) -> None:
    """Every megabyte that a job writes would be copied twice on its way out, or the frame would be another."""
    request = request_message(ApiKey.PRODUCE)
    batches = [bytearray(b"a" * 100_000), memoryview(b"b" * 7), b"", None, b"c" * 200]
    rows = [request.PartitionProduceData(index=number, records=batch) for number, batch in enumerate(batches)]
    topics = [request.TopicProduceData(name=name, partition_data=rows) for name in ("one", "two")]
    body = request(acks=-1, timeout_ms=1000, topic_data=topics)
    parts = encode_request_parts(ApiKey.PRODUCE, version, 5, "me", body)
    frame = encode_request(ApiKey.PRODUCE, version, 5, "me", body)
    header = decode_request_header(frame[4:])
    assert b"".join(parts) == frame
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4 + header.size :] == request.program(version).encode(body)
    for batch in batches:
        assert sum(part is batch for part in parts) == (2 if batch else 0)


def test_headers_agree_with_kafkas_schema() -> None:
    """The header is written by hand for speed and could drift from its table."""
    header = message("RequestHeader")
    values = header(request_api_key=3, request_api_version=12, correlation_id=5, client_id="me")
    payload = encode_request(3, 12, 5, "me", message("MetadataRequest")())
    assert payload[4:].startswith(header.program(2).encode(values))


def test_answers_come_back() -> None:
    """Our own tools could not read what they asked for."""
    for key in ApiKey:
        response = response_message(key)
        for version in (response.min_version, response.max_version):
            flexible = response_header_version(key, version) == 1
            frame = response.program(version).encode_response(response(), -3, flexible)
            assert isinstance(frame, bytes)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            assert decode_response(response, version, frame[4:]) == (-3, response())
    with pytest.raises(DecodeError):
        decode_response(response, version, b"\0\0\0")


def test_tagged_fields_of_headers_are_passed_over() -> None:
    """A client that adds a header field would be cut off."""
    request = message("ApiVersionsRequest")
    body = request.program(3).encode(request(client_software_name="x"))
    payload = b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01c" + b"\x02\x00\x01a\x80\x01\x02bc" + body
    header = decode_request_header(payload)
    assert request.program(3).decode(payload, header.size).client_software_name == "x"
    with pytest.raises(DecodeError):
        decode_request_header(payload[:11] + b"\x01\x00\x7f")
    with pytest.raises(DecodeError):
        decode_request_header(payload[:11] + b"\xff\xff\xff\xff\xff\x01")
