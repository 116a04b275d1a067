"""Consumers that know no record batches: what Kafka 3.9.1 gives them kbroker does, within bounds of memory."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.frames import encode_request
from kbroker.records.batch import Record, RecordBatchBuilder
from kbroker.records.compression import Codec
from kbroker.schemas import message
from tests.broker.client import Batch, Client, build, fetch_values, scrape, until
from tests.compat.message_sets import PLAIN, cases, kafka_answers
from tests.compat.old_fetches import RECORD, TOPICS, answers
from tests.conftest import BrokerProcess, StartBroker
from tests.records.stored import encode_messages, stored_batches

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
LIMIT_BYTES = 24 << 20
UNSUPPORTED_COMPRESSION_TYPE = 76


@pytest.fixture(name="found", scope="module")
def _found(module_broker: BrokerProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(answers(module_broker.port)))
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_old_consumers_get_what_kafka_gives_them(found: dict[str, Any], topic: str) -> None:
    """Consumers of 0.8 to 0.10 would get records twice, others, none, or bytes that they cannot read."""
    names = [name for name in RECORDED if name.startswith(f"{topic} v")]
    assert names
    for name in names:
        assert found[name] == RECORDED[name], name


@pytest.mark.kafka
def test_the_record_is_what_kafka_answers() -> None:
    """The test above would hold kbroker to what no Kafka does."""
    assert kafka_answers(answers) == RECORDED


def test_a_message_that_does_not_fit_is_told_by_a_part_of_one(module_broker: BrokerProcess) -> None:
    """An old consumer would ask for ever, as it learns of its too small fetch size by a part of a message."""
    with Client(module_broker.port) as client:
        client.create("does-not-fit")
        client.write("does-not-fit", dict(cases())["batch none"])
        for version in range(3):
            for limit in (5, 12, 40):
                answer = client.fetch("does-not-fit", version, limit=limit)
                data = bytes(answer.records)
                assert 0 < len(data) <= limit
                assert len(data) < 12 or struct.unpack_from(">i", data, 8)[0] + 12 > limit


@pytest.mark.parametrize("version", range(4))
def test_an_old_consumer_waits_for_records(module_broker: BrokerProcess, version: int) -> None:
    """It would ask in a loop, or be told of new records only when its time is up."""
    topic = f"waits-{version}"
    with Client(module_broker.port) as client, Client(module_broker.port) as producer:
        client.create(topic)
        began = time.monotonic()
        assert bytes(client.fetch(topic, version, wait_ms=100).records) == b""
        assert time.monotonic() - began >= 0.09
        client.send("Fetch", version, fetch_values(topic, wait_ms=20_000))
        until(lambda: scrape(module_broker.metrics_url)["kbroker_fetches_waiting"] == 1, "the fetch to wait")
        producer.write(topic, dict(cases())["batch none"])
        data = bytes(client.answer("Fetch", version).responses[0].partitions[0].records)
        assert data == encode_messages(PLAIN, 0 if version < 2 else 1, 0)


def test_an_old_consumer_that_leaves_waits_no_longer(module_broker: BrokerProcess) -> None:
    """Consumers that come back again and again would each leave a fetch behind, for as long as they wanted to wait."""
    with Client(module_broker.port) as client:
        client.create("leaves")
        client.send("Fetch", 2, fetch_values("leaves", wait_ms=600_000))
        until(lambda: scrape(module_broker.metrics_url)["kbroker_fetches_waiting"] == 1, "the fetch to wait")
        client.reset()
    until(lambda: scrape(module_broker.metrics_url)["kbroker_fetches_waiting"] == 0, "the fetch to end")


@pytest.mark.parametrize("version", range(4))
def test_what_cannot_be_converted_is_told_at_once(module_broker: BrokerProcess, version: int) -> None:
    """A consumer would learn that it cannot read a topic only when the time is up that it wanted to wait."""
    topic = f"zstd-{version}"
    with Client(module_broker.port) as client:
        client.create(topic)
        client.write(topic, Batch(codec=4).encoded())
        row = client.fetch(topic, version, wait_ms=600_000)
        assert (row.error_code, bytes(row.records)) == (UNSUPPORTED_COMPRESSION_TYPE, b"")


def test_conversions_are_counted(kbroker_process: StartBroker) -> None:
    """An operator could not tell that old clients cost the broker its time."""
    broker = kbroker_process()
    sound = dict(cases())
    with Client(broker.port) as client:
        client.create("counted")
        client.produce("counted", sound["v1 none"], 2)
        client.produce("counted", sound["v0 gzip"], 2)
        client.produce("counted", sound["batch none"], 9)
        client.fetch("counted", 3)
        client.fetch("counted", 3, offset=6)
        found = scrape(broker.metrics_url)
    assert found["kbroker_produce_message_conversions_total"] == 6
    assert found["kbroker_fetch_message_conversions_total"] == 9
    assert found["kbroker_produce_message_conversions_seconds_total"] > 0
    assert found["kbroker_fetch_message_conversions_seconds_total"] > 0
    assert found["kbroker_converted_bytes"] == 0


def test_what_slow_consumers_asked_for_is_held_within_bounds(kbroker_process: StartBroker) -> None:
    """Old consumers that read slowly would fill the broker's memory, and keep other old consumers out."""
    broker = kbroker_process({"socket.send.buffer.bytes": "16384"})
    with Client(broker.port) as client:
        client.create("large")
        builder = RecordBatchBuilder(0)
        for _ in range(9):
            builder.append(None, bytes(100_000), 1_700_000_000_000)
        for _ in range(12):
            client.write("large", bytes(builder.build()))
        body = build(message("FetchRequest"), fetch_values("large", limit=50 << 20))
        stalled = []
        highest = 0.0
        for number in range(40):
            connection = socket.create_connection(("127.0.0.1", broker.port), 20)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(encode_request(1, 2, number, "slow", body))
            stalled.append(connection)
            if number % 8 == 0:
                highest = max(highest, scrape(broker.metrics_url)["kbroker_converted_bytes"])
        # None of them reads, so what is converted for the first of them stays.
        until(lambda: scrape(broker.metrics_url)["kbroker_converted_bytes"] > 0, "a conversion")
        highest = max(highest, scrape(broker.metrics_url)["kbroker_converted_bytes"])
        assert 0 < highest <= LIMIT_BYTES
        # Another one, which reads, gets through all of it meanwhile.
        found: list[int] = []
        while not found or found[-1] < 107:
            answer = client.fetch("large", 2, offset=found[-1] + 1 if found else 0, limit=1 << 20, wait_ms=100)
            found += [info.last_offset for _, info in whole(bytes(answer.records))]
        assert found == list(range(108))
        for connection in stalled:
            connection.close()
        until(lambda: scrape(broker.metrics_url)["kbroker_converted_bytes"] == 0, "the memory to be free again")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_many_large_compressed_fetches_at_once_take_little_memory(kbroker_process: StartBroker, codec: int) -> None:
    """A broker on a small machine would be killed for want of memory when old consumers catch up."""
    broker = kbroker_process()
    status = Path(f"/proc/{broker.pid}/status")
    batches, count = 6, 24
    with Client(broker.port) as client:
        client.create("packed")
        for _ in range(batches):
            builder = RecordBatchBuilder(0, codec)
            for _ in range(250):
                # A batch is less than 1 MB, and holds 8.
                builder.append(None, os.urandom(2048) + bytes(30720), 1_700_000_000_000)
            client.write("packed", bytes(builder.build()))
        body = build(message("FetchRequest"), fetch_values("packed", limit=50 << 20))
        connections = [socket.create_connection(("127.0.0.1", broker.port), 200) for _ in range(count)]
        before = int(status.read_text().split("VmRSS:")[1].split()[0])
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
        held = 0.0
        for number, connection in enumerate(connections):
            connection.sendall(encode_request(1, 2, number, "much", body))
        for connection in connections:
            held = max(held, scrape(broker.metrics_url)["kbroker_converted_bytes"])
            with connection.makefile("rb") as answer:
                size = int.from_bytes(answer.read(4), "big")
                assert len(answer.read(size)) == size
            connection.close()
        most = int(status.read_text().split("VmHWM:")[1].split()[0])
        grown = (most - before) * 1024
        assert grown + held <= 64_000_000, (grown, held)


