"""Keys and values decoded by a registry's schemas or by files, and what becomes of those that are not what they say.

Also of `kbroker.registry.avro`, `kbroker.registry.protobuf`, `kbroker.registry.json_schema`, `kbroker.registry.plain`,
`kbroker.registry.schemas`, `kbroker.registry.wire_format`, `kbroker.registry.decoders`,
`kbroker.registry.decoded`, `kbroker.registry.errors` and
`kbroker.registry.schema_files`.
"""

from __future__ import annotations

import io
import json
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.registry import schemas as schemas_module
from kbroker.registry.avro import avro_decoder
from kbroker.registry.client import AVRO, JSON, PROTOBUF, RegistryPlace, Schema
from kbroker.registry.decoders import decoder_of
from kbroker.registry.display import Display
from kbroker.registry.errors import MissingLibraryError, SchemaError, UndecodableError
from kbroker.registry.plain import plain
from kbroker.registry.protobuf import protobuf_decoder
from kbroker.registry.schema_files import parse_files
from kbroker.registry.wire_format import PREFIX, VALUE_HEADER, framed_by, message_path
from tests.registry.stand_in import StandIn, stand_in

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "raw", "type": "bytes"},
        ],
    }
)
LIST = json.dumps({"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]})
LINES = json.dumps(
    {"type": "array", "items": {"type": "record", "name": "Bill", "fields": [{"name": "Line", "type": "Line"}]}}
)
PROTO = """
syntax = "proto3";
package shop;
import "money.proto";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  Money price = 2;
  google.protobuf.Timestamp at = 3;
  message Line { string item = 1; }
  message Note { string text = 1; }
}
message Refund { string why = 1; }
"""
MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; double amount = 2; }'
PERSON = json.dumps(
    {"type": "object", "properties": {"name": {"type": "string"}, "home": {"$ref": "home.json"}}, "required": ["name"]}
)
HOME = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})


@pytest.fixture(name="registry")
def _registry() -> Iterator[StandIn]:
    with stand_in() as registry:
        yield registry


def avro(schema: str, value: Any) -> bytes:
    """A value in Avro."""
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def order() -> dict[str, Any]:
    return {"id": 7, "price": Decimal("9.50"), "at": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"\xff\x00"}


def shown(display: Display, data: bytes | None, headers: Any = ()) -> Any:
    found = display.show("orders", data, headers, is_key=False)
    return None if found is None else (found.value if found.is_decoded else found.problem)


def test_avro_is_shown_as_json_with_bytes_times_and_decimals(registry: StandIn) -> None:
    """Values that JSON lacks would fail, or lose what they say."""
    number = registry.add("orders-value", ORDER)
    display = Display(RegistryPlace((registry.url,)))
    data = PREFIX.pack(0, number) + avro(ORDER, order())
    wanted = {"id": 7, "price": "9.50", "at": "2026-01-02T00:00:00+00:00", "raw": {"base64": "/wA="}}
    assert shown(display, data) == wanted
    found = display.show("orders", data, (), is_key=False)
    assert found is not None
    assert json.loads(found.text) == wanted
    assert found.schema == str(number)


def test_schemas_are_asked_for_once(registry: StandIn) -> None:
    """Each record would ask the registry."""
    number = registry.add("orders-value", '"string"')
    display = Display(RegistryPlace((registry.url,)))
    data = PREFIX.pack(0, number) + b"\x04ab"
    assert [shown(display, data) for _ in range(5)] == ["ab"] * 5
    assert registry.asked == [f"/schemas/ids/{number}"]


