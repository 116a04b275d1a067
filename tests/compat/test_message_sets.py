"""Message sets of old clients, sound and broken: what Kafka 3.9.1 answers and stores, kbroker does, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbroker._fast.records.record_batch import validate
from tests.broker.client import Client
from tests.compat.message_sets import RECORD, TOPICS, answers, cases, described, fetched, kafka_answers
from tests.conftest import BrokerProcess, StartBroker
from tests.records.stored import stored_batches

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
UNKNOWN, UNSUPPORTED_FOR_FORMAT = -1, 43
# Where kbroker says what is wrong; Kafka fails with an exception that it did not expect.
OTHERWISE = {f"{topic}: batch with headers": UNSUPPORTED_FOR_FORMAT for topic in TOPICS if topic.startswith("v")}


@pytest.fixture(name="found", scope="module")
def _found(module_broker: BrokerProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(answers(module_broker.port)))
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_message_sets_are_answered_and_stored_as_by_kafka(found: dict[str, Any], topic: str) -> None:
    """Records of an old producer would be lost, stored twice, or stored with other offsets, times or contents."""
    for name, _ in cases():
        key = f"{topic}: {name}"
        expected = RECORDED[key]
        if key in OTHERWISE:
            assert expected == {"error_code": UNKNOWN}
            expected = {"error_code": OTHERWISE[key]}
        assert found[key] == expected, key


@pytest.mark.kafka
def test_the_record_is_what_kafka_answers() -> None:
    """The test above would hold kbroker to what no Kafka does."""
    assert kafka_answers(answers) == RECORDED


def test_batches_of_newer_clients_are_stored_in_the_topics_format(kbroker_process: StartBroker) -> None:
    """A topic kept for old consumers would fill with batches that they cannot read, or refuse newer producers."""
    sound = dict(cases())
    with Client(kbroker_process().port) as client:
        for version in (3, 9, 12):
            for magic, release in ((0, "0.9.0"), (1, "0.10.2")):
                topic = f"format-{magic}-{version}"
                client.create(topic, configs={"message.format.version": release})
                for name in ("batch none", "batch gzip", "batch lz4"):
                    end = client.offset(topic)
                    answer = client.produce(topic, sound[name], version)
                    assert (answer.error_code, answer.base_offset) == (0, end)
                    rows = [described(*each, end) for each in stored_batches(fetched(client, topic, end))]
                    assert rows == RECORDED[f"v{magic}: {name}"]["stored"]
                assert client.produce(topic, sound["idempotent batch"], version).error_code == UNSUPPORTED_FOR_FORMAT


def test_a_change_of_format_clears_the_epochs(kbroker_process: StartBroker) -> None:
    """A replica would truncate by epochs that know nothing of the messages stored meanwhile, and lose some."""
    sound = dict(cases())
    broker = kbroker_process()
    with Client(broker.port) as client:

        def end_of_epoch() -> tuple[int, int]:
            asked = {"topics": [{"topic": "changes", "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
            found = client.ask("OffsetForLeaderEpoch", 3, asked).topics[0].partitions[0]
            return found.leader_epoch, found.end_offset

        def change(release: str) -> None:
            row = {"name": "message.format.version", "config_operation": 0, "value": release}
            resource = {"resource_type": 2, "resource_name": "changes", "configs": [row]}
            answer = client.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
            assert answer.responses[0].error_code == 0

        client.create("changes")
        client.write("changes", sound["batch none"])
        assert end_of_epoch() == (0, 3)
        change("0.10.2")
        client.write("changes", sound["batch none"])
        assert end_of_epoch() == (-1, -1)
        change("3.0-IV1")
        client.write("changes", sound["batch gzip"])
        assert end_of_epoch() == (0, 9)
        magics = [info.magic for _, info in stored_batches(fetched(client, "changes", 0))]
        assert magics == [2, 1, 1, 1, 2]
    # All of it is there after a crash, too.
    broker.kill()
    broker.start()
    with Client(broker.port) as client:
        assert client.offset("changes") == 9
        offsets = [info.last_offset for _, info in stored_batches(fetched(client, "changes", 0))]
        assert offsets == [2, 3, 4, 5, 8]
        last = list(stored_batches(fetched(client, "changes", 6)))[-1][0]
        assert validate(last).records_count == 3


def test_a_large_compressed_set_is_converted_aside(kbroker_process: StartBroker) -> None:
    """Everybody would wait while one old producer's messages are unpacked, or they would be lost on that way."""
    from kbroker.records.batch import Record
    from kbroker.records.compression import Codec
    from kbroker.records.legacy import iterate_stored_records
    from tests.records.stored import encode_messages

    records = [Record(at, 1_700_000_000_000 + at, b"%d" % at, bytes(300) + b"%d" % at) for at in range(3000)]
    with Client(kbroker_process().port) as client:
        for topic, release in (("new", "3.0-IV1"), ("old", "0.10.2"), ("oldest", "0.9.0")):
            client.create(topic, configs={"message.format.version": release})
            for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                for magic in (0, 1):
                    end = client.offset(topic)
                    answer = client.produce(topic, encode_messages(records, magic, codec), 2)
                    assert (answer.error_code, answer.base_offset) == (0, end)
            found = []
            while len(found) < 8 * len(records):
                found += [
                    record
                    for batch, _ in stored_batches_in_part(fetched(client, topic, len(found), limit=8 << 20))
                    for record in iterate_stored_records(batch)
                ]
            assert [record.offset for record in found] == list(range(8 * len(records)))
            expected = [(record.key, record.value) for record in records] * 8
            assert [(record.key, record.value) for record in found] == expected


def stored_batches_in_part(data: bytes) -> Any:
    """As `stored_batches`, of bytes that may end with a part of a batch."""
    from kbroker._fast.records.record_batch import TruncatedBatchError

    try:
        yield from stored_batches(data)
    except TruncatedBatchError:
        return
