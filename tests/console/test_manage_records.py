"""Records, written from the console.

Also of `kbroker.console.manage.produce`, `kbroker.console.manage.key_partition`.
"""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Producer

from kbroker.console.manage import produce
from kbroker.console.manage.context import Context
from kbroker.console.manage.fields import Fields
from kbroker.console.manage.key_partition import partition_of
from kbroker.console.manage.plan import Plan
from kbroker.metadata.image import TopicImage
from tests.broker_process import BrokerProcess
from tests.console.viewer import STRANGE, Viewer


def test_keys_go_where_kafkas_producers_send_them(console_broker: BrokerProcess) -> None:
    """Records of one key would lie in two partitions, and lose their order."""
    name = console_broker.create_topic("keyed", 7)
    settings = {"bootstrap.servers": console_broker.bootstrap, "partitioner": "murmur2_random"}
    found: dict[bytes | None, int | None] = {}
    producer = Producer(settings)
    keys = [b"x" * size for size in range(1, 12)] + [b"\x80\xff\x00\x7f", "schlüssel".encode(), b"0"]
    for key in keys:
        producer.produce(name, b"", key, on_delivery=lambda _, said: found.update({said.key(): said.partition()}))
    assert producer.flush(30) == 0
    assert {key: partition_of(key, 7) for key in keys} == found


def test_records_are_written_as_they_were_shown(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """A person would write something else than the page said, or elsewhere."""
    name = console_broker.create_topic("written", 3)
    records = [
        {"key": "order 7", "value": '{"id": 7}', "headers": [{"name": "kind", "value": "new"}], "timestamp": 1234},
        {"key": None, "value": {"base64": base64.b64encode(b"\xff\x00").decode()}, "partition": 2},
        {"key": "gone", "value": None, "partition": 1},
        {"value": STRANGE},
    ]
    plan = viewer.plan("produce", topic=name, compression="zstd", records=records)
    assert "4 records are written to written, compressed by zstd" in plan["sentences"][0]
    assert plan["warnings"] == ["1 record has no value: on a compacted topic they delete keys."]
    assert sum(row[1] for row in plan["table"]["rows"]) == 4
    done = viewer.perform(plan)
    assert done["sentences"] == ["4 records are written."] and done["failures"] == []
    shown = [row for index in range(3) for row in viewer.ask("messages", topic=name, partition=index)["records"]]
    by_key = {None if row["key"] is None else row["key"]["text"]: row for row in shown}
    order = by_key["order 7"]
    assert (order["value"]["text"], order["timestamp"], order["compression"]) == ('{"id": 7}', 1234, "zstd")
    assert order["headers"][0]["value"]["text"] == "new" and by_key["gone"]["value"] is None
    assert sorted(row["value"]["text"] for row in shown if row["key"] is None) == sorted(["/wA=", STRANGE])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"topic": "none", "records": [{"value": "x"}]}, "there is no topic none"),
        ({"topic": "plain", "records": []}, "records must be a list of 1"),
        ({"topic": "plain", "records": [7]}, "fields must be an object"),
        ({"topic": "plain", "records": [{"value": 7}]}, "value must be a text"),
        ({"topic": "plain", "records": [{"value": {"base64": "?"}}]}, "value is no base64"),
        ({"topic": "plain", "records": [{"value": "x", "partition": 12}]}, "has no partition 12"),
        ({"topic": "plain", "records": [{"value": "x"}], "compression": "rar"}, "compression must be one of"),
    ],
)
def test_what_cannot_be_written_is_said_before(viewer: Viewer, fields: dict[str, Any], said: str) -> None:
    """A person would learn it only from the failure, or from an error of Python."""
    status, _, error = viewer.cannot("produce", **fields)
    assert status in (400, 404) and said in error


def test_what_the_broker_refuses_is_told_for_each_partition(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """A person would take records for written that are not."""
    name = console_broker.create_topic("small", 2, {"max.message.bytes": "1000"})
    records = [{"value": "x" * 2000, "partition": 0}, {"value": "x", "partition": 1}]
    done = viewer.do("produce", topic=name, records=records)
    assert done["sentences"] == ["1 record is written."] and done["table"]["rows"] == [[1, 1, 0]]
    (failure,) = done["failures"]
    assert failure.startswith("Partition 0: MESSAGE_TOO_LARGE")
    plan = viewer.plan("produce", topic="compacted", records=[{"value": "x"}])
    assert "takes no records without a key" in plan["warnings"][0]
    assert "INVALID_RECORD" in viewer.perform(plan)["failures"][0]


@pytest.mark.parametrize("step", ["plan", "perform"])
def test_the_loop_goes_on_while_records_are_prepared(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of records, to be read and compressed, held up all clients of the broker for a second."""
    image, threads = Mock(spec=TopicImage, topic_id=bytes(16), partitions=[None], configs={}, is_internal=False), []
    image.name = "large"
    context = Mock(spec=Context, topic=Mock(return_value=image), client=Mock(patiently=lambda step: step()))
    reading = produce._records

    def read(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return reading(*arguments)

    async def written(*_: object) -> int:
        return 0

    monkeypatch.setattr(produce, "_records", read)
    monkeypatch.setattr(produce, "_write_batch", written)
    fields = Fields({"topic": "large", "compression": "gzip", "records": [{"value": "x"}]})
    if step == "plan":
        assert asyncio.run(produce.plan_writing(context, fields)).fields["topic"] == "large"
    else:
        assert asyncio.run(produce.write(context, fields, Mock(spec=Plan))).failures == []
    assert threads and threading.get_ident() not in threads