def test_references_of_each_kind_are_found(registry: StandIn) -> None:
    """A schema that stands on others could not be used."""
    registry.add("home", HOME, JSON)
    registry.add("money", MONEY, PROTOBUF)
    registry.add("line", json.dumps({"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}))
    of = [
        {"name": name, "subject": subject, "version": 1}
        for name, subject in (("home.json", "home"), ("money.proto", "money"), ("Line", "line"))
    ]
    person = registry.add("p", PERSON, JSON, of[:1])
    bill = registry.add("b", PROTO, PROTOBUF, of[1:2])
    lines = registry.add("l", LINES, AVRO, of[2:])
    display = Display(RegistryPlace((registry.url,)))
    good, bad = b'{"name": "A", "home": {"city": "B"}}', b'{"name": "A", "home": {"city": 1}}'
    assert shown(display, PREFIX.pack(0, person) + good) == {"name": "A", "home": {"city": "B"}}
    broken = display.show("t", PREFIX.pack(0, person) + bad, (), is_key=False)
    assert broken is not None
    assert (broken.value, broken.problem) == (
        json.loads(bad),
        "$.home.city breaks its schema: 1 is not of type 'string'",
    )
    assert shown(display, PREFIX.pack(0, lines) + b"\x02\x04\x00") == [{"Line": {"n": 2}}]
    price = b"\x12\x0e\x0a\x03EUR\x11" + bytes(6) + b"\xf0\x3f"
    assert shown(display, PREFIX.pack(0, bill) + b"\0" + b"\x08\x07" + price) == {
        "id": "7",
        "price": {"currency": "EUR", "amount": 1.0},
    }


@pytest.mark.parametrize(
    ("path", "payload", "wanted"),
    [
        (b"\x00", b"", {"id": "0"}),
        (b"\x02\x02", b"\x0a\x01x", {"why": "x"}),
        (b"\x04\x00\x02", b"\x0a\x01x", {"text": "x"}),
        (b"\x02\x04", b"", "the schema has no message at [2]"),
        (b"\x02\x01", b"", "the schema has no message at [-1]"),
        (b"\x80", b"", "the message indexes are cut off"),
        (b"\xfe\x01", b"", "127 message indexes"),
        (b"\x01", b"", "-1 message indexes"),
        (b"\x00", b"\x0a", "not Protobuf of this schema: "),
    ],
)
def test_a_protobuf_message_is_found_by_its_path(path: bytes, payload: bytes, wanted: Any) -> None:
    """Another message of the file would be shown, or an error end the look."""
    decode = _proto()
    try:
        assert decode(path + payload, None).value == wanted
    except UndecodableError as error:
        assert isinstance(wanted, str), error
        assert str(error).startswith(wanted)


_PROTO: list[Any] = []


def _proto() -> Any:
    if not _PROTO:
        _PROTO.append(protobuf_decoder(Schema(PROTOBUF, PROTO, (("money.proto", MONEY),)), None))
    return _PROTO[0]


def test_a_header_with_a_guid_names_the_schema(registry: StandIn) -> None:
    """Records of newer clients would be shown as bytes."""
    number = registry.add(
        "orders-value", PROTO.replace('import "money.proto";', "").replace("Money", "Refund"), PROTOBUF
    )
    guid = uuid.UUID(registry.guid(number)).bytes
    display = Display(RegistryPlace((registry.url,)))
    assert shown(display, b"\x08\x07", [(VALUE_HEADER, b"\x01" + guid + b"\x00")]) == {"id": "7"}
    assert shown(display, b"\x0a\x01x", [(VALUE_HEADER, b"\x01" + guid + b"\x02\x02")]) == {"why": "x"}
    framed = framed_by(b"abc", [(VALUE_HEADER, b"\x01" + guid)], is_key=True)
    assert framed is None


def test_records_without_a_schema_are_left_as_they_are(registry: StandIn) -> None:
    """Text would be taken for something else."""
    display = Display(RegistryPlace((registry.url,)))
    assert [shown(display, data) for data in (None, b"", b"plain text", b"\0\0\0\0")] == [None] * 4
    assert registry.asked == []


def test_an_id_that_is_not_there_is_said_and_asked_for_again_later(
    registry: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong id would be asked for with each record, or a schema that comes later never be found."""
    now = [0.0]
    monkeypatch.setattr(schemas_module, "FAILURE_SECONDS", 10.0)
    display = Display(RegistryPlace((registry.url,)))
    assert display._schemas is not None
    monkeypatch.setattr(display._schemas, "_now", lambda: now[0])
    data = PREFIX.pack(0, 1) + b"\x02a"
    for _ in range(3):
        assert shown(display, data) == f"the registry at {registry.url} has no schema 1"
    assert len(registry.asked) == 1
    registry.add("orders-value", '"string"')
    now[0] = 11
    assert shown(display, data) == "a"


def test_a_registry_that_is_away_is_not_asked_for_each_id(registry: StandIn) -> None:
    """A look at records would wait for each of them."""
    registry.status = 503
    display = Display(RegistryPlace((registry.url,)))
    for number in range(1, 9):
        assert "HTTP status 503" in shown(display, PREFIX.pack(0, number))
    assert len(registry.asked) == 1


def test_files_decode_with_the_prefix_and_without(tmp_path: Path) -> None:
    """Producers without a registry write no prefix."""
    (tmp_path / "order.avsc").write_text(ORDER)
    (tmp_path / "money.proto").write_text(MONEY)
    (tmp_path / "bill.proto").write_text(PROTO)
    files = parse_files([f"orders/value={tmp_path}/order.avsc", f"bills/value={tmp_path}/bill.proto"])
    display = Display(None, files)
    data = avro(ORDER, order())
    assert shown(display, data)["id"] == 7
    assert shown(display, PREFIX.pack(0, 99) + data)["id"] == 7
    assert display.show("orders", data, (), is_key=True) is None
    assert display.show("others", data, (), is_key=False) is None
    for bill in (b"\x08\x07", PREFIX.pack(0, 1) + b"\x00\x08\x07"):
        found = display.show("bills", bill, (), is_key=False)
        assert found is not None
        assert (found.value, found.schema) == ({"id": "7"}, "bill.proto")


@pytest.mark.parametrize(
    "entry", ["orders", "orders/value", "orders/other=x.avsc", "/key=x.avsc", "a/key=x.txt", "a/key="]
)
def test_entries_of_schema_files_say_topic_side_and_file(entry: str) -> None:
    """A mistake would leave records undecoded without a word."""
    with pytest.raises(ValueError, match=r"topic/key=file|ends in"):
        parse_files([entry])


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A wrong path would look like a topic without a schema."""
    display = Display(None, parse_files([f"orders/value={tmp_path}/no.avsc"]))
    assert "no.avsc cannot be read" in shown(display, b"x")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (AVRO, "{"),
        (AVRO, '{"type": "nothing"}'),
        (AVRO, "[1]"),
        (AVRO, "7"),
        (AVRO, '{"type": "array", "items": "null"}'),
        (AVRO, '{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}'),
        (AVRO, '{"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}'),
        (PROTOBUF, "message {"),
        (PROTOBUF, 'syntax = "proto3"; import "gone.proto";'),
        (JSON, "{"),
        (JSON, '{"type": "nothing"}'),
    ],
)
def test_a_schema_that_cannot_be_used_is_an_error_with_a_reason(kind: str, text: str) -> None:
    """The look would end with a traceback; or a few bytes make items without end."""
    with pytest.raises(SchemaError):
        decoder_of(Schema(kind, text))


@pytest.mark.parametrize("name", ["../x.proto", "/etc/x.proto", "a/../../x.proto", "\0"])
def test_references_do_not_leave_their_folder(name: str) -> None:
    """A registry could have files of this machine overwritten."""
    with pytest.raises(SchemaError, match="a reference with the name"):
        decoder_of(Schema(PROTOBUF, 'syntax = "proto3";', ((name, MONEY),)))


def test_deep_nesting_is_an_error() -> None:
    """A record could overflow the stack of the broker."""
    decode = avro_decoder(Schema(AVRO, LIST))
    assert decode(b"\x02\x02\x00", None).value == {"next": {"next": {"next": None}}}
    with pytest.raises(UndecodableError, match="RecursionError"):
        decode(b"\x02" * 1_000_000 + b"\0", None)
    nested = decoder_of(Schema(JSON, "{}"))
    with pytest.raises(UndecodableError):
        nested(b"[" * 1_000_000, None)


def test_bytes_behind_a_value_are_an_error() -> None:
    """A record of another schema would be shown as if it were of this one."""
    with pytest.raises(UndecodableError, match="1 bytes are left over"):
        avro_decoder(Schema(AVRO, '"string"'))(b"\x02ab", None)


_DECODERS: list[Any] = []


def _decoders() -> list[Any]:
    if not _DECODERS:
        _DECODERS.extend(
            (
                avro_decoder(Schema(AVRO, ORDER)),
                avro_decoder(Schema(AVRO, LIST)),
                _proto(),
                decoder_of(Schema(JSON, PERSON, (("home.json", HOME),))),
            )
        )
    return _DECODERS


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    """A record could end the console's thread, or the command."""
    for decode in _decoders():
        try:
            json.dumps(decode(data, None).value)
        except UndecodableError:
            continue


@given(st.binary(max_size=40))
def test_a_message_path_is_read_within_its_bytes(data: bytes) -> None:
    """Bytes of a record could be read as an endless path."""
    try:
        path, at = message_path(data)
    except UndecodableError:
        return
    assert 0 < at <= len(data)
    assert 0 < len(path) <= 64


def test_numbers_that_json_lacks_become_text() -> None:
    """The answer would be no JSON."""
    value = {1: [float("nan"), float("inf"), 1.5], "b": (b"\0", uuid.UUID(int=1), {1}.__class__)}
    assert json.loads(json.dumps(plain(value), allow_nan=False))["1"] == ["nan", "inf", 1.5]


@pytest.mark.parametrize(("kind", "module"), [(AVRO, "fastavro"), (PROTOBUF, "grpc_tools"), (JSON, "jsonschema")])
def test_a_missing_library_is_named_with_its_extra(kind: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who installed no more than the broker would see a traceback."""
    name = {AVRO: "avro", PROTOBUF: "protobuf", JSON: "json_schema"}[kind]
    monkeypatch.delitem(sys.modules, f"kbroker.registry.{name}", raising=False)
    if kind == PROTOBUF:
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    else:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingLibraryError, match="extra `schemas`"):
        decoder_of(Schema(kind, '"string"'))
