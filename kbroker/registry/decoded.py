"""What decoding gives, and what decodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decoded:
    """`value` is what JSON has: dict, list, str, int, float, bool or None.  `problem`: what it breaks of its schema."""

    value: object
    problem: str = ""


Decoder = Callable[[bytes, "bytes | None"], Decoded]
"""Decodes a payload; the second argument is the path of a Protobuf message where that does not stand in front of the
payload.  UndecodableError for any bytes that are none."""
