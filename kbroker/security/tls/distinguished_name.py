"""The name of a certificate's subject as Java writes it: `CN=Duke,OU=ServiceUsers,O=Org,C=US`.

Java's `X500Principal.getName()`, which Kafka's rules and ACLs are about: RFC 2253, the last part of the encoding first,
with the types that the RFC has names for; the value of any other is `#` and its bytes in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_TYPES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 27: "ascii", 28: "utf-32-be", 30: "utf-16-be"}
_ESCAPED = frozenset(',=+<>#;"\\')


class _Item(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes


def java_name(encoded: bytes) -> str:
    """The text of a Name in DER.  ValueError for bytes that are none."""
    (name,) = _items(encoded)
    parts = [
        "+".join(_attribute(*_items(attribute.content)) for attribute in _items(part.content))
        for part in _items(name.content)
    ]
    return ",".join(reversed(parts))


def _items(data: bytes) -> Iterator[_Item]:
    at = 0
    while at < len(data):
        if len(data) - at < 2:
            raise ValueError("a name in DER ends amid a length")
        tag, size, start = data[at], data[at + 1], at + 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[start : start + count], "big")
            start += count
        if start + size > len(data):
            raise ValueError("a name in DER ends amid a value")
        yield _Item(tag, data[start : start + size], data[at : start + size])
        at = start + size


def _attribute(kind: _Item, value: _Item) -> str:
    oid = _dotted(kind.content)
    name, encoding = _TYPES.get(oid), _TEXTS.get(value.tag)
    if name is None or encoding is None:
        return f"{name or oid}=#{value.encoded.hex()}"
    return f"{name}={_escape(value.content.decode(encoding, 'replace'))}"


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an object identifier in DER is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escape(text: str) -> str:
    middle = text.strip(" \r")
    lead = text[: len(text) - len(text.lstrip(" \r"))]
    trail = text[len(lead) + len(middle) :]
    escaped = "".join("\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in middle)
    return "".join(f"\\{c}" for c in lead) + escaped + "".join(f"\\{c}" for c in trail)
