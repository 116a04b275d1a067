"""A record that a viewer's request looks at: its key and value are decoded, and read as JSON, once.  For a thread.

Filters, texts that are looked for, rows and files all see a key or a value as `Display` decodes it; where nothing
decodes it, its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kbroker.console.json_text import without_escapes

if TYPE_CHECKING:
    from kbroker.console.masking import Mask
    from kbroker.records.batch import Record
    from kbroker.registry.display import Shown

MOST_JSON_BYTES = 1 << 20
"""The largest key or value that is read as JSON: meanwhile the broker does nothing else."""

_SIGNS = frozenset(' :,[]{}"')

Decode = Callable[["Record", bool], "Shown | None"]
"""The key of a record (True) or its value (False) by its schema; None where there is none."""


class DecodedRecord:
    """`partition`: the record's; `decode`: None where nothing is decoded; `mask`: what of it the viewer may not see."""

    def __init__(self, record: Record, partition: int, decode: Decode | None = None, mask: Mask | None = None) -> None:
        self.record = record if mask is None else mask.record(record)
        self.partition = partition
        self._decode = decode if mask is None else mask.decode(decode, record)
        self._shown: dict[bool, Shown | None] = {}
        self._json: dict[bool, object] = {}

    def shown(self, *, is_key: bool) -> Shown | None:
        """As the schema has it, or why it is not decoded; None for null, and where there is no schema."""
        if self._decode is None:
            return None
        if is_key not in self._shown:
            self._shown[is_key] = self._decode(self.record, is_key)
        return self._shown[is_key]

    def bytes_of(self, *, is_key: bool) -> bytes | None:
        """As it was written."""
        return self.record.key if is_key else self.record.value

    def json_of(self, *, is_key: bool) -> object:
        """What the key or the value says, decoded or as JSON; None where it is none of both."""
        shown = self.shown(is_key=is_key)
        if shown is not None and shown.is_decoded:
            return shown.value
        if is_key not in self._json:
            data = self.bytes_of(is_key=is_key)
            try:
                self._json[is_key] = None if data is None or len(data) > MOST_JSON_BYTES else json.loads(data)
            except (ValueError, RecursionError):
                self._json[is_key] = None
        return self._json[is_key]

    def whole(self, *, is_key: bool) -> object:
        """The key or the value itself: a text or a number that was decoded, other decoded values as JSON on one line,
        else the bytes as text."""
        shown = self.shown(is_key=is_key)
        if shown is not None and shown.is_decoded:
            return shown.text if isinstance(shown.value, (dict, list)) else shown.value
        data = self.bytes_of(is_key=is_key)
        return None if data is None else data.decode("utf-8", "replace")

    def contains(self, needle: str) -> bool:
        """Whether key, value, or name or value of a header has the text, which is in small letters: as it was written,
        as its characters are shown, or, in JSON, as it stands in its lines."""
        for is_key in (True, False):
            shown = self.shown(is_key=is_key)
            if shown is not None and shown.is_decoded:
                if needle in shown.text.lower():
                    return True
            elif _has(self.bytes_of(is_key=is_key), needle) or self._shows(needle, is_key=is_key):
                return True
        return any(needle in name.lower() or _has(value, needle) for name, value in self.record.headers)

    def _shows(self, needle: str, *, is_key: bool) -> bool:
        """Whether the JSON has the text when it is set out in lines, which have blanks where it has none."""
        if not _SIGNS.intersection(needle):
            return False
        value = self.json_of(is_key=is_key)
        return isinstance(value, (dict, list)) and needle in json.dumps(value, ensure_ascii=False).lower()

    def has_key(self, text: str) -> bool:
        """Whether the whole key is this: its bytes, the text or number that it was decoded to, or its JSON."""
        if self.record.key == text.encode():
            return True
        shown = self.shown(is_key=True)
        return shown is not None and shown.is_decoded and text in (shown.text, str(self.whole(is_key=True)))


def _has(data: bytes | None, needle: str) -> bool:
    if not data:
        return False
    if needle.isascii():
        if needle.encode() in data.lower():
            return True
        if b"\\u" not in data and b"\\/" not in data:
            return False
    text = data.decode("utf-8", "replace")
    return needle in text.lower() or needle in without_escapes(text).lower()


def parts_of(record: Record) -> Iterator[bytes]:
    """Key, value, names and values of headers, as far as they are there."""
    yield from (part for part in (record.key, record.value) if part)
    for name, value in record.headers:
        yield name.encode("utf-8", "replace")
        if value:
            yield value
