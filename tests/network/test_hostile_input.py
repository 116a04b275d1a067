"""Input that no client should send, against a running broker: a clear refusal, one log line, nothing stored.

The error codes are those of Apache Kafka 4.3.1 for the same bytes, with these exceptions: it takes offset deltas out
of order, and answers UNKNOWN_SERVER_ERROR to unknown or wrongly named codecs.

After each test the shared broker must still serve a well-behaved client, and what it had stored must be unchanged.
"""

from __future__ import annotations

import gzip
import hashlib
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient

TOPIC = "kept"
LOG_INTERVAL_SECONDS = 10
"""How often the log has a line of each kind at most."""


def stored(broker: BrokerProcess) -> dict[str, str]:
    """A digest of each log file of the topic."""
    paths = sorted(broker.data_dir.glob(f"{TOPIC}-*/*.log"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


class Stalls:
    """Measures the longest time for which a thread that does next to nothing has waited for a processor."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(0.01):
            now = time.monotonic()
            self.longest_seconds = max(self.longest_seconds, now - before)
            before = now

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def waited_seconds(pid: int) -> float:
    """How long a process's first thread was ready and had no processor, where the system tells it."""
    path = Path(f"/proc/{pid}/task/{pid}/schedstat")
    return int(path.read_text().split()[1]) / 1e9 if path.exists() else 0.0


@pytest.fixture(scope="module")
def stalls() -> Iterator[Stalls]:
    found = Stalls()
    yield found
    found.end()


@pytest.fixture(scope="module")
def victim(module_broker: BrokerProcess, stalls: Stalls) -> BrokerProcess:
    raw.create_topic(module_broker.port, TOPIC, 2)
    with RawClient(module_broker.port) as client:
        assert raw.produce_answer(client.ask(raw.produce(TOPIC, 0, raw.good_batch())))[0] == raw.NONE
    # The files of a partition that nothing has asked for yet are made in the broker's spare time.
    assert raw.end_offset(module_broker.port, TOPIC, 1) == 0
    return module_broker


@pytest.fixture(autouse=True)
def _unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    if "victim" not in request.fixturenames:
        yield
        return
    broker: BrokerProcess = request.getfixturevalue("victim")
    before = stored(broker)
    yield
    assert broker.running, broker.output()
    with RawClient(broker.port) as client:
        assert client.ask(raw.api_versions())[4:6] == b"\0\0"
    assert stored(broker) == before
    assert raw.end_offset(broker.port, TOPIC) == 3


def complaints(broker: BrokerProcess, text: str) -> int:
    return sum(text in line for line in broker.output().splitlines())


FOREIGN = {
    "negative length": (b"\xff\xff\xff\xff", "cannot have -1 bytes"),
    "zero length": (b"\0\0\0\0", "cannot have 0 bytes"),
    "length without a header": (b"\0\0\0\x07" + bytes(7), "cannot have 7 bytes"),
    "over the limit": (struct.pack(">i", 104857601), "is over socket.request.max.bytes=104857600"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "looks like an HTTP request"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "looks like an HTTP request"),
    "TLS": (bytes.fromhex("1603010200010001fc0303") + bytes(200), "looks like a TLS handshake"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2p1\r\n", "is over socket.request.max.bytes"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_first_bytes_that_are_no_frame_close_the_connection(
    name: str, kbroker_process: Callable[..., BrokerProcess]
) -> None:
    """Whoever points a browser, a probe or a TLS client at the port would never learn why it doesn't work."""
    broker = kbroker_process()
    data, said = FOREIGN[name]
    with RawClient(broker.port) as client:
        assert client.closed_after(data)
    with RawClient(broker.port) as client:
        assert client.ask(raw.api_versions())[4:6] == b"\0\0"
    assert complaints(broker, said) == 1, broker.output()


def test_a_flood_of_bad_frames_is_one_log_line(victim: BrokerProcess) -> None:
    """A scanner could fill the disk with log lines."""
    before, begin = len(victim.output().splitlines()), time.monotonic()
    for _ in range(300):
        with RawClient(victim.port) as client:
            assert client.closed_after(b"\xff\xff\xff\xff")
    intervals = 1 + (time.monotonic() - begin) // LOG_INTERVAL_SECONDS
    assert len(victim.output().splitlines()) - before <= 2 * intervals, victim.output()


def test_every_kind_of_refused_request_is_in_the_log(kbroker_process: Callable[..., BrokerProcess]) -> None:
    """Of four APIs that clients miss an operator would see one."""
    broker = kbroker_process()
    refused = [(53, 0), (53, 1), (54, 0), (52, 0), (raw.METADATA, 99)]
    malformed = [(raw.METADATA, 1), (raw.METADATA, 8)]
    frames = [raw.framed(struct.pack(">hhih", api, version, 1, -1)) for api, version in (*refused, *malformed)]
    for frame in 3 * (*frames, *(data for data, _ in FOREIGN.values())):
        with RawClient(broker.port) as client:
            assert client.closed_after(frame)
    for api, version in refused:
        assert complaints(broker, f"API {api} version {version} is not served") == 1, broker.output()
    for api, version in malformed:
        assert complaints(broker, f"malformed request: API {api} version {version}: ") == 1, broker.output()
    for said in ("looks like an HTTP request", "looks like a TLS handshake", "is over socket.request.max.bytes"):
        assert complaints(broker, said) == 1, broker.output()


HEADERS = {
    "unknown API": raw.framed(struct.pack(">hhih", 999, 0, 1, -1)),
    "negative API": raw.framed(struct.pack(">hhih", -1, 0, 1, -1)),
    "API of controllers": raw.framed(struct.pack(">hhih", 52, 0, 1, -1)),
    "unknown version": raw.framed(struct.pack(">hhih", raw.METADATA, 99, 1, -1)),
    "negative version": raw.framed(struct.pack(">hhih", raw.METADATA, -1, 1, -1)),
    "client id longer than the frame": raw.framed(struct.pack(">hhih", raw.METADATA, 1, 1, 32767) + b"x"),
    "no client id": raw.framed(struct.pack(">hhi", raw.METADATA, 1, 1)),
    "tagged fields longer than the frame": raw.framed(
        struct.pack(">hhih", raw.METADATA, 9, 1, -1) + b"\xff\xff\xff\xff\x0f"
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_cannot_be_served_closes_the_connection(name: str, victim: BrokerProcess) -> None:
    """A broken client would wait for an answer that never comes."""
    with RawClient(victim.port) as client:
        assert client.closed_after(HEADERS[name])


def test_an_unknown_version_of_api_versions_is_answered(victim: BrokerProcess) -> None:
    """A client newer than the broker could not fall back to a version that both know."""
    with RawClient(victim.port) as client:
        body = b"\0" + raw.uvarint(2) + b"a" + raw.uvarint(2) + b"b" + b"\0"
        answer = client.ask(raw.framed(struct.pack(">hhih", raw.API_VERSIONS, 99, 7, -1) + body))
        # Version 0: the error and, as only row, the versions of ApiVersions itself.
        assert answer == struct.pack(">ihihhh", 7, 35, 1, raw.API_VERSIONS, 0, 4)
        assert client.ask(raw.api_versions(8))[:6] == struct.pack(">ih", 8, 0)


INT_MAX = 0x7FFFFFFF
BODIES = {
    "array of two billion": raw.request(raw.METADATA, 1, struct.pack(">i", INT_MAX)),
    "negative array": raw.request(raw.METADATA, 0, struct.pack(">i", -2)),
    "null where an array must be": raw.request(raw.CREATE_TOPICS, 2, struct.pack(">i", -1) + bytes(5)),
    "string longer than the frame": raw.request(raw.METADATA, 1, struct.pack(">ih", 1, 32767) + b"x"),
    "negative string": raw.request(raw.METADATA, 1, struct.pack(">ih", 1, -2)),
    "text that is no UTF-8": raw.request(raw.METADATA, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "compact array of two billion": raw.request(raw.METADATA, 9, b"\xff\xff\xff\xff\x07" + bytes(8), flexible=True),
    "varint that never ends": raw.request(raw.METADATA, 9, b"\xff" * 12, flexible=True),
    "records longer than the frame": raw.request(
        raw.PRODUCE, 7, struct.pack(">hhii", -1, 1, 1000, 1) + raw.string(TOPIC) + struct.pack(">iii", 1, 0, INT_MAX)
    ),
    "empty body": raw.request(raw.PRODUCE, 7, b""),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_lies_closes_the_connection(name: str, victim: BrokerProcess) -> None:
    """One request could take all memory, or be answered as if it said something else."""
    memory = raw.scrape(victim.metrics_url)["process_resident_memory_bytes"]
    with RawClient(victim.port) as client:
        assert client.closed_after(BODIES[name]), "answered"
    assert raw.scrape(victim.metrics_url)["process_resident_memory_bytes"] - memory < 32 << 20


def test_cut_and_damaged_requests_never_take_the_broker_down(victim: BrokerProcess) -> None:
    """A network fault or a fuzzer could end the process, or store something."""
    requests = (
        raw.produce("absent", 0, raw.good_batch()),
        raw.fetch(TOPIC, 0, 0),
        raw.request(raw.METADATA, 9, b"\x02" + raw.uvarint(5) + b"kept\0\0\0\0\0", flexible=True),
        raw.request(
            11,
            5,
            raw.string("g")
            + struct.pack(">ii", 10, 10)
            + raw.string("")
            + b"\xff\xff"
            + raw.string("consumer")
            + struct.pack(">i", 1)
            + raw.string("range")
            + struct.pack(">i", 4)
            + b"meta",
        ),
        raw.request(8, 5, raw.string("g") + struct.pack(">i", -1) + raw.string("") + struct.pack(">i", 0)),
    )
    source = random.Random(20)
    for whole in requests:
        payload = whole[4:]
        damaged = [payload[:size] for size in range(8, len(payload))]
        for _ in range(150):
            copy = bytearray(payload)
            for _ in range(source.randint(1, 3)):
                copy[source.randrange(4, len(copy))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
            damaged.append(bytes(copy))
        for each in damaged:
            with RawClient(victim.port) as client:
                client.send(raw.framed(each))
                client.socket.shutdown(1)
                client.read()


RECORDS = (raw.record(0, b"a"), raw.record(1, b"b"), raw.record(2, b"c"))
PAYLOAD = b"".join(RECORDS)
LIES: dict[str, tuple[bytes, int]] = {
    "wrong checksum": (raw.batch(PAYLOAD, 3, crc_xor=1), raw.CORRUPT_MESSAGE),
    "one record more than there is": (raw.batch(PAYLOAD, 4), raw.INVALID_RECORD),
    "one record less than there is": (raw.batch(PAYLOAD, 2), raw.INVALID_RECORD),
    "two billion records": (raw.batch(PAYLOAD, INT_MAX), raw.INVALID_RECORD),
    "negative count": (raw.batch(PAYLOAD, -5, last_offset_delta=2), raw.INVALID_RECORD),
    "no records": (raw.batch(b"", 0, last_offset_delta=0), raw.INVALID_RECORD),
    "last offset beyond the records": (raw.batch(PAYLOAD, 3, last_offset_delta=9), raw.INVALID_RECORD),
    "offsets out of order": (raw.batch(RECORDS[1] + RECORDS[0] + RECORDS[2], 3), raw.INVALID_RECORD),
    "an offset twice": (raw.batch(RECORDS[0] + RECORDS[0] + RECORDS[2], 3), raw.INVALID_RECORD),
    "record length too long": (raw.batch(RECORDS[0] + RECORDS[1] + b"\x7e" + RECORDS[2][1:], 3), raw.INVALID_RECORD),
    "record of negative length": (raw.batch(RECORDS[0] + b"\x01" + RECORDS[1][1:], 2), raw.INVALID_RECORD),
    "batch length beyond the request": (raw.batch(PAYLOAD, 3, length_plus=1000), raw.INVALID_RECORD),
    "batch length too small": (raw.batch(PAYLOAD, 3, length_plus=-40), raw.CORRUPT_MESSAGE),
    "negative batch length": (raw.batch(PAYLOAD, 3, length_plus=-1000), raw.CORRUPT_MESSAGE),
    "unknown magic": (raw.batch(PAYLOAD, 3, magic=9), raw.CORRUPT_MESSAGE),
    "two batches": (raw.good_batch() + raw.good_batch(), raw.INVALID_RECORD),
    "half a batch": (raw.good_batch()[:40], raw.INVALID_RECORD),
    "unknown codec": (raw.batch(PAYLOAD, 3, attributes=5), 76),
    "a control batch from a client": (raw.batch(PAYLOAD, 3, attributes=0x20), raw.INVALID_RECORD),
    "compressed by name only": (raw.batch(PAYLOAD, 3, attributes=1), raw.INVALID_RECORD),
    "more than max.message.bytes": (raw.good_batch(1, bytes(1_100_000)), raw.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", LIES)
def test_a_batch_that_lies_is_refused_with_an_error(name: str, victim: BrokerProcess) -> None:
    """Consumers would stumble over it for as long as the topic keeps it."""
    records, expected = LIES[name]
    with RawClient(victim.port) as client:
        error, offset = raw.produce_answer(client.ask(raw.produce(TOPIC, 0, records)))
        assert (error, offset) == (expected, -1)
        assert client.ask(raw.api_versions(2))[:6] == struct.pack(">ih", 2, 0)


def _bomb(codec: int) -> bytes:
    """Less than 1 MB that expands as far as the codec goes: one record of zeros."""
    size = {1: 120 << 20, 2: 14 << 20, 3: 160 << 20, 4: 1000 << 20}[codec]
    body_bytes = size + len(varint_head(size)) + 1
    head = raw.varint(body_bytes) + varint_head(size)
    if codec == 1:
        return gzip.compress(head + bytes(size), 6)
    if codec == 2:
        snappy = pytest.importorskip("snappy")
        return bytes(snappy.compress(head + bytes(size)))
    if codec == 3:
        lz4 = pytest.importorskip("lz4.frame")
        return bytes(lz4.compress(head + bytes(size)))
    zstandard = pytest.importorskip("zstandard")
    encoder = zstandard.ZstdCompressor().compressobj()
    parts = [encoder.compress(head)] + [encoder.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join((*parts, encoder.flush()))


def varint_head(size: int) -> bytes:
    return b"\0" + raw.varint(0) + raw.varint(0) + raw.varint(-1) + raw.varint(size)


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_decompression_bomb_is_refused(name: str, codec: int, victim: BrokerProcess) -> None:
    """A message of half a megabyte could take gigabytes of memory, or hold up all clients."""
    records = raw.batch(_bomb(codec), 1, attributes=codec)
    assert len(records) < 1 << 20
    memory = raw.scrape(victim.metrics_url)["process_resident_memory_bytes"]
    with RawClient(victim.port, timeout=60) as client:
        error, _ = raw.produce_answer(client.ask(raw.produce(TOPIC, 0, records)))
    assert error in (raw.MESSAGE_TOO_LARGE, raw.INVALID_RECORD)
    assert raw.scrape(victim.metrics_url)["process_resident_memory_bytes"] - memory < 64 << 20


def test_the_loop_was_not_held_up(victim: BrokerProcess, stalls: Stalls) -> None:
    """One hostile client could make every other one wait.  The bound is generous, the figure is printed as evidence."""
    longest = raw.scrape(victim.metrics_url)["kbroker_loop_delay_max_seconds"]
    of_machine = stalls.longest_seconds + waited_seconds(victim.pid)
    print(f"the loop was late by {longest * 1000:.1f} ms at most, the machine by {of_machine * 1000:.1f} ms")
    assert longest < 2.0 + of_machine
