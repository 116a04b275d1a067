"""Keys and values as people read them: JSON by the schema that a record names, or that a file gives.

Nothing is lost: what cannot be decoded comes with the reason, and what shows it shows the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from kbroker.registry.client import Registry, RegistryPlace
from kbroker.registry.decoded import Decoded, Decoder
from kbroker.registry.errors import SchemaError, UndecodableError
from kbroker.registry.schema_files import Files, SchemaFiles
from kbroker.registry.schemas import Schemas
from kbroker.registry.wire_format import framed_by, unframe

MOST_BYTES = 32 << 20
"""The largest key or value that is decoded, where nothing else is said."""

Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Shown:
    """`value` as `Decoded` has it where `is_decoded`.  `schema`: an id, a GUID or a file's name.  `problem`: why it is
    not decoded, or what it breaks of its schema; else empty."""

    schema: str
    value: object
    is_decoded: bool
    problem: str = ""

    @property
    def text(self) -> str:
        """The value as JSON on one line."""
        return json.dumps(self.value, ensure_ascii=False)


class Display:
    """What decodes for display.  It may ask the registry, which waits; used by one thread at a time."""

    def __init__(
        self, place: RegistryPlace | None, files: Files | None = None, *, most_bytes: int = MOST_BYTES
    ) -> None:
        self._schemas = None if place is None else Schemas(Registry(place))
        self._files = SchemaFiles(files or {})
        self._most_bytes = most_bytes

    def show(self, topic: str, data: bytes | None, headers: Headers, *, is_key: bool) -> Shown | None:
        """A key or value; None for null, and where neither the record nor a file says what it is."""
        if data is None:
            return None
        if len(data) > self._most_bytes:
            return Shown("", None, False, f"more than {self._most_bytes} bytes are not decoded")
        name = ""
        try:
            if self._files and (found := self._files.find(topic, is_key=is_key)) is not None:
                name, decoder = found
                return _shown(name, _by_file(decoder, data))
            framed = None if self._schemas is None else framed_by(data, headers, is_key=is_key)
            if framed is None or self._schemas is None:
                return None
            name = str(framed.schema)
            return _shown(name, self._schemas.decoder(framed.schema)(framed.payload, framed.path))
        except (SchemaError, UndecodableError) as error:
            return Shown(name, None, False, str(error))


def _shown(name: str, decoded: Decoded) -> Shown:
    return Shown(name, decoded.value, True, decoded.problem)


def _by_file(decoder: Decoder, data: bytes) -> Decoded:
    """With the prefix of the wire format or without it, as the bytes do not always say which."""
    framed = unframe(data)
    if framed is not None:
        try:
            return decoder(framed.payload, None)
        except UndecodableError:
            pass
    return decoder(data, b"")
