"""Frames that were captured between the brokers and controllers of a real cluster, and frames over a socket."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

VECTORS = Path(__file__).parent / "vectors"


def captured(name: str, what: str = "request") -> bytes:
    """A frame of `vectors/`, without its length."""
    (path,) = VECTORS.glob(f"{name}.{what}.hex")
    lines = path.read_text(encoding="utf-8").splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def whole(frame: bytes) -> bytes:
    """The frame with its length."""
    return struct.pack(">i", len(frame)) + frame


async def read(reader: asyncio.StreamReader) -> bytes:
    """The next frame, without its length."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)
