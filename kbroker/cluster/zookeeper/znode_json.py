"""Fields of the JSON in znodes, checked: what makes no sense raises `ZnodeError` with the field's name."""

from __future__ import annotations

import json

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_INT = 2**31 - 1


class ZnodeError(ValueError):
    """The content of a znode makes no sense; the text says why."""


def json_bytes(value: Json) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_object(data: bytes | None) -> dict[str, Json]:
    """The object that bytes hold.  Raises ZnodeError."""
    try:
        value = json.loads((data or b"").decode())
    except (ValueError, RecursionError) as error:
        raise ZnodeError(f"no JSON: {error}") from None
    return as_dict(value, "the content")


def as_dict(value: Json, name: str) -> dict[str, Json]:
    """An object.  Raises ZnodeError."""
    if not isinstance(value, dict):
        raise ZnodeError(f"{name} is no object")
    return value


def as_list(value: Json, name: str) -> list[Json]:
    """A list.  Raises ZnodeError."""
    if not isinstance(value, list):
        raise ZnodeError(f"{name} is no list")
    return value


def as_int(value: Json, name: str, least: int = -MAX_INT - 1, most: int = MAX_INT) -> int:
    """A number within bounds.  Raises ZnodeError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ZnodeError(f"{name} is no number between {least} and {most}")
    return value


def as_text(value: Json, name: str) -> str:
    """A text.  Raises ZnodeError."""
    if not isinstance(value, str):
        raise ZnodeError(f"{name} is no text")
    return value


def as_number(text: str, name: str, most: int = MAX_INT) -> int:
    """A number that is written as text.  Raises ZnodeError."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > most:
        raise ZnodeError(f"{name} is no number from 0 to {most}")
    return int(text)


def as_node_ids(value: Json, name: str) -> tuple[int, ...]:
    """Ids of brokers, each once.  Raises ZnodeError."""
    found = tuple(as_int(each, name, 0) for each in as_list(value, name))
    if len(set(found)) < len(found):
        raise ZnodeError(f"{name} names a broker twice")
    return found


def as_texts(value: Json, name: str) -> dict[str, str]:
    """An object of texts."""
    return {key: as_text(each, f"{name} {key}") for key, each in as_dict(value, name).items()}
