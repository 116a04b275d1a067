"""Schemas of the registry in the console: seen, compared, and records produced by them.

Of `kbroker.console.schemas.subjects`, `kbroker.registry.encoders`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from kbroker.registry.client import AVRO, JSON, PROTOBUF, Schema
from kbroker.registry.decoders import decoder_of
from kbroker.registry.encoders import encoder_of
from kbroker.registry.errors import UnencodableError
from kbroker.registry.wire_format import unframe
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer
from tests.registry.stand_in import StandIn, stand_in

fastavro = pytest.importorskip("fastavro")

FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "town", "type": ["null", "string"]}]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
LATER = {"type": "record", "name": "Order", "fields": [*FIELDS, {"name": "paid", "type": "boolean", "default": False}]}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BLOB = {"type": "record", "name": "Blob", "fields": [{"name": "data", "type": "bytes"}]}
PROTO = 'syntax = "proto3"; message Town { string name = 1; int32 size = 2; }'


@pytest.fixture(scope="module")
def registry() -> Iterator[StandIn]:
    with stand_in() as made:
        made.add("orders-value", json.dumps(ORDER))
        made.add("orders-value", json.dumps(LATER))
        made.add("orders-key", '"string"')
        made.add("people-value", json.dumps(PERSON), "JSON")
        yield made


@pytest.fixture(scope="module")
def broker(registry: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"kbroker.schema.registry.url": registry.url, "kbroker.console.manage": "true"}
    with BrokerProcess(tmp_path_factory.mktemp("schemas"), settings) as started:
        for name in ("orders", "people"):
            started.create_topic(name, 1)
        yield started


@pytest.fixture(scope="module")
def viewer(broker: BrokerProcess) -> Viewer:
    return Viewer(broker.metrics_port)


def test_subjects_and_their_versions_are_seen_and_compared(viewer: Viewer) -> None:
    """A person could not see by what consumers read, or what a producer has changed."""
    assert viewer.ask("me")["hidden_pages"] == []
    rows = viewer.ask("schemas")["rows"]
    assert [(row["subject"], row["topic"]) for row in rows] == [
        ("orders-key", "orders"),
        ("orders-value", "orders"),
        ("people-value", "people"),
    ]
    told = viewer.ask("schema", subject="orders-value")
    assert (told["versions"], told["version"], told["compared"]) == ([1, 2], 2, 1)
    assert (told["schema_id"], told["kind"]) == (2, AVRO)
    assert json.loads("\n".join(told["lines"])) == LATER
    added = [line for line in told["differences"][2:] if line.startswith("+")]
    assert any('"paid"' in line for line in added) and told["differences"][0] == "--- version 1"
    first = viewer.ask("schema", subject="orders-value", version=1)
    assert (first["version"], first["compared"], first["differences"]) == (1, None, [])
    back = viewer.ask("schema", subject="orders-value", version=1, compared=2)
    assert any(line.startswith("-") and '"paid"' in line for line in back["differences"][2:])
    assert viewer.refused("schema", subject="none")[0] == 404 and viewer.refused("schema")[0] == 400


def test_records_are_produced_by_a_schema(broker: BrokerProcess, viewer: Viewer) -> None:
    """What a person sends for a trial could not be read by the consumers that it is for."""
    fields = {"topic": "orders", "value_subject": "orders-value", "key_subject": "orders-key"}
    record = {"key": '"seven"', "value": '{"id": 7, "town": "Zürich"}'}
    plan = viewer.plan("produce", **fields, records=[record])
    assert (plan["fields"]["value_schema"], plan["fields"]["key_schema"]) == (2, 3)
    assert "Each value is written by schema 2." in plan["sentences"]
    viewer.perform(plan)
    (row,) = viewer.ask("messages", topic="orders")["records"]
    assert json.loads(row["value"]["text"]) == {"id": 7, "town": "Zürich", "paid": False}
    assert (row["value"]["schema"], row["key"]["text"]) == ("2", '"seven"')
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    assert message is not None and message.error() is None
    assert bytes(message.value() or b"")[:6] == b"\x00\x00\x00\x00\x02\x0e"
    consumer.close()
    status, _, text = viewer.cannot("produce", **fields, records=[{"value": '{"id": "seven"}'}])
    assert status == 400 and "not of this Avro schema" in text
    status, _, text = viewer.cannot("produce", topic="people", value_subject="people-value", records=[{"value": "{}"}])
    assert status == 400 and "'name' is a required property" in text
    assert viewer.cannot("produce", topic="people", value_subject="none", records=[{"value": "{}"}])[0] == 404
    tombstone = viewer.plan("produce", topic="people", value_subject="people-value", records=[{"value": None}])
    viewer.perform(tombstone)
    assert viewer.ask("messages", topic="people")["records"][-1]["value"] is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Schema(AVRO, json.dumps(ORDER)), {"id": 1, "town": None}),
        (Schema(AVRO, json.dumps(BLOB)), {"data": {"base64": "AAH/"}}),
        (Schema(AVRO, '"long"'), 5),
        (Schema(JSON, json.dumps(PERSON)), {"name": "Ada"}),
        (Schema(PROTOBUF, PROTO), {"name": "Bern", "size": 3}),
    ],
)
def test_what_is_encoded_reads_back(schema: Schema, value: object) -> None:
    """Consumers would stumble over what the console wrote."""
    if schema.kind == PROTOBUF:
        pytest.importorskip("grpc_tools")
    framed = unframe(encoder_of(9, schema)(json.dumps(value)))
    assert framed is not None and framed.schema == 9
    assert decoder_of(schema)(framed.payload, None).value == value
    with pytest.raises(UnencodableError):
        encoder_of(9, schema)('{"unknown": [1]}')
    with pytest.raises(UnencodableError, match="no JSON"):
        encoder_of(9, schema)("{")
