"""Produce against a running broker: every version, every codec, what is refused, and what a thread judges.

Also of `kbroker.handlers.records.partition_append`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kbroker.records.batch import Record, RecordBatchBuilder, iterate_records
from tests.broker.client import Batch, Client, produce_values, until
from tests.conftest import BrokerProcess
from tests.records.stored import encode_messages
from tests.scenarios.batches import T0, message_set_v1, summary

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
FIRST_WITH_ZSTD, FIRST_WITH_TOPIC_IDS = 7, 13
OUT_OF_RANGE_SEQUENCE, OLD_EPOCH, INVALID_RECORD, TOO_LARGE, CORRUPT = 45, 47, 87, 10, 2
UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, INVALID_TOPIC, INVALID_ACKS, INVALID_TIMESTAMP = 3, 100, 17, 21, 32
UNSUPPORTED_COMPRESSION, NO_TRANSACTIONAL_ID = 76, 53
LARGE = {"max.message.bytes": str(64 << 20)}
# Half of it compresses: more than 64 KiB on the wire goes to a thread, and a codec has something to do.
BLOCK = os.urandom(2048) + bytes(2048)

Values = Sequence[bytes | None]


def batch(values: Values, codec: int = NONE, *, timestamp: int = T0, producer: int = -1, sequence: int = -1) -> bytes:
    """A batch as a producer makes it."""
    builder = RecordBatchBuilder(
        compression=codec,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=sequence,
    )
    for number, value in enumerate(values):
        builder.append(None, value, timestamp + number)
    return bytes(builder.build())


def large(seed: int, blocks: int = 64) -> list[bytes]:
    """Values that are told apart from those of another seed, 256 KiB of them."""
    return [b"%08d-%04d-" % (seed, number) + BLOCK for number in range(blocks)]


def stored(client: Client, topic: str, offset: int = 0) -> list[bytes | None]:
    """Every value of partition 0 from an offset on, in order; offsets and checksums are checked on the way."""
    found: list[bytes | None] = []
    end = client.offset(topic)
    while offset < end:
        data = bytes(client.fetch(topic, offset=offset, limit=32 << 20).records)
        position = 0
        for row in summary(data):
            if "cut_off_after_bytes" in row:
                break
            assert row["crc_is_right"]
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            for record in iterate_records(data[position : position + size]):
                assert record.offset == offset
                found.append(record.value)
                offset += 1
            position += size
    return found


@pytest.fixture(name="client")
def _client(module_broker: BrokerProcess) -> Any:
    with Client(module_broker.port) as client:
        yield client


@pytest.mark.parametrize("version", range(3, 14))
def test_each_version_takes_each_codec(client: Client, version: int) -> None:
    """Clients of some age, or with some codec, could not produce."""
    name = f"versions-{version}"
    topic: str | bytes = client.create(name)
    topic = topic if version >= FIRST_WITH_TOPIC_IDS else name
    wanted: list[bytes | None] = []
    for codec in range(5):
        if codec == ZSTD and version < FIRST_WITH_ZSTD:
            answer = client.produce(topic, batch([b"refused"], ZSTD), version)
            assert answer.error_code == UNSUPPORTED_COMPRESSION
            continue
        values: Values = [b"%d" % codec * 300, None, b""]
        answer = client.produce(topic, batch(values, codec), version, acks=1 if codec % 2 else -1)
        assert (answer.error_code, answer.base_offset) == (0, len(wanted))
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)
        wanted += values
    assert stored(client, name) == wanted


def test_zstd_of_an_old_version_is_refused_among_other_batches(client: Client) -> None:
    """Consumers of that age would be sent what they cannot read."""
    client.create("old-zstd", 2)
    rows = [{"index": 0, "records": batch([b"no"], ZSTD)}, {"index": 1, "records": batch([b"yes"], LZ4)}]
    for offset in range(3):  # the first batch of a log does not take the fast path
        topics = [{"name": "old-zstd", "partition_data": rows}]
        answer = client.ask("Produce", 6, {"acks": 1, "timeout_ms": 1000, "topic_data": topics}).responses[0]
        found = [(each.error_code, each.base_offset) for each in answer.partition_responses]
        assert found == [(UNSUPPORTED_COMPRESSION, -1), (0, offset)]
        assert client.produce("old-zstd", batch([b"plain"])).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_acks_of_no_meaning_are_refused(client: Client, acks: int) -> None:
    """A producer would wait for a number of replicas that nobody counts."""
    topic = f"acks{acks}"
    client.create(topic)
    assert client.produce(topic, Batch(), acks=acks).error_code == INVALID_ACKS
    assert client.produce("no-such-topic", Batch(), acks=acks).error_code == UNKNOWN_TOPIC
    assert client.offset(topic) == 0


def test_acks_0_gets_no_answer_at_all(client: Client) -> None:
    """A producer that expects none would take the next answer for another request's."""
    client.create("acks-0", configs=LARGE)
    for records in (batch([b"1"]), batch(large(1), GZIP), batch([b"3"], ZSTD)):
        client.send("Produce", 9, produce_values("acks-0", records, acks=0))
    assert client.offset("acks-0") == 66
    assert client.silent()


