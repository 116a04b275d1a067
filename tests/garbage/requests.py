"""Requests of every API in every version in which each list has as many entries as are asked for, no two alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbroker.protocol.frames import encode_request
from kbroker.protocol.schema import Field, MessageSchema, parse_versions
from kbroker.schemas import message
from tests.differential.values import SOUND, Live, records
from tests.protocol.names import is_nullable
from tests.scenarios.wire import CLIENT_ID, build, struct_fields

Values = dict[str, Any]
# Of what a request needs of the broker to be sound, the names; the broker has none of it unless a test has made it.
LIVE: dict[str, Any] = {
    "topic": "t",
    "other_topic": "other",
    "new_topic": "new",
    "topic_id": bytes(range(16)),
    "partition": 0,
    "group": "g",
    "transactional_id": "txn",
    "member_id": "m" * 22,
    "generation": 1,
    "member_epoch": 0,
    "share_session_epoch": 0,
    "producer_id": 1 << 40,
    "producer_epoch": 0,
    "client_instance_id": bytes(range(1, 17)),
    "subscription_id": 1,
}
# Waits of seconds are no part of what is looked at.
SHORT: Values = {"max_wait_ms": 0, "timeout_ms": 0, "rebalance_timeout_ms": 1000}


def many(api: str, version: int, count: int) -> Values:
    """A request whose outermost lists have `count` entries, and those within them one."""
    schema = message(f"{api}Request").schema
    return _Maker(api, version, schema, count).struct(schema.fields, "", 0, is_outermost=True)


def frame(api: str, version: int, values: Values) -> bytes:
    """The request with its length."""
    request = message(f"{api}Request")
    return bytes(encode_request(request.api_key, version, 1, CLIENT_ID, build(request, values)))


class _Maker:
    def __init__(self, api: str, version: int, schema: MessageSchema, count: int) -> None:
        self._api = api
        self._version = version
        self._schema = schema
        self._count = count

    def struct(self, fields: Sequence[Field], within: str, number: int, *, is_outermost: bool = False) -> Values:
        """Values of the fields that the version has."""
        return {
            field.name: self._field(field, within, number, is_outermost=is_outermost)
            for field in fields
            if self._version in parse_versions(field.versions) and field.tagged == "none"
        }

    def _field(self, field: Field, within: str, number: int, *, is_outermost: bool) -> Any:
        if field.is_array:
            numbers = range(self._count) if is_outermost else range(number, number + 1)
            return [self._item(field, within, each) for each in numbers]
        return self._item(field, within, number)

    def _item(self, field: Field, within: str, number: int) -> Any:
        if field.is_struct:
            if not field.is_array and is_nullable(field, self._version):
                return None
            return self.struct(struct_fields(self._schema, field), field.name, number)
        return self._plain(field, within, number)

    def _plain(self, field: Field, within: str, number: int) -> Any:
        kind = field.item_type
        if kind == "records":
            return records(self._version)
        found = self._sound(field, within)
        if field.name in SHORT:
            found = SHORT[field.name]
        if kind == "string":
            text = found if isinstance(found, str) else ""
            return f"{text}{number}" if number else text
        if kind == "uuid":
            return number.to_bytes(16, "big") if number else found or bytes(16)
        if kind == "bytes":
            return found if isinstance(found, bytes) else b""
        if kind == "float64":
            return float(found or 0)
        if kind == "bool":
            return bool(found) and found != "never"
        found = found if isinstance(found, int) else 0
        is_number_of = field.is_array or "partition" in field.name or field.name == "index"
        return found + number if is_number_of and kind in ("int32", "int64") else found

    def _sound(self, field: Field, within: str) -> Any:
        for key in ((self._api, field.name), f"{within}.{field.name}", field.name):
            if key in SOUND:
                found = SOUND[key]
                return LIVE[found.attribute] if isinstance(found, Live) else found
        return None