def whole(data: bytes) -> Any:
    """The whole messages of an answer, which may end with a part of one."""
    from kbroker._fast.records.record_batch import TruncatedBatchError

    try:
        yield from stored_batches(data)
    except TruncatedBatchError:
        return


def test_others_are_served_while_much_is_converted(kbroker_process: StartBroker) -> None:
    """One old consumer would hold up everybody for as long as its records are unpacked and packed again."""
    broker = kbroker_process()
    with Client(broker.port) as client, Client(broker.port) as old:
        client.create("converted")
        builder = RecordBatchBuilder(0, 1)
        for at in range(2000):
            builder.append(b"%d" % at, b"%d" % at * 100, 1_700_000_000_000)
        for _ in range(20):
            client.write("converted", bytes(builder.build()))
        done = threading.Event()

        def fetch_all() -> None:
            offset = 0
            while offset < 40_000:
                answer = old.fetch("converted", 2, offset=offset, limit=8 << 20)
                offset = [info.last_offset for _, info in whole(bytes(answer.records))][-1] + 1
            done.set()

        thread = threading.Thread(target=fetch_all)
        thread.start()
        served = 0
        while not done.is_set():
            client.ask("ApiVersions", 0, {})
            served += 1
        thread.join()
        assert served > 20


def test_records_of_all_kinds_survive_conversion_down_and_up(module_broker: BrokerProcess) -> None:
    """What an old consumer reads and an old producer writes again would be other records."""
    rows = [Record(at, 1_700_000_000_000 + at % 7, None if at % 3 == 0 else b"k%d" % at, b"v" * at) for at in range(50)]
    with Client(module_broker.port) as client:
        for codec in range(4):
            there, back = f"there-{codec}", f"back-{codec}"
            client.create(there)
            client.create(back)
            builder = RecordBatchBuilder(0, codec)
            for row in rows:
                builder.append(row.key, row.value, row.timestamp)
            client.write(there, bytes(builder.build()))
            old = bytes(client.fetch(there, 3).records)
            assert {info.magic for _, info in stored_batches(old)} == {1}
            assert client.produce(back, old, 2).error_code == 0
            assert bytes(client.fetch(back, 10).records)[61:] == bytes(client.fetch(there, 10).records)[61:]