@pytest.mark.parametrize("records", [Batch(lies={"crc": 1}).encoded(), batch(large(1), GZIP)[:-1] + b"x"])
def test_acks_0_and_a_failure_close_the_connection_after_what_was_answered(client: Client, records: bytes) -> None:
    """The producer would never learn that its records are lost, or lose answers it is owed as well."""
    topic = f"acks-0-fails-{len(records)}"
    client.create(topic, configs=LARGE)
    client.send("Produce", 9, produce_values(topic, Batch()))
    client.send("Produce", 9, produce_values(topic, records, acks=0))
    client.send("Produce", 9, produce_values(topic, Batch()))
    client._correlation_id = 2
    assert client.answer("Produce", 9).responses[0].partition_responses[0].base_offset == 0
    assert client.hung_up()


def test_what_is_not_there_is_refused(client: Client) -> None:
    """A producer would believe that its records are stored."""
    topic_id = client.create("known")
    codes = [
        client.produce("never", Batch()).error_code,
        client.produce("known", Batch(), partition=1).error_code,
        client.produce("known", Batch(), partition=-1).error_code,
        client.produce(b"\1" * 16, Batch(), 13).error_code,
        client.produce(bytes(16), Batch(), 13).error_code,
        client.produce(topic_id, Batch(), 13, partition=7).error_code,
    ]
    assert codes == [UNKNOWN_TOPIC] * 3 + [UNKNOWN_TOPIC_ID] * 2 + [UNKNOWN_TOPIC]
    assert client.produce(topic_id, Batch(), 13).base_offset == 0


def test_clients_do_not_write_internal_topics(client: Client) -> None:
    """Any client could forge the offsets of any group."""
    client.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    assert client.produce("__consumer_offsets", Batch()).error_code == INVALID_TOPIC
    assert client.produce("__consumer_offsets", batch(large(1), GZIP)).error_code == INVALID_TOPIC


