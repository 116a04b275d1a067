"""Turns a message's table into its struct classes, and a version of it into a program for the codec."""

from __future__ import annotations

from typing import ClassVar

from kbroker._fast.wire.codec import KINDS, Program, Struct, make_struct
from kbroker._fast.wire.structs import Plan
from kbroker.protocol.schema import NATURAL, NATURAL_DEFAULTS, Field, MessageSchema, parse_versions


class Message(Struct):
    """The base of message classes; nested structs are plain `Struct`s, found on the class by Kafka's name."""

    __slots__ = ()

    schema: ClassVar[MessageSchema]
    api_key: ClassVar[int | None]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    structs: ClassVar[dict[str, type[Struct]]]
    programs: ClassVar[dict[int, Program]]

    @classmethod
    def program(cls, version: int) -> Program:
        """The program of `version`, compiled when first asked for.  ValueError when there is no such version."""
        program = cls.programs.get(version)
        if program is None:
            if not cls.min_version <= version <= cls.max_version:
                raise ValueError(f"{cls.__name__} has versions {cls.min_version} to {cls.max_version}, not {version}")
            program = Program(_Compiler(cls.schema, cls.structs, version).plan(cls, cls.schema.fields), version)
            cls.programs[version] = program
        return program


def build_message(schema: MessageSchema) -> type[Message]:
    """The class of a message, with the classes of its nested structs as attributes."""
    structs: dict[str, type[Struct]] = {}
    for shared in schema.structs:
        _build_nested(schema, shared.name, shared.fields, structs)
    for field in schema.fields:
        _build_field(schema, field, structs)
    namespace: dict[str, object] = {
        "__module__": "kbroker.schemas",
        "schema": schema,
        "api_key": schema.api_key,
        "min_version": schema.min_version,
        "max_version": schema.max_version,
        "structs": structs,
        "programs": {},
        **structs,
    }
    names = tuple(field.name for field in schema.fields)
    message: type[Message] = make_struct(schema.name, Message, names, _defaults(schema.fields, structs), namespace)
    return message


def _build_field(schema: MessageSchema, field: Field, structs: dict[str, type[Struct]]) -> None:
    if field.is_struct and field.fields:
        _build_nested(schema, field.item_type, field.fields, structs)


def _build_nested(
    schema: MessageSchema, name: str, fields: tuple[Field, ...], structs: dict[str, type[Struct]]
) -> None:
    for field in fields:
        _build_field(schema, field, structs)
    names = tuple(field.name for field in fields)
    namespace = {"__module__": "kbroker.schemas", "__qualname__": f"{schema.name}.{name}"}
    structs[name] = make_struct(name, Struct, names, _defaults(fields, structs), namespace)


def _defaults(fields: tuple[Field, ...], structs: dict[str, type[Struct]]) -> tuple[object, ...]:
    return tuple(_default(field, structs) for field in fields)


def _default(field: Field, structs: dict[str, type[Struct]]) -> object:
    if field.default is not NATURAL:
        return field.default
    if field.is_array:
        return list
    if field.is_struct:
        return structs[field.type]
    return NATURAL_DEFAULTS[field.type]


class _Compiler:
    """Compiles one version; a struct used in several places has one plan."""

    def __init__(self, schema: MessageSchema, structs: dict[str, type[Struct]], version: int) -> None:
        self._schema = schema
        self._structs = structs
        self._version = version
        self._flexible = schema.is_flexible(version)
        self._shared = {shared.name: shared.fields for shared in schema.structs}
        self._plans: dict[type[Struct], Plan] = {}

    def plan(self, struct_class: type[Struct], fields: tuple[Field, ...]) -> Plan:
        known = self._plans.get(struct_class)
        if known is not None:
            return known
        regular, tagged, absent = [], [], []
        for field in fields:
            if self._version not in parse_versions(field.versions):
                absent.append((field.name, field.ignorable))
            elif self._flexible and self._version in parse_versions(field.tagged):
                tagged.append(self._row(field))
            else:
                regular.append(self._row(field))
        tagged.sort(key=lambda row: row[5])
        plan = Plan(struct_class, self._flexible, tuple(regular), tuple(tagged), tuple(absent))
        self._plans[struct_class] = plan
        return plan

    def _row(self, field: Field) -> tuple[str, int, int, bool, bool, int, Plan | None]:
        nested = None
        if field.is_struct:
            fields = field.fields or self._shared[field.item_type]
            nested = self.plan(self._structs[field.item_type], fields)
        item = KINDS["struct" if field.is_struct else field.item_type]
        kind = KINDS["array"] if field.is_array else item
        compact = self._flexible
        if field.flexible:
            compact = self._version in parse_versions(field.flexible)
        nullable = self._version in parse_versions(field.nullable)
        return field.name, kind, item, nullable, compact, field.tag or 0, nested
