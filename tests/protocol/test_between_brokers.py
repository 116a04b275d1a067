"""Frames that Apache Kafka 3.9.1 brokers and controllers sent each other, captured by a proxy in a ZooKeeper cluster.

Each line of the file: API, version, request or response, inter.broker.protocol.version, what it shows, header and body
in hex.
"""

from __future__ import annotations

import gzip
import pathlib
from typing import Any

import pytest

from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.protocol.frames import decode_request_header, decode_response, encode_request
from kbroker.schemas import request_message, response_message

FRAMES = pathlib.Path(__file__).parent / "vectors" / "between-brokers-3.9.1.tsv.gz"
KEYS = {key.message_name: key for key in ApiKey}


def frames() -> list[Any]:
    with gzip.open(FRAMES, "rt") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [
        pytest.param(KEYS[api], int(version), kind, bytes.fromhex(data), id=f"{api}-{version}-{kind}-{note}-{ibp}")
        for api, version, kind, ibp, note, data in rows
    ]


@pytest.mark.parametrize(("api_key", "version", "kind", "data"), frames())
def test_a_captured_frame_comes_back_in_the_same_bytes(api_key: ApiKey, version: int, kind: str, data: bytes) -> None:
    """A broker of ours could not be a member of a cluster of Kafka's."""
    if kind == "request":
        header = decode_request_header(data)
        assert (header.api_key, header.api_version) == (api_key, version)
        body = request_message(api_key).program(version).decode(data, header.size)
        again = encode_request(api_key, version, header.correlation_id, header.client_id, body)
        assert again[4:] == data
    else:
        correlation_id, body = decode_response(response_message(api_key), version, data)
        program = response_message(api_key).program(version)
        again = program.encode_response(body, correlation_id, response_header_version(api_key, version) > 0)
        joined = again if isinstance(again, bytes) else b"".join(bytes(part) for part in again)
        assert joined[4:] == data


def test_every_version_that_a_controller_sends_was_captured() -> None:
    """A version without a vector may be wrong without notice."""
    found = {(row.values[0], row.values[1]) for row in frames() if row.values[2] == "request"}
    wanted = {
        ApiKey.LEADER_AND_ISR: {0, 1, 2, 4, 5, 6, 7},
        ApiKey.STOP_REPLICA: {0, 1, 2, 3, 4},
        ApiKey.UPDATE_METADATA: {0, 1, 2, 3, 4, 5, 6, 7, 8},
        ApiKey.FETCH: {11, 12, 17},
    }
    assert {(key, version) for key, versions in wanted.items() for version in versions} <= found
