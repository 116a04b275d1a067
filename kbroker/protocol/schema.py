"""Rows that describe Kafka's messages: the vocabulary of the tables in `kbroker.schemas`.

A version range is written as Kafka writes it: `"3"`, `"0-4"`, `"2+"` or `"none"`.  A field's name is Kafka's in
snake_case.  A type is a primitive (`int32`, `string`, `records`, …), the name of a struct, or `[]` and one of these.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import lru_cache


class Natural(enum.Enum):
    """Stands for "the natural default of the type": 0, "", b"", an empty list, null records, a default struct."""

    DEFAULT = 0


NATURAL = Natural.DEFAULT

NATURAL_DEFAULTS: dict[str, object] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": bytes(16),
    "string": "",
    "bytes": b"",
    "records": None,
}

NEWEST = 0x7FFF

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@lru_cache(maxsize=256)
def parse_versions(text: str) -> range:
    """The versions that `text` names; open ends reach to `NEWEST`."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), NEWEST + 1)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    type: str
    versions: str
    nullable: str = "none"
    tag: int | None = None
    tagged: str = "none"
    default: object = NATURAL
    ignorable: bool = False
    flexible: str = ""
    fields: tuple[Field, ...] = ()

    def of(self, *fields: Field) -> Field:
        """This field with the fields of its struct."""
        return replace(self, fields=fields)

    @property
    def is_array(self) -> bool:
        """Whether the field holds an array."""
        return self.type.startswith("[]")

    @property
    def item_type(self) -> str:
        """The type of the field, or of an array's items."""
        return self.type.removeprefix("[]")

    @property
    def is_struct(self) -> bool:
        """Whether the items are nested structs."""
        return self.item_type[0].isupper()


F = Field  # as the tables write it


@dataclass(frozen=True, slots=True)
class SharedStruct:
    """A struct that several fields of one message use."""

    name: str
    fields: tuple[Field, ...] = ()

    def of(self, *fields: Field) -> SharedStruct:
        """The struct with these fields."""
        return replace(self, fields=fields)


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """One message in all its versions.  `kind` is Kafka's: request, response, header, data, coordinator-key, …

    `api_key` is the API's key, or of a record of an internal topic its type.
    """

    name: str
    kind: str
    api_key: int | None
    versions: str
    flexible: str
    fields: tuple[Field, ...] = ()
    structs: tuple[SharedStruct, ...] = ()

    def of(self, *fields: Field) -> MessageSchema:
        """The message with these fields."""
        return replace(self, fields=fields)

    def sharing(self, *structs: SharedStruct) -> MessageSchema:
        """The message with these structs, which several fields may name."""
        return replace(self, structs=structs)

    @property
    def min_version(self) -> int:
        """The oldest version."""
        return parse_versions(self.versions)[0]

    @property
    def max_version(self) -> int:
        """The newest version."""
        return parse_versions(self.versions)[-1]

    @property
    def first_flexible_version(self) -> int:
        """The first version with compact types and tagged fields (KIP-482)."""
        return parse_versions(self.flexible)[0]

    def first_version(self, path: str) -> int:
        """The first version with the field that the path leads to, as in `topics.partitions.rack_id`."""
        return parse_versions(self._field(path).versions)[0]

    def last_version(self, path: str) -> int:
        """The last version with the field that the path leads to."""
        return parse_versions(self._field(path).versions)[-1]

    def _field(self, path: str) -> Field:
        """KeyError where the path leads to none."""
        structs = {struct.name: struct.fields for struct in self.structs}
        fields = self.fields
        *outer, last = path.split(".")
        for name in outer:
            field = _named(name, fields)
            fields = field.fields or structs.get(field.item_type, ())
        return _named(last, fields)

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact types and tagged fields (KIP-482)."""
        return version in parse_versions(self.flexible)


def _named(name: str, fields: tuple[Field, ...]) -> Field:
    for field in fields:
        if field.name == name:
            return field
    raise KeyError(name)


def fields_of(schema: MessageSchema, version: int) -> list[Field]:
    """The message's own fields in that version, in their order on the wire, without tagged ones."""
    return [
        field
        for field in schema.fields
        if version in parse_versions(field.versions) and version not in parse_versions(field.tagged)
    ]


def request(api_key: int, name: str, versions: str, flexible: str) -> MessageSchema:
    """A request's schema, without fields yet."""
    return MessageSchema(f"{name}Request", "request", api_key, versions, flexible)


def response(api_key: int, name: str, versions: str, flexible: str) -> MessageSchema:
    """A response's schema, without fields yet."""
    return MessageSchema(f"{name}Response", "response", api_key, versions, flexible)


def data(name: str, versions: str, flexible: str) -> MessageSchema:
    """The schema of a message that is no request: a record's key or value, or metadata inside another."""
    return MessageSchema(name, "data", None, versions, flexible)


def record_key(record_type: int, name: str, versions: str, flexible: str) -> MessageSchema:
    """The key of a record in a coordinator's topic; it says the record's type."""
    return MessageSchema(name, "coordinator-key", record_type, versions, flexible)


def record_value(record_type: int, name: str, versions: str, flexible: str) -> MessageSchema:
    """The value of a record in a coordinator's topic."""
    return MessageSchema(name, "coordinator-value", record_type, versions, flexible)


def metadata_record(record_type: int, name: str, versions: str, flexible: str) -> MessageSchema:
    """A record of `__cluster_metadata` or `__remote_log_metadata`."""
    return MessageSchema(name, "metadata", record_type, versions, flexible)
