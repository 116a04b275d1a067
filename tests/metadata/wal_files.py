"""The files of a metadata store whose process was killed, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from kbroker.metadata.wal import FRAME_HEADER_BYTES, HEADER_BYTES

FILE = "kbroker-metadata.sqlite"
PAGE = 4096
FRAME = FRAME_HEADER_BYTES + PAGE
IN_HEADER = {"magic": 0, "version": 4, "page size": 10, "checkpoints": 12, "salt 1": 16, "salt 2": 20, "sum 1": 24}
IN_FRAME = {
    "page number": 2,
    "size": 6,
    "salt 1": 8,
    "salt 2": 12,
    "sum 1": 16,
    "sum 2": 20,
    "page": 24,
    "its end": 4119,
}


@dataclass(frozen=True, slots=True)
class Crashed:
    """The files of a store whose process was killed: `ends` has the last frame, from 0, of each topic's creation."""

    database: bytes
    wal: bytes
    ends: tuple[int, ...]

    def put(self, directory: Path, wal: bytes) -> Path:
        """The store with another WAL."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / FILE
        path.write_bytes(self.database)
        path.with_name(f"{FILE}-wal").write_bytes(wal)
        return path


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]


def frame_at(number: int, region: str = "page number") -> int:
    return HEADER_BYTES + number * FRAME + IN_FRAME[region]


def commits(wal: bytes) -> list[int]:
    """The frames of this time that end a transaction."""
    found = []
    for number in range((len(wal) - HEADER_BYTES) // FRAME):
        _, size, *salts = struct.unpack_from(">4I", wal, HEADER_BYTES + number * FRAME)
        if size and tuple(salts) == struct.unpack_from(">2I", wal, IN_HEADER["salt 1"]):
            found.append(number)
    return found
