"""What differs between two brokers' answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def differing_parts(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    """A line for each part of an answer that differs."""
    if theirs == ours:
        return
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        for key, value in theirs.items():
            yield from differing_parts(value, ours[key], f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, value in enumerate(theirs):
            yield from differing_parts(value, ours[index], f"{path}[{index}]")
    else:
        yield f"{path}: Kafka {theirs!r}, kbroker {ours!r}"
