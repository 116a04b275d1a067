"""Looks, filters and files over what schemas decode, keys too; a filter is read once for a request.

Also of `kbroker.console.decoded_record`.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer

from kbroker.console import download
from kbroker.console.parameters import Parameters
from kbroker.console.record_filter import RecordFilter, filter_of
from kbroker.console.record_rows import Found
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer
from tests.registry.stand_in import stand_in

fastavro = pytest.importorskip("fastavro")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "town", "type": "string"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}
TOWNS = ("Zürich", "Bern", "Genève", "Basel")
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + out.getvalue()


@pytest.fixture(scope="module")
def decoding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Viewer]]:
    """A console with a registry.  `orders`, of two partitions: eight orders in Avro with texts in Avro as keys, one in
    JSON Schema, and one that is as it came."""
    with stand_in() as registry:
        settings = {"kbroker.schema.registry.url": registry.url}
        with BrokerProcess(tmp_path_factory.mktemp("decoding"), settings) as broker:
            broker.create_topic("orders", 2)
            order, text = registry.add("orders-value", json.dumps(ORDER)), registry.add("orders-key", '"string"')
            person = registry.add("orders-person", json.dumps(PERSON), "JSON")
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            for number in range(8):
                value = {"id": number, "town": TOWNS[number % 4], "lines": [f"sku-{number}"]}
                key = framed(text, "string", f"order {number}")
                producer.produce("orders", framed(order, ORDER, value), key, partition=number % 2)
            said = b"\x00" + person.to_bytes(4, "big") + b'{"name": "Ann"}'
            producer.produce("orders", said, partition=0)
            producer.produce("orders", b'{"id": 99, "town": "as it came"}', b"order 99", partition=0)
            assert producer.flush(30) == 0
            yield broker, Viewer(broker.metrics_port)


def ids(decoding: tuple[BrokerProcess, Viewer], partition: int = 0, **fields: object) -> list[int]:
    told = decoding[1].ask("messages", topic="orders", partition=partition, **{"from": "oldest"}, **fields)
    return [row["offset"] for row in told["records"]]


@pytest.mark.parametrize(
    ("expression", "offsets"),
    [
        ("value.id = 4", [2]),
        ('value.town = "Zürich"', [0, 2]),
        ('value.lines[0] = "sku-6"', [3]),
        ('value contains "sku-2"', [1]),
        ('value.name = "Ann"', [4]),
        ("value.id > 50", [5]),
        ('key = "order 4"', [2]),
        ('key matches "^order [02]$"', [0, 1]),
        ('key starts "order 9"', [5]),
    ],
)
def test_expressions_see_what_a_schema_decodes(
    decoding: tuple[BrokerProcess, Viewer], expression: str, offsets: list[int]
) -> None:
    """Fields of records in Avro could not be asked for, and a key in Avro would be no text."""
    assert ids(decoding, filter=expression) == offsets


def test_texts_and_keys_are_looked_for_in_what_a_schema_decodes(decoding: tuple[BrokerProcess, Viewer]) -> None:
    """A number or a name within a record would be found by its bytes, or not at all."""
    assert ids(decoding, q="zürich") == [0, 2]
    assert ids(decoding, q='"id": 4') == [2]
    assert ids(decoding, q="as it CAME") == [5]
    assert ids(decoding, q="ann") == [4]
    assert ids(decoding, key="order 4") == ids(decoding, key='"order 4"') == [2]
    assert ids(decoding, key="order 99") == [5]


def test_files_have_what_a_schema_decodes(decoding: tuple[BrokerProcess, Viewer]) -> None:
    """Who works on with the records would have to decode base64 by a registry."""
    fields = {"topic": "orders", "partition": 0, "from": "oldest"}
    answer = decoding[1].get(f"/console/api/download?{urlencode({**fields, 'format': 'jsonl'})}")
    lines = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert lines[0]["value"] == {"id": 0, "town": "Zürich", "lines": ["sku-0"]}
    assert (lines[0]["key"], lines[0]["key_schema"], lines[0]["value_schema"]) == ("order 0", "2", "1")
    assert (lines[5]["value"], "value_schema" in lines[5]) == ('{"id": 99, "town": "as it came"}', False)
    answer = decoding[1].get(
        f"/console/api/download?{urlencode({**fields, 'format': 'csv', 'filter': 'value.id = 2'})}"
    )
    (row,) = csv.DictReader(io.StringIO(answer.body.decode(), newline=""))
    assert (row["key"], row["key_schema"], row["value_is_base64"]) == ("order 2", "2", "")
    assert json.loads(row["value"])["town"] == "Genève"


def test_a_filter_is_read_once_for_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long expression would be parsed for each of thousands of partitions, on the loop."""
    read: list[RecordFilter] = []
    used: list[RecordFilter] = []

    def counted(parameters: Parameters) -> RecordFilter:
        read.append(filter_of(parameters))
        return read[-1]

    async def source(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(log_start_offset=0, end=0)

    async def looks(_parts: object, _source: object, wanted: Any, _most: int) -> Found:
        used.append(wanted.chosen)
        return Found(deque(), 0)

    partitions = 50
    monkeypatch.setattr(download, "filter_of", counted)
    monkeypatch.setattr(download, "source_of", source)
    monkeypatch.setattr(download, "look_through", looks)
    monkeypatch.setattr(download, "readable_topic", lambda *_: SimpleNamespace(name="t", partitions=range(partitions)))
    reader = SimpleNamespace(turn=nullcontext, files=asyncio.Semaphore(1))
    parts: Any = SimpleNamespace(display=None, reader=reader, mask_of=lambda _: None)
    asyncio.run(download.download(parts, Parameters("topic=t&filter=value.id+%3D+1")))
    assert len(read) == 1 and len(used) == partitions
    assert all(each is read[0] for each in used)
