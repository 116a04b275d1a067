"""Frames, records and a snapshot of real Kafka 4.3.1 (and 3.9.1), as they went over the wire: `frames/`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "frames"


def vector(begin: str) -> bytes:
    """The bytes of the one file whose name begins so."""
    (path,) = FOLDER.glob(f"{begin}*.hex")
    return bytes_of(path)


def bytes_of(path: Path) -> bytes:
    """The content of a file: lines of comments, then hex."""
    return bytes.fromhex("".join(line for line in path.read_text().splitlines() if not line.startswith("#")))