REFUSED: dict[str, tuple[bytes | None, int]] = {
    "null": (None, INVALID_RECORD),
    "empty": (b"", INVALID_RECORD),
    "cut": (Batch().encoded()[:-1], INVALID_RECORD),
    "two batches": (Batch().encoded() * 2, INVALID_RECORD),
    "two large batches": (batch(large(1), GZIP) * 2, INVALID_RECORD),
    "crc": (Batch(lies={"crc": 1}).encoded(), CORRUPT),
    "crc of a large one": (batch(large(1), LZ4)[:-1] + b"x", CORRUPT),
    "magic 0": (Batch(magic=0).encoded(), INVALID_RECORD),
    "magic 1": (message_set_v1(b"k", b"v", T0), INVALID_RECORD),
    "magic 1, large": (message_set_v1(b"k", b"v" * 100_000, T0), INVALID_RECORD),
    "control": (Batch(attributes=0x20).encoded(), INVALID_RECORD),
    "transactional": (Batch(attributes=0x10).encoded(), NO_TRANSACTIONAL_ID),
    "producer without a sequence": (Batch(producer_id=9, producer_epoch=0).encoded(), INVALID_RECORD),
    "the same, large": (batch(large(1), GZIP, producer=9), INVALID_RECORD),
    "count": (Batch(lies={"records_count": 2, "last_offset_delta": 1}).encoded(), INVALID_RECORD),
    "not gzip": (Batch(codec=GZIP, lies={"payload": b"no" * 50_000}).encoded(), INVALID_RECORD),
    "not zstd": (Batch(codec=ZSTD, lies={"payload": b"no" * 50_000}).encoded(), INVALID_RECORD),
    "too large": (batch([bytes(1 << 21)]), TOO_LARGE),
    "too large, compressed": (batch([os.urandom(1 << 21)], GZIP), TOO_LARGE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_batch_changes_nothing(client: Client, name: str) -> None:
    """Readers of the partition would meet bytes that nobody can read."""
    records, code = REFUSED[name]
    topic = "refused-" + name.replace(" ", "-").replace(",", "")
    client.create(topic)
    client.write(topic, Batch([(b"k", b"before")]))
    answer = client.produce(topic, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert client.write(topic, Batch([(b"k", b"after")])) == 1
    assert stored(client, topic) == [b"before", b"after"]


def test_one_bad_partition_does_not_hold_back_the_others(client: Client) -> None:
    """One corrupt batch would cost a producer everything it sent with it."""
    client.create("several", 4, LARGE)
    rows = [
        {"index": 0, "records": batch(large(1), ZSTD)},
        {"index": 1, "records": batch(large(2), GZIP)[:-1] + b"x"},
        {"index": 9, "records": batch(large(3), GZIP)},
        {"index": 2, "records": Batch(lies={"crc": 3}).encoded()},
        {"index": 3, "records": Batch().encoded()},
    ]
    topics = [{"name": "several", "partition_data": rows}]
    answer = client.ask("Produce", 9, {"acks": -1, "timeout_ms": 1000, "topic_data": topics}).responses[0]
    found = [(each.index, each.error_code, each.base_offset) for each in answer.partition_responses]
    assert found == [(0, 0, 0), (1, CORRUPT, -1), (9, UNKNOWN_TOPIC, -1), (2, CORRUPT, -1), (3, 0, 0)]
    assert [client.offset("several", partition=index) for index in range(4)] == [64, 0, 0, 1]


def test_more_replicas_in_sync_than_there_are_are_not_asked_for(client: Client) -> None:
    """A topic made for three brokers would take no record with acks=all on a single one; Kafka takes it."""
    client.create("insync", configs={"min.insync.replicas": "2"})
    assert client.produce("insync", Batch(), acks=-1).error_code == 0


# What a thread judges


def test_requests_behind_a_large_batch_keep_their_order_and_their_bytes(client: Client) -> None:
    """Records of one producer would change places, or one batch would be overwritten by the next one's bytes."""
    client.create("pipelined", configs=LARGE)
    values: list[list[bytes]] = []
    for number in range(40):
        values.append(large(number, 3 + number * 5 % 64) if number % 3 else [b"small-%d" % number])
        client.send("Produce", 9, produce_values("pipelined", batch(values[-1], number % 5)))
    offset = 0
    for number, each in enumerate(values):
        client._correlation_id = 2 + number
        answer = client.answer("Produce", 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, offset)
        offset += len(each)
    assert stored(client, "pipelined") == [value for each in values for value in each]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_compressed_message_sets_of_any_size_keep_their_order_and_bytes(client: Client, magic: int, codec: int) -> None:
    """The loop converts small sets and a thread others: an old producer's records would change places or get lost."""
    topic = f"sets-{magic}-{codec}"
    client.create(topic, configs=LARGE)
    counts = [1, 60, 700, 2, 0, 3, 1500, 40]
    values = [[b"%d-%d-" % (number, at) + bytes(200) for at in range(count)] for number, count in enumerate(counts)]
    for each in values:
        rows = [Record(at, T0 + at, b"k", value) for at, value in enumerate(each)]
        # What is empty is a part of a message, which counts as none: large enough for a thread.
        data = encode_messages(rows, magic, codec) if rows else bytes(8) + b"\x7f" + bytes(100_000)
        client.send("Produce", 2, produce_values(topic, data))
    offset = 0
    for number, each in enumerate(values):
        client._correlation_id = 2 + number
        answer = client.answer("Produce", 2).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, offset if each else -1)
        offset += len(each)
    assert stored(client, topic) == [value for each in values for value in each]


def test_many_producers_of_large_batches_at_once(module_broker: BrokerProcess, client: Client) -> None:
    """Under load a batch would be stored with the bytes of another connection's."""
    client.create("crowd", configs=LARGE)

    def produce(seed: int) -> None:
        with Client(module_broker.port) as other:
            for number in range(6):
                other.send("Produce", 9, produce_values("crowd", batch(large(seed * 100 + number, 40), 1 + seed % 4)))
            for number in range(6):
                other._correlation_id = 1 + number
                assert other.answer("Produce", 9).responses[0].partition_responses[0].error_code == 0

    threads = [threading.Thread(target=produce, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = stored(client, "crowd")
    wanted = [value for seed in range(8) for number in range(6) for value in large(seed * 100 + number, 40)]
    assert sorted(each for each in found if each is not None) == sorted(wanted)
    for seed in range(8):
        mine = [value for value in found if value is not None and int(value[:8]) // 100 == seed]
        assert mine == sorted(mine)


def test_a_producer_that_leaves_meanwhile_leaves_a_whole_batch_or_none(
    module_broker: BrokerProcess, client: Client
) -> None:
    """The receive buffer would be used anew while a thread still reads it: a batch of mixed bytes, or a crash."""
    client.create("left", configs=LARGE)
    for number in range(10):
        with Client(module_broker.port) as other:
            other.send("Produce", 9, produce_values("left", batch(large(number), GZIP)))
        for filler in range(3):
            client.write("left", batch([b"%d" % filler * 60_000]))
    until(lambda: sum(1 for value in stored(client, "left") if value and BLOCK in value) % 64 == 0, "whole batches")
    found = [value for value in stored(client, "left") if value is not None and BLOCK in value]
    seeds = dict.fromkeys(int(value[:8]) for value in found)
    assert found == [value for seed in seeds for value in large(seed)]


def test_retries_of_large_batches_are_known_again(client: Client) -> None:
    """An idempotent producer's retry would be stored twice."""
    client.create("idempotent", configs=LARGE)
    producer = client.producer_id()
    batches = [batch(large(n, 40), GZIP, producer=producer, sequence=40 * n) for n in range(5)]
    for number in [0, 1, 2, 3, 4, 1, 3, 4]:
        client.send("Produce", 9, produce_values("idempotent", batches[number]))
    found = []
    for number in range(8):
        client._correlation_id = 3 + number
        found.append(client.answer("Produce", 9).responses[0].partition_responses[0])
    assert [each.error_code for each in found] == [0] * 8
    assert [each.base_offset for each in found] == [0, 40, 80, 120, 160, 40, 120, 160]
    gap = batch(large(9, 40), GZIP, producer=producer, sequence=400)
    assert client.produce("idempotent", gap).error_code == OUT_OF_RANGE_SEQUENCE
    assert client.offset("idempotent") == 200


def test_batches_that_become_segments_keep_order_and_bytes(module_broker: BrokerProcess, client: Client) -> None:
    """Records would be lost, stored twice or change places around a batch of many megabytes; files would be left."""
    client.create("huge", configs=LARGE)
    producer = client.producer_id()
    huge = [os.urandom(1 << 20) for _ in range(10)]
    batches = [
        batch([b"before"], producer=producer, sequence=0),
        batch(huge, producer=producer, sequence=1),
        batch(huge[:9], GZIP, producer=producer, sequence=11),
        batch([b"after"], producer=producer, sequence=20),
    ]
    sent = [0, 1, 1, 2, 3, 2]
    for number in sent:
        client.send("Produce", 9, produce_values("huge", batches[number]))
    for at, number in enumerate(sent):
        client._correlation_id = 3 + at
        answer = client.answer("Produce", 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, [0, 1, 11, 20][number])
    assert stored(client, "huge") == [b"before", *huge, *huge[:9], b"after"]
    left = {f"{base:020d}.log" for base in (0, 1, 11)}
    until(
        lambda: {path.name for path in module_broker.data_dir.glob("huge-0/*.log*")} == left,
        "what was written twice to be removed",
    )


def test_a_topic_may_go_while_its_batch_is_judged(module_broker: BrokerProcess, client: Client) -> None:
    """Records would be written into the files of a topic that is being deleted, or the request would hang."""
    for number in range(5):
        topic = f"going-{number}"
        client.create(topic, configs=LARGE)
        with Client(module_broker.port) as other:
            other.send("Produce", 9, produce_values(topic, batch(large(number, 250), GZIP)))
            client.delete(topic)
            code = other.answer("Produce", 9).responses[0].partition_responses[0].error_code
        assert code in (0, UNKNOWN_TOPIC)


# Idempotence, time, compression


def test_sequences_of_a_producer(client: Client) -> None:
    """Retries would be stored twice, or a lost batch would go unnoticed."""
    client.create("sequences")
    producer = client.producer_id()

    def write(sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, int]:
        pairs = [(b"k", b"v")] * count
        made = Batch(pairs, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        answer = client.produce("sequences", made)
        return answer.error_code, answer.base_offset

    assert [write(0, 3), write(0, 3), write(3, 2), write(0, 3)] == [(0, 0), (0, 0), (0, 3), (0, 0)]
    assert write(7) == (OUT_OF_RANGE_SEQUENCE, -1)
    assert write(0, 2) == (OUT_OF_RANGE_SEQUENCE, -1)
    assert write(4, epoch=1) == (OUT_OF_RANGE_SEQUENCE, -1)
    assert write(0, epoch=1) == (0, 5)
    assert write(5) == (OLD_EPOCH, -1)
    assert client.offset("sequences") == 6


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_the_brokers(client: Client, codec: int) -> None:
    """Records would carry times that clients made up where the topic says otherwise."""
    topic = f"append-time-{codec}"
    client.create(topic, configs={"message.timestamp.type": "LogAppendTime", **LARGE})
    for values in ([b"a", b"b"], large(1)):
        first = client.offset(topic)
        answer = client.produce(topic, batch(values, codec, timestamp=1))
        assert answer.error_code == 0
        assert answer.log_append_time_ms > T0
        data = bytes(client.fetch(topic, offset=first, limit=32 << 20).records)
        assert {record.timestamp for record in iterate_records(data)} == {answer.log_append_time_ms}
        assert [row["crc_is_right"] for row in summary(data)] == [True]


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topics_own_compression_is_what_is_stored(client: Client, target: str) -> None:
    """A topic's compression setting would have no effect, or change what its records say."""
    topic = f"to-{target}"
    client.create(topic, configs={"compression.type": target, **LARGE})
    wanted: list[bytes] = []
    for codec in range(5):
        for values in ([b"a" * 200, b"b"], large(codec)):
            assert client.write(topic, batch(values, codec)) == len(wanted)
            wanted += values
    rows = summary(client.fetch(topic, limit=32 << 20).records)
    kept = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD, "uncompressed": NONE}[target]
    assert {row["attributes"] & 7 for row in rows} == {kept}
    assert stored(client, topic) == wanted


def test_records_out_of_time_are_named(client: Client) -> None:
    """A producer would not know which of its records is refused."""
    client.create("times", configs={"message.timestamp.before.max.ms": "1000"})
    answer = client.produce("times", Batch([(None, b"1"), (None, b"2")], [T0, T0]))
    assert answer.error_code == INVALID_TIMESTAMP
    assert [row.batch_index for row in answer.record_errors] == [0, 1]
    assert answer.error_message
    client.create("keys", configs={"cleanup.policy": "compact"})
    answer = client.produce("keys", Batch([(b"k", b"1"), (None, b"2")]))
    assert answer.error_code == INVALID_RECORD
    assert "message without key in topic partition keys-0" in answer.record_errors[0].batch_index_error_message
