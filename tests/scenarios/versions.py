"""Version negotiation and requests that no broker should choke on."""

from __future__ import annotations

import struct
from typing import Any

from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import message
from tests.scenarios.batches import T0, message_set_v1
from tests.scenarios.normal import ZERO_UUID
from tests.scenarios.session import Session, scenario
from tests.scenarios.wire import Closed, Wire, api_name, build

# What this broker promises; Kafka serves more, and the answer on record is reduced to these.
PROMISED = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 32, 33, 37, 42, 44, 47, 60, 61, 75)


def ranges(answer: Any) -> dict[str, Any]:
    """The advertised versions of the promised APIs."""
    rows = [row for row in answer.api_keys if row.api_key in PROMISED]
    return {
        "error_code": answer.error_code,
        "api_keys": {api_name(row.api_key): f"{row.min_version}-{row.max_version}" for row in rows},
    }


@scenario
def api_versions_in_each_version(s: Session) -> None:
    names = {"client_software_name": "scenario", "client_software_version": "1.0"}
    for version in range(5):
        answer = s.quietly("ApiVersions", version, **(names if version >= 3 else {}))
        s.record(f"v{version}", ranges(answer))


@scenario
def api_versions_from_the_future(s: Session) -> None:
    """A v99 request is answered in the oldest version, with error 35 and the key list."""
    request = message("ApiVersionsRequest")
    body = build(request, {"client_software_name": "scenario", "client_software_version": "1.0"})
    frame = bytearray(encode_request(18, 4, 7, "scenario", body))
    struct.pack_into(">h", frame, 6, 99)
    s.wire.send_raw(bytes(frame))
    payload = s.wire.receive()
    correlation_id, answer = decode_response(message("ApiVersionsResponse"), 0, payload)
    rows = [[row.api_key, row.min_version, row.max_version] for row in answer.api_keys]
    own = [row for row in rows if row[0] == 18]
    s.record("v99", {"error_code": answer.error_code, "correlation_id": correlation_id, "ApiVersions": own})
    s.record("the connection lives on", ranges(s.quietly("ApiVersions", 0)))


@scenario
def api_versions_with_bad_software_names(s: Session) -> None:
    for step, name, version in (
        ("space", "bad name", "1.0"),
        ("empty", "", "1.0"),
        ("empty version", "ok", ""),
        ("trailing dash", "bad-", "1.0"),
        ("leading dot", ".bad", "1.0"),
        ("not ascii", "naïve", "1.0"),
        ("dots and dashes within", "a.b-c", "1.0-rc.1"),
    ):
        answer = s.quietly("ApiVersions", 3, client_software_name=name, client_software_version=version)
        s.record(step, {"error_code": answer.error_code, "has_keys": bool(answer.api_keys)})


@scenario
def unknown_apis_and_versions(s: Session) -> None:
    """What is not served closes the connection; ApiVersions alone is answered."""
    for step, api_key, version in (
        ("unknown api", 999, 0),
        ("negative api", -1, 0),
        ("metadata v99", 3, 99),
        ("metadata v-1", 3, -1),
        ("fetch v3", 1, 3),
        ("list offsets v0", 2, 0),
        ("create topics v1", 19, 1),
        ("heartbeat v9", 12, 9),
    ):
        s.wire.send_body(api_key, version, b"\0" * 32)
        s.record(step, closed(s))


@scenario
def produce_versions_of_the_old_formats(s: Session) -> None:
    """Produce v0 to v2 are advertised, for librdkafka's sake, and what then happens to one."""
    s.create("old-produce")
    records = message_set_v1(b"k", b"v", T0)
    for version in range(3):
        values = {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [{"name": "old-produce", "partition_data": [{"index": 0, "records": records}]}],
        }
        s.ask(f"v{version}", "Produce", version, **values)


@scenario
def frames_that_are_wrong(s: Session) -> None:
    """Wrong lengths and cut-off bodies end the connection and nothing else."""
    for step, data in (
        ("negative length", struct.pack(">i", -1)),
        ("length zero", struct.pack(">i", 0)),
        ("length over the limit", struct.pack(">i", 2_000_000_000)),
        ("header cut off", struct.pack(">ihh", 4, 18, 0)),
        ("body cut off", struct.pack(">ihhih", 10, 3, 9, 5, -1)),
        ("array count beyond the frame", struct.pack(">ihhihi", 14, 3, 1, 5, -1, 0x7FFFFFF)),
        ("negative string length", struct.pack(">ihhihih", 16, 3, 1, 5, -1, 1, -1)),
        ("an HTTP client", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("a TLS client", bytes.fromhex("1603010200010001fc0303") + bytes(64)),
    ):
        s.wire.send_raw(data)
        s.record(step, closed(s))


@scenario
def trailing_bytes_are_ignored(s: Session) -> None:
    """As sent by librdkafka, whose Metadata request for all topics is three bytes too long."""
    s.wire.send_body(3, 9, bytes.fromhex("00000000010000"), flexible=True)
    s.record("metadata", "answered" if s.wire.receive() else "")
    s.wire.send_body(18, 0, b"\x01\x02\x03")
    s.record("api versions", ranges(decode_response(message("ApiVersionsResponse"), 0, s.wire.receive())[1]))


@scenario
def pipelined_requests_are_answered_in_order(s: Session) -> None:
    """Requests sent at once, the slow one first: its answer comes first all the same."""
    s.create("pipelined")
    fetch = fetch_request("pipelined", max_wait_ms=300)
    wire = Wire(s.port)
    first = encode_request(1, 11, 1, "scenario", build(message("FetchRequest"), fetch))
    second = encode_request(18, 0, 2, "scenario", build(message("ApiVersionsRequest"), {}))
    wire.send_raw(first + second + second.replace(struct.pack(">i", 2), struct.pack(">i", 3)))
    s.record("correlation ids", [struct.unpack(">i", wire.receive()[:4])[0] for _ in range(3)])
    wire.close()


def fetch_request(topic: str, max_wait_ms: int) -> dict[str, Any]:
    """A Fetch of one empty partition that waits."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "topics": [{"topic": topic, "topic_id": ZERO_UUID, "partitions": [partition]}],
    }


def closed(s: Session) -> str:
    """Whether the broker hangs up; dials anew either way."""
    try:
        s.wire.receive()
    except Closed:
        return "connection closed"
    except TimeoutError:
        return "no answer"
    else:
        return "answered"
    finally:
        s.redial()
