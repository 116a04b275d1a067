"""Schemas from files: of one side, key or value, of a topic, or of all topics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kbroker.errors import again, bare
from kbroker.registry.client import AVRO, JSON, PROTOBUF, Schema
from kbroker.registry.decoded import Decoder
from kbroker.registry.decoders import decoder_of
from kbroker.registry.errors import SchemaError

KINDS_BY_SUFFIX = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}
SIDES = ("key", "value")

Files = dict[tuple[str, bool], Path]
"""By topic, empty for all topics, and whether it is for keys."""


def parse_files(entries: Iterable[str]) -> Files:
    """Of `topic/key=file` or `topic/value=file`.  ValueError says which is neither, or has no suffix that is known."""
    found: Files = {}
    for entry in entries:
        place, equals, file = entry.partition("=")
        topic, slash, side = place.strip().rpartition("/")
        if not (equals and slash and topic and file.strip() and side in SIDES):
            raise ValueError(f"{entry!r} is not topic/key=file or topic/value=file")
        path = Path(file.strip())
        kind_of(path)
        found[topic, side == "key"] = path
    return found


def kind_of(path: Path) -> str:
    """The kind of schema that a file's name says.  ValueError."""
    try:
        return KINDS_BY_SUFFIX[path.suffix]
    except KeyError:
        raise ValueError(f"{path}: a schema's file ends in {', '.join(KINDS_BY_SUFFIX)}") from None


class SchemaFiles:
    """Decoders by topic and side; each file is read when it is first needed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._decoders: dict[Path, Decoder | SchemaError] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def find(self, topic: str, *, is_key: bool) -> tuple[str, Decoder] | None:
        """The name of the file that is for a side of a topic, and what decodes by it; None: none is.  SchemaError."""
        path = self._files.get((topic, is_key)) or self._files.get(("", is_key))
        if path is None:
            return None
        if path not in self._decoders:
            self._decoders[path] = _load(path)
        found = self._decoders[path]
        if isinstance(found, SchemaError):
            raise again(found)
        return path.name, found


def _load(path: Path) -> Decoder | SchemaError:
    try:
        return decoder_of(Schema(kind_of(path), path.read_text(encoding="utf-8")), path.parent)
    except (OSError, UnicodeDecodeError) as error:
        return SchemaError(f"{path} cannot be read: {error}")
    except SchemaError as error:
        return bare(error)
