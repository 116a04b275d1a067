"""Records of Kafka's internal topics, from bytes to plain values.

Key: int16 record type, then the key's fields.  Value: int16 version, then the value's fields; none is a tombstone.
A group's member metadata and assignment are decoded further, being messages of the consumer protocol.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from typing import Any

from kbroker.protocol.schema import MessageSchema
from kbroker.schemas import family_messages, message
from kbroker.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC, uuid_to_text

_INT16 = struct.Struct(">h")
_FAMILIES: dict[str, tuple[str, ...]] = {
    GROUP_METADATA_TOPIC: (
        "offset_records",
        "consumer_group_records",
        "share_group_records",
        "streams_group_records",
    ),
    TRANSACTION_STATE_TOPIC: ("transaction_records",),
    SHARE_GROUP_STATE_TOPIC: ("share_state",),
}
_CONSUMER_MESSAGES = {
    "subscription": "ConsumerProtocolSubscription",
    "assignment": "ConsumerProtocolAssignment",
}
TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def decodes(topic: str) -> bool:
    """Whether records of `topic` are decoded here."""
    return topic in _FAMILIES


@cache
def _schemas(topic: str) -> dict[tuple[str, int], MessageSchema]:
    """Key and value tables by kind and record type."""
    return {
        (schema.kind, schema.api_key): schema
        for family in _FAMILIES[topic]
        for schema in family_messages(family)
        if schema.kind in ("coordinator-key", "coordinator-value") and schema.api_key is not None
    }


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> dict[str, object]:
    """What a record of an internal topic says.  ValueError when it is none that Kafka 4.3 writes."""
    if key is None or len(key) < _INT16.size:
        raise ValueError("the key is too short to hold a record type")
    record_type = _INT16.unpack_from(key)[0]
    key_schema = _schemas(topic).get(("coordinator-key", record_type))
    if key_schema is None:
        raise ValueError(f"record type {record_type} is not known")
    decoded: dict[str, object] = {
        "type": key_schema.name.removesuffix("Key"),
        "key": plain(message(key_schema.name).program(0).decode(key, _INT16.size)),
        "value": None,
    }
    if value is not None:
        decoded["value"] = _decode_value(_schemas(topic)["coordinator-value", record_type], value)
    return decoded


def _decode_value(schema: MessageSchema, value: bytes) -> dict[str, object]:
    if len(value) < _INT16.size:
        raise ValueError("the value is too short to hold a version")
    version = _INT16.unpack_from(value)[0]
    cls = message(schema.name)
    if not cls.min_version <= version <= cls.max_version:
        raise ValueError(f"version {version} of {schema.name} is not known")
    fields = plain(cls.program(version).decode(value, _INT16.size))
    if "transaction_status" in fields and 0 <= fields["transaction_status"] < len(TRANSACTION_STATES):
        fields["transaction_status"] = TRANSACTION_STATES[fields["transaction_status"]]
    if schema.name == "GroupMetadataValue" and fields["protocol_type"] == "consumer":
        for member in fields["members"]:
            for field, name in _CONSUMER_MESSAGES.items():
                member[field] = _decode_consumer_message(name, bytes.fromhex(member[field]))
    return {"version": version, **fields}


def _decode_consumer_message(name: str, data: bytes) -> object:
    """A consumer's own message; as hexadecimal when it is no message of the consumer protocol.

    Later versions only add fields at the end.  A newer one is read as the newest version known here, and one without
    the fields of the version that it claims (kafka-go) as version 0.
    """
    cls = message(name)
    if len(data) < _INT16.size:
        return data.hex()
    claimed = max(0, min(_INT16.unpack_from(data)[0], cls.max_version))
    for version in dict.fromkeys((claimed, 0)):
        with suppress(ValueError):
            return plain(cls.program(version).decode(data, _INT16.size))
    return data.hex()


def plain(value: Any) -> Any:
    """A decoded struct as dictionaries, lists, numbers and text; ids in Kafka's form, other bytes as hexadecimal."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    slots = getattr(type(value), "__slots__", None)
    if slots is None or isinstance(value, str | int | float):
        return value
    return {name: _plain_field(name, getattr(value, name)) for name in slots}


def _plain_field(name: str, value: object) -> object:
    if isinstance(value, bytes) and len(value) == 16 and name.endswith("_id"):
        return uuid_to_text(value)
    return plain(value)
