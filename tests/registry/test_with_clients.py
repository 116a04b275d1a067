"""Confluent's serializers, a registry and a broker together: what is registered, produced, refused and shown decoded.

Also of `kbroker.cli.records.schema_options`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.broker_process import BrokerProcess
from tests.console.conftest import Viewer
from tests.ports import free_port
from tests.registry.apicurio import apicurio
from tests.registry.stand_in import stand_in

ORDER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}]}'
)
PERSON = '{"title": "Person", "type": "object", "properties": {"id": {"type": "integer"}, "who": {"type": "string"}}}'
VALUE = {"confluent.value.schema.validation": "true"}
COUNT = 50
KINDS = ("avro", "protobuf", "json")

pytestmark = [
    pytest.mark.timeout(600),
    # Confluent's own use of its HTTP library, whose connections it leaves to the collector.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def message_class() -> Any:
    """message Order { int64 id = 1; string who = 2; }, as a generated class has it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    types = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate((("id", types.TYPE_INT64), ("who", types.TYPE_STRING)), 1):
        order.field.add(name=name, number=number, type=kind, label=types.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def serializers(client: SchemaRegistryClient) -> dict[str, Callable[[dict[str, Any], SerializationContext], bytes]]:
    """What makes values of each kind."""
    made = message_class()
    protobuf = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    return {
        "avro": AvroSerializer(client, ORDER),
        "protobuf": lambda value, context: protobuf(made(**value), context),
        "json": JSONSerializer(PERSON, client),
    }


def consume(bootstrap: str, topic: str, *options: str) -> tuple[list[Any], str]:
    """The lines of `kbroker consume`, which have to be JSON, and what it says on stderr."""
    command = [
        sys.executable,
        "-m",
        "kbroker.cli",
        "consume",
        topic,
        "--from-beginning",
        "-e",
        "-b",
        bootstrap,
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def produce(bootstrap: str, topic: str, values: list[bytes], headers: Any = None) -> list[str]:
    """The names of the errors of those that were refused."""
    refused: list[str] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error.name())

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for value in values:
        producer.produce(topic, value, headers=headers, on_delivery=note)
    assert producer.flush(60) == 0
    return refused


class Together:
    """A broker and a registry; `restart` starts both anew."""

    def __init__(self, stack: ExitStack, folder: Path, kind: str) -> None:
        self.kind, self.folder = kind, folder
        self._stack, self._port = stack, free_port()
        self.url = f"http://127.0.0.1:{self._port}" + ("/apis/ccompat/v7" if kind == "apicurio" else "")
        self.broker = BrokerProcess(folder / "broker", {"confluent.schema.registry.url": self.url})
        self.stop: Callable[[], object] = lambda: None

    def start(self) -> None:
        """The broker first: it may have the registry's schemas."""
        self.broker.start()
        self._stack.callback(self.broker.stop)
        registry = ExitStack()
        self.stop = registry.close
        self._stack.callback(registry.close)
        if self.kind == "apicurio":
            registry.enter_context(apicurio(self.broker.bootstrap, self.folder, self._port))
        else:
            registry.enter_context(stand_in(self._port))

    def restart(self) -> None:
        """Apicurio finds its schemas in the broker; the stand-in stays, as its schemas are its own."""
        if self.kind == "apicurio":
            self.stop()
        self.broker.restart()
        if self.kind == "apicurio":
            registry = ExitStack()
            self.stop = registry.close
            self._stack.callback(registry.close)
            registry.enter_context(apicurio(self.broker.bootstrap, self.folder, self._port))


@pytest.fixture(
    name="together", params=["stand-in", pytest.param("apicurio", marks=[pytest.mark.compat, pytest.mark.kafka])]
)
def _together(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Together]:
    with ExitStack() as stack:
        made = Together(stack, tmp_path, request.param)
        made.start()
        yield made


def test_records_of_each_kind_are_taken_refused_and_shown(together: Together) -> None:
    """Schemas would be of no use where they are needed: at the door, and before people's eyes."""
    bootstrap, url = together.broker.bootstrap, together.url
    client = SchemaRegistryClient({"url": url})
    make = serializers(client)
    for kind in KINDS:
        together.broker.create_topic(kind, 1, VALUE)
    wanted = [{"id": number, "who": f"person {number}"} for number in range(COUNT)]

    def send() -> None:
        for kind in KINDS:
            context = SerializationContext(kind, MessageField.VALUE)
            assert produce(bootstrap, kind, [make[kind](value, context) for value in wanted]) == []

    send()
    together.restart()
    send()
    viewer = Viewer(together.broker.metrics_port)
    for kind in KINDS:
        shown = [{**value, "id": str(value["id"])} if kind == "protobuf" else value for value in wanted]
        assert consume(bootstrap, kind, "--schema-registry", url) == (shown * 2, "")
        rows, _ = consume(bootstrap, kind, "--schema-registry", url, "--json")
        assert [row["value"] for row in rows] == shown * 2
        records = viewer.ask("messages", topic=kind, count=COUNT, **{"from": "oldest"})["records"]
        assert [json.loads(row["value"]["text"]) for row in records] == shown
        assert {row["value"]["schema"] for row in records} == {rows[0]["value_schema"]}
        assert produce(bootstrap, kind, [b"no schema", b"\0\x7f\0\0\0unknown"]) == ["INVALID_RECORD"] * 2
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    reader.subscribe(["avro"])
    read = AvroDeserializer(client)
    messages: list[Any] = []
    while len(messages) < 2 * COUNT:
        messages += [each for each in reader.consume(100, 1) if each.error() is None]
    reader.close()
    assert [read(each.value(), SerializationContext("avro", MessageField.VALUE)) for each in messages] == wanted * 2


def test_what_cannot_be_decoded_is_shown_as_it_came(tmp_path: Path) -> None:
    """A record that no schema fits would be lost, or end the command."""
    with stand_in() as registry, BrokerProcess(tmp_path / "b", {"kbroker.schema.registry.url": registry.url}) as broker:
        registry.user_info = "reader:secret"
        number = registry.add("t-value", '"string"')
        broker.create_topic("t", 1)
        bad = [b"\0\0\0\0" + bytes([number]) + b"\x09\xff", b"\0\0\0\0\x63text", b"plain"]
        assert produce(broker.bootstrap, "t", [b"\0\0\0\0" + bytes([number]) + b"\x04ab", *bad]) == []
        password = tmp_path / "password"
        password.write_text("secret\n")
        login = ["--schema-registry-user", "reader", "--schema-registry-password", str(password)]
        rows, said = consume(broker.bootstrap, "t", "--schema-registry", registry.url, *login, "--json")
        assert said == ""
        assert rows[0]["value"] == "ab"
        assert rows[1]["value"] == {"base64": "AAAAAAEJ/w=="}
        assert "not Avro of this schema" in rows[1]["value_problem"]
        assert (rows[2]["value"], rows[2]["value_schema"]) == ("\0\0\0\0ctext", "99")
        assert "has no schema 99" in rows[2]["value_problem"]
        assert (rows[3]["value"], "value_schema" in rows[3]) == ("plain", False)
        # The broker has no password: its viewers see the bytes, and why.
        records = Viewer(broker.metrics_port).ask("messages", topic="t", **{"from": "oldest"})["records"]
        assert [row["value"]["problem"] != "" for row in records] == [True, True, True, False]
        assert "HTTP status 401" in records[0]["value"]["problem"]
        assert records[1]["value"]["text"] == "AAAAAAEJ/w=="


def test_ids_in_headers_are_followed(tmp_path: Path) -> None:
    """Records of clients that keep their payload free of a prefix would not be decoded."""
    with stand_in() as registry, BrokerProcess(tmp_path / "b") as broker:
        client = SchemaRegistryClient({"url": registry.url})
        write = AvroSerializer(client, ORDER, conf={"schema.id.serializer": header_schema_id_serializer})
        broker.create_topic("t", 1)
        headers: list[Any] = []
        value = write({"id": 1, "who": "x"}, SerializationContext("t", MessageField.VALUE, headers))
        assert value is not None
        assert value[:1] == b"\x02"
        assert produce(broker.bootstrap, "t", [value], headers) == []
        assert consume(broker.bootstrap, "t", "--schema-registry", registry.url) == ([{"id": 1, "who": "x"}], "")


def test_files_decode_keys_and_values(tmp_path: Path) -> None:
    """Who has no registry could not read his records."""
    avsc, proto = tmp_path / "key.avsc", tmp_path / "value.proto"
    avsc.write_text('"long"')
    proto.write_text('syntax = "proto3"; message M { string who = 1; }')
    files = f"t/key={avsc},t/value={proto}"
    with BrokerProcess(tmp_path / "b", {"kbroker.schema.files": files}) as broker:
        broker.create_topic("t", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"\x0a\x01x", b"\x0e")
        assert producer.flush(30) == 0
        options = ["--key-schema", str(avsc), "--value-schema", str(proto), "--json"]
        rows, _ = consume(broker.bootstrap, "t", *options)
        assert (rows[0]["key"], rows[0]["value"], rows[0]["value_schema"]) == (7, {"who": "x"}, "value.proto")
        (record,) = Viewer(broker.metrics_port).ask("messages", topic="t", **{"from": "oldest"})["records"]
        assert (record["key"]["text"], record["value"]["text"]) == ("7", '{"who": "x"}')
